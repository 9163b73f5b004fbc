"""Sensitivities of the statistics that density estimators release."""
