"""Figures 6.6.1 and 6.6.2: what smoothing is worth."""
