"""Records from what callers have: arrays, lists, columns with gaps."""

import math
from typing import Any

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency

MISSING = ('refuse', 'lower', 'upper', 'omit')


def parse(x: Any, lower: float, upper: float, *, missing: str,
          adjacency: Adjacency) -> np.ndarray:
  """The records [n] float64; not clamped.

  Args:
    x: a sequence of numbers.
    lower: public bound.
    upper: public bound.
    missing: what NaN counts as: one of `MISSING`.
    adjacency: which data sets are neighbours.

  Raises:
    ValueError: for what are no numbers, or none at all.
  """
  errors.check_choice('missing', missing, MISSING)
  if (check_adjacency(adjacency) is Adjacency.REPLACE_ONE
      and missing == 'omit'):
    raise ValueError("missing='omit' would change the public number of records "
                     'under replace_one: lower or upper')
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
      raise ValueError('x has missing values: say what they count as, '
                       'missing=lower, upper or omit')
    values = (values[~absent] if missing == 'omit' else np.where(
        absent, lower if missing == 'lower' else upper, values))
  if not values.size:
    raise ValueError('x has no numbers')
  return values
