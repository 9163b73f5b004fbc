"""Errors of all mechanisms of distribution functions, side by side."""
