"""Adaptive density estimators, compared with those that know constants."""
