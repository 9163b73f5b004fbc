"""Inverts private distribution functions: Barczewski (2025, Figure 6.6.3)."""
