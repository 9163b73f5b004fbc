"""Randomised-response polls: confidence intervals and privacy costs."""
