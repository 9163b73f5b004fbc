"""Estimators that know nothing of a density beside those that do."""
