"""Estimates hard densities: with jumps, or of one high frequency."""
