"""Two-point lower bounds at the best separation of the two points.

Two distributions of a record with total variation t, whose parameters are D(t)
apart, bound the risk of any private estimate for every t; these functions take
the best t.
"""

from collections.abc import Callable

import numpy as np

from dpjax.theory.minimax import two_points
from dpjax.theory.minimax.bounds import Guarantee

Distance = Callable[[np.ndarray], np.ndarray]
"""Total variations of one record -> distances of the parameters."""


def squared(distance: Distance, *, num_examples: int,
            guarantee: Guarantee) -> float:
  """Returns the largest D(t)^2 / 4 times `two_points.product_risk(t)`."""
  return _largest(lambda t: distance(t)**2 / 4 * two_points.product_risk(
      t, num_examples=num_examples, guarantee=guarantee), num_examples)


def absolute(distance: Distance, *, num_examples: int,
             guarantee: Guarantee) -> float:
  """Returns the largest D(t) times `two_points.product_error(t)`.

  For equally likely output distributions P and Q, an estimate has an expected
  absolute error of at least D / 2 times the integral of min(P, Q).
  """
  return _largest(lambda t: distance(t) * two_points.product_error(
      t, num_examples=num_examples, guarantee=guarantee), num_examples)


def _largest(bound: Distance, num_examples: int) -> float:
  """Maximises over t on finer and finer grids; every t gives a valid bound."""
  # From t = 1 / (32 n), where two data sets hardly ever differ, up to 1.
  low, high = -np.log(32.0 * num_examples), 0.0
  for points in (33, 9, 9):
    grid = np.linspace(low, high, points)
    values = bound(np.exp(grid))
    best = int(np.argmax(values))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, points - 1)]
  return float(values[best])
