"""Figures 6.4 and 6.5: quantiles of distributions with atoms."""
