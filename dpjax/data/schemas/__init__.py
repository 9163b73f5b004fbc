"""Schemas of the tabular data sets: columns, bounds, categories as constants.

The bounds are round numbers of the domain. The categories come from the
published documentation. Neither is computed from the records.
"""
