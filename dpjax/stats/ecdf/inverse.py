"""From curves back to quantiles: a search that also passes where curves fall.

Source: thesis 003, Algorithm 9, which searches [0, 1] and returns points
between thresholds, where the curve is not known (item EC-14, correction C23).
"""

import numpy as np


def search(ranks: np.ndarray, wanted: np.ndarray) -> np.ndarray:
  """Where curves reach ranks: indices from 1 to N, by halving.

  On a monotone curve it is the first j with S_j >= wanted, N if there is none.
  On others it is one place where the curve passes it. Post-processing: as many
  quantiles as one likes.

  Args:
    ranks: S_1, ..., S_N in the last axis, [..., N].
    wanted: [..., Q].
  """
  low = np.zeros(wanted.shape, np.int64)
  high = np.full(wanted.shape, ranks.shape[-1], np.int64)
  while np.any(high - low > 1):
    middle = (low + high) // 2
    # Where nothing is left to split the middle is the left end, maybe 0.
    below = np.take_along_axis(ranks, np.maximum(middle, 1) - 1, -1) < wanted
    split = high - low > 1
    low = np.where(split & below, middle, low)
    high = np.where(split & ~below, middle, high)
  return high
