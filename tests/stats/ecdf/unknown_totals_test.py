"""Monotone curves where the number of records is private, by least squares."""

import math

import jax
import numpy as np
import pytest
from scipy import optimize

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.ecdf import toeplitz
from dpjax.stats.ecdf import trees
from tests.stats.ecdf import dense

ADD = Adjacency.ADD_OR_REMOVE_ONE
COUNTS = np.array([4.0, 0.0, 3.0, 0.0, 2.0, 1.0, 0.0, 1.0])
KINDS = {'square root': toeplitz.SquareRootEcdf, 'tree': lambda **public:
         trees.TreeEcdf(shape=(2, 4), **public)}


def _metric(made):
  """A matrix M with (M d)' (M d) the squared distance of counts by noise."""
  if isinstance(made, trees.TreeEcdf):
    return dense.nodes(made.branching, 8) / np.sqrt(dense.by_level(
        made.branching, made.noise_variances))[:, None]
  size = np.arange(8)
  lags = size[:, None] - size
  root = np.where(lags >= 0, [[math.comb(2 * max(lag, 0), max(lag, 0))
                               / 4**max(lag, 0) for lag in row]
                              for row in lags], 0.0)
  return root / made.scale


@pytest.mark.parametrize('name', KINDS)
def test_totals_are_kept_or_cut_at_nothing(name):
  """The nearest counts >= 0 whose sum is the estimate, 0 if that is less."""
  fields = dict(num_thresholds=8, rho=0.004, adjacency=ADD)
  made, raw = KINDS[name](**fields), KINDS[name](monotone=False, **fields)
  metric, ends = _metric(made), []
  for key in jax.random.split(jax.random.key(2), 12):
    noisy, found = raw.estimate(key, COUNTS), made.estimate(key, COUNTS)
    ends.append(noisy[-1])
    total = max(noisy[-1], 0.0)
    wanted = optimize.nnls(
        np.vstack([metric, np.full(8, 1e4)]), np.append(
            metric @ np.diff(noisy, prepend=0), 1e4 * total))[0]
    np.testing.assert_allclose(found, np.cumsum(wanted), atol=1e-3)
    assert np.all(np.diff(found, prepend=0) >= 0)
  assert min(ends) < -1 and max(ends) > 20
