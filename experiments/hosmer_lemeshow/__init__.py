"""Errors of private Hosmer-Lemeshow tests: Barczewski (2025, Figure 6.6.5)."""
