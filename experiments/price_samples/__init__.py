"""How many records a private test of two proportions takes."""
