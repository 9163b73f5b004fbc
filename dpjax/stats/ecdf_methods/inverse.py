"""Reads quantiles off curves, by a search that also handles curves that fall.

Source: Barczewski (2025, Algorithm 9), which searches [0, 1] and returns points
between thresholds, where the curve is not known (item EC-14, correction C23).
"""

import numpy as np


def search(ranks: np.ndarray, wanted: np.ndarray) -> np.ndarray:
  """Returns the indices, from 1 to N, where curves reach the wanted ranks.

  Bisection. On a monotone curve the result is the first j with S_j >= wanted,
  or N if there is none. On other curves it is one place where the curve crosses
  the wanted rank. Post-processing: any number of quantiles is free.

  Args:
    ranks: S_1, ..., S_N in the last axis, [..., N].
    wanted: [..., Q] ranks.
  """
  low = np.zeros(wanted.shape, np.int64)
  high = np.full(wanted.shape, ranks.shape[-1], np.int64)
  while np.any(high - low > 1):
    middle = (low + high) // 2
    # In a finished search the middle is the left end, which may be 0, so the
    # index is kept from wrapping around.
    below = np.take_along_axis(ranks, np.maximum(middle, 1) - 1, -1) < wanted
    split = high - low > 1
    low = np.where(split & below, middle, low)
    high = np.where(split & ~below, middle, high)
  return high
