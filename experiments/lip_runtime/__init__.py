"""Seconds of an epoch by batch size: Barczewski (2025, Figure 5.3.2)."""
