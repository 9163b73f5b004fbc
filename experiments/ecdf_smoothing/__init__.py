"""Measures what smoothing gains: Barczewski (2025, Figures 6.6.1, 6.6.2)."""
