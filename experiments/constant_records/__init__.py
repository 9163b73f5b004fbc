"""Smoothed medians of constant records."""
