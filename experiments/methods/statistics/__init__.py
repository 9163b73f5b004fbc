"""Estimators and error bounds that are kept for comparison."""
