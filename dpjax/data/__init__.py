"""Real data sets with public feature bounds.

Every feature lies in [-1, 1] and is computed from its own record and from
constants written in the code: bounds, transforms and category lists are
public inputs, so that loading data spends no privacy.
"""

__all__ = [
  'arrays',
  'columns',
  'files',
  'registry',
  'schemas',
  'splits',
  'tabular',
]
