"""Whether (epsilon, delta) helps to estimate a density."""
