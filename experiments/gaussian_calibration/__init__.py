"""Gaussian noise by the textbook, and as much as it takes."""
