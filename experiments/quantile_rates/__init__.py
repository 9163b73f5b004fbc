"""Measures how errors of private quantiles fall with n and epsilon."""
