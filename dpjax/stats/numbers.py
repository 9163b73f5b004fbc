"""Parses records given as arrays, lists or columns with missing values."""

import math
from typing import Any

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency

MISSING = ('refuse', 'lower', 'upper', 'omit')


def parse(x: Any, lower: float, upper: float, *, missing: str,
          adjacency: Adjacency) -> np.ndarray:
  """Returns the records [n] as float64, not clamped to the bounds.

  Args:
    x: a sequence of numbers.
    lower: public bound.
    upper: public bound.
    missing: treatment of NaN, one of `MISSING`: raise an error, use a bound, or
      drop the record.
    adjacency: which data sets are neighbours.

  Raises:
    ValueError: if x holds no numbers, something else than numbers, or NaN that
      `missing` does not allow.
  """
  errors.check_choice('missing', missing, MISSING)
  if (check_adjacency(adjacency) is Adjacency.REPLACE_ONE
      and missing == 'omit'):
    raise ValueError("missing='omit' would change the public number of records "
                     'under replace_one; use lower or upper')
  if math.isnan(lower) or math.isnan(upper):
    raise ValueError(f'bounds must be numbers, got {lower} and {upper}')
  try:
    values = np.asarray(x, np.float64)
  except (TypeError, ValueError) as error:
    raise ValueError(f'x must be numbers: {errors.one_line(error)}') from error
  if values.ndim != 1:
    raise ValueError('x must be a sequence of numbers, got an array of shape '
                     f'{values.shape}')
  absent = np.isnan(values)
  if absent.any():
    if missing == 'refuse':
      raise ValueError('x has missing values; choose how to treat them with '
                       'missing=lower, upper or omit')
    values = (values[~absent] if missing == 'omit' else np.where(
        absent, lower if missing == 'lower' else upper, values))
  if not values.size:
    raise ValueError('x has no numbers')
  return values
