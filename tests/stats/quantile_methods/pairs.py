"""Provides neighbouring records of many shapes, and exact densities."""

import jax
import numpy as np
from scipy import special

from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import records
from tests.stats.quantile_methods.brute import ADD  # noqa: F401
from tests.stats.quantile_methods.brute import REPLACE  # noqa: F401


def random_pairs(rng, count, adjacency, *, most=6):
  """Yields (lower, upper, first, second) with ties, bounds and e^8 gaps."""
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
    edges: [k + 1], increasing.
    log_rates: [k], logarithms of the density up to a constant.
    points: [...], none of which is an edge.
  """
  widths = np.diff(edges)
  held = widths > 0
  total = special.logsumexp(log_rates[held] + np.log(widths[held]))
  return log_rates[np.searchsorted(edges, points) - 1] - total


def midpoints(*edges):
  """Returns the middles of all intervals between any of the edges."""
  ends = np.unique(np.concatenate(edges))
  return (ends[1:] + ends[:-1]) / 2


def answers(asked, data, repetitions, *, seed=0):
  """Returns answers [repetitions, m] of a mechanism on
  [n] or [R, n] records."""
  data = np.broadcast_to(data, (repetitions, np.shape(data)[-1]))
  rows = [records.padded(row, asked.lower, asked.upper) for row in data]
  stacked = rows[0]._replace(ordered=np.stack([row.ordered for row in rows]))
  with jax.enable_x64(True):
    return np.asarray(mechanism.repeated(asked.draw)(
        jax.random.split(jax.random.key(seed), repetitions), stacked,
        asked.parameters))
