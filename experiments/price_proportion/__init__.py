"""The price of privacy for a proportion."""
