"""The price of privacy for means with few moments."""
