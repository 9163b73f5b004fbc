"""Estimators of the end of a uniform distribution, the best in each model."""
