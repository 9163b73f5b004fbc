"""Neighbouring records of many shapes, and exact densities of what they give.
"""

import jax
import numpy as np
from scipy import special

from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import records
from tests.stats.quantile_methods.brute import ADD  # noqa: F401
from tests.stats.quantile_methods.brute import REPLACE  # noqa: F401


def random_pairs(rng, count, adjacency, *, most=6):
  """[(lower, upper, first, second)]: ties, records at bounds, gaps of e^8."""
  for _ in range(count):
    size = int(rng.integers(1, most + 1))
    places = np.cumsum(np.exp(rng.choice([0.5, 3.0, 8.0])
                              * rng.normal(size=size + 3)))
    first = rng.choice(places, size)
    second = first.copy()
    second[0] = rng.choice(places)
    if adjacency is ADD:
      second = np.append(first, second[0])
    yield places[0], places[-1], first, second


def log_density(edges, log_rates, points):
  """Returns a log-density at points; it is constant between edges.

  Args:
    edges: [k + 1], in order.
    log_rates: [k], logarithms of the density but for a constant.
    points: [...], none at an edge.
  """
  widths = np.diff(edges)
  held = widths > 0
  total = special.logsumexp(log_rates[held] + np.log(widths[held]))
  return log_rates[np.searchsorted(edges, points) - 1] - total


def midpoints(*edges):
  """Middles of all intervals between any of the edges."""
  ends = np.unique(np.concatenate(edges))
  return (ends[1:] + ends[:-1]) / 2


def answers(asked, data, repetitions, *, seed=0):
  """Answers [repetitions, m] of a mechanism on records [n] or [R, n]."""
  data = np.broadcast_to(data, (repetitions, np.shape(data)[-1]))
  rows = [records.padded(row, asked.lower, asked.upper) for row in data]
  stacked = rows[0]._replace(ordered=np.stack([row.ordered for row in rows]))
  with jax.enable_x64(True):
    return np.asarray(mechanism.repeated(asked.draw)(
        jax.random.split(jax.random.key(seed), repetitions), stacked,
        asked.parameters))
