"""One module per data set: its columns, bounds and categories, as constants.

The bounds are round numbers of the domain and the categories are those of
the published documentation; neither is computed from the records.
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
