"""The price of privacy for the end of a uniform distribution."""
