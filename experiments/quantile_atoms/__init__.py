"""Quantiles of distributions with atoms: Lalanne (2023, Figures 6.4, 6.5)."""
