"""Histograms of the records of `quantile_atoms`: Lalanne (2023, Figure 6.3)."""
