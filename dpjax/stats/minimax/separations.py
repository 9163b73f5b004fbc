"""Two points as far apart as serves a lower bound best.

Two laws of a record in total variation t, whose parameters are D(t) apart,
bound the risk of any private estimate for every t; a curve takes the best.
"""

from collections.abc import Callable

import numpy as np

from dpjax.stats.minimax import two_points
from dpjax.stats.minimax.bounds import Guarantee

Distance = Callable[[np.ndarray], np.ndarray]
"""Variations of a record -> distances of parameters."""


def squared(distance: Distance, *, num_examples: int,
            guarantee: Guarantee) -> float:
  """The largest D(t)^2 / 4 times `two_points.product_share(t)`.

  Args:
    distance: D.
    num_examples: n.
    guarantee: of the estimate.
  """
  return _largest(lambda t: distance(t)**2 / 4 * two_points.product_share(
      t, num_examples=num_examples, guarantee=guarantee), num_examples)


def absolute(distance: Distance, *, num_examples: int,
             guarantee: Guarantee) -> float:
  """The largest D(t) times `two_points.product_error(t)`.

  Of laws P and Q, either as likely, an estimate has no smaller expected
  absolute error than D / 2 times the integral of min(P, Q).
  """
  return _largest(lambda t: distance(t) * two_points.product_error(
      t, num_examples=num_examples, guarantee=guarantee), num_examples)


def _largest(bound: Distance, num_examples: int) -> float:
  """On a grid that gets finer: every t gives a bound, none must be the best."""
  low, high = -np.log(32.0 * num_examples), 0.0
  for points in (33, 9, 9):
    grid = np.linspace(low, high, points)
    found = bound(np.exp(grid))
    place = int(np.argmax(found))
    low, high = grid[max(place - 1, 0)], grid[min(place + 1, points - 1)]
  return float(found[place])
