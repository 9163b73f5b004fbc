"""Tests whether (epsilon, delta)-DP helps to estimate a density."""
