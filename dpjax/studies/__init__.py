"""Studies of the error of private estimates, in settings the user chooses.

Modules, in import order: quantile_distributions, quantile_trials,
quantile_study.
"""
