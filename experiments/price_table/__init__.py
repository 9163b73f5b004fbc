"""Table 1 of paper 004: rates of private means, measured."""
