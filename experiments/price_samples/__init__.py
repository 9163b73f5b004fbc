"""Computes how many records a private test of two proportions needs."""
