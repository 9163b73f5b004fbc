"""Sparsity against membership inference, and what privacy promises."""
