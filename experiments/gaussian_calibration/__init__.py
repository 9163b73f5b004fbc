"""Compares textbook Gaussian noise with the least that is enough."""
