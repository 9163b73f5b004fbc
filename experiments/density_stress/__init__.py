"""Densities that are hard for estimators: jumps, one high frequency."""
