"""The price of privacy for maximum likelihood in an exponential family."""
