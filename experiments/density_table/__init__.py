"""Table 1 of the paper on the cost of privacy, measured."""
