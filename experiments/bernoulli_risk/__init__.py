"""The price of privacy for one proportion, and its lower bounds."""
