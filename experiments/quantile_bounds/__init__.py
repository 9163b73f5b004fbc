"""Proved and measured errors of private quantiles."""
