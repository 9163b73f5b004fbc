"""Measures the gain from post-processing private histograms."""
