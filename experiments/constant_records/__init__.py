"""Measures smoothed medians of data sets whose records are all equal."""
