"""Measures the time of smoothing: Barczewski (2025, Figure 6.6.7)."""
