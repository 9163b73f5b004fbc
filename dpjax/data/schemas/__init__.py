"""Schemas of the tabular data sets: columns, bounds, categories as constants.

The bounds are round numbers of the domain. The categories come from the
published documentation. Neither is computed from the records.
"""

__all__ = [
  'adult',
  'android_permissions',
  'bank_full',
  'breast_cancer',
  'default_credit',
  'diabetes_130',
  'dropout',
  'framingham',
  'german_credit',
  'nursery',
]
