"""The price of privacy for Lipschitz densities on a line and on a square."""
