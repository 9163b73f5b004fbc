"""Private ROC curves: Barczewski (2025, Figures 6.5.1 to 6.5.3 and 6.6.4)."""
