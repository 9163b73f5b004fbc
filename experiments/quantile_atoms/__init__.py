"""Figures 6.4 and 6.5: quantiles of laws with atoms, with and without noise."""
