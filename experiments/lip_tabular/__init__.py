"""Accuracy of private training on seven tabular data sets."""
