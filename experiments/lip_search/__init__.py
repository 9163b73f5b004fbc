"""Hyperparameters of private training by Gaussian-process search."""
