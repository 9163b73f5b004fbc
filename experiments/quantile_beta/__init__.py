"""Errors of m quantiles of beta distributions: Lalanne (2023, Figure 6.1)."""
