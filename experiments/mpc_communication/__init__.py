"""Counts bits that secure evaluation sends: Barczewski (2025, Figure 6.6.6)."""
