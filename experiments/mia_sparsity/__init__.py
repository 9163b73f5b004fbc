"""Sparsity against membership inference, and the bounds by privacy."""
