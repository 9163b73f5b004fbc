"""Tests monotone curves with a private number of records, by least squares."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.ecdf_methods import api
from dpjax.stats.ecdf_methods import hierarchy
from dpjax.stats.ecdf_methods import toeplitz
from dpjax.stats.ecdf_methods import trees
from tests.stats.ecdf_methods import dense

ADD = Adjacency.ADD_OR_REMOVE_ONE
COUNTS = np.array([4.0, 0.0, 3.0, 0.0, 2.0, 1.0, 0.0, 1.0])
KINDS = {'square root': toeplitz.SquareRootEcdf, 'tree': lambda **public:
         trees.TreeEcdf(shape=(2, 4), **public)}


def _metric(mechanism):
  """Returns a matrix M with (M d)' (M d) the noise's squared distance."""
  if isinstance(mechanism, trees.TreeEcdf):
    return dense.nodes(mechanism.branching, 8) / np.sqrt(dense.by_level(
        mechanism.branching, mechanism.noise_variances))[:, None]
  size = np.arange(8)
  lags = size[:, None] - size
  root = np.where(lags >= 0, [[math.comb(2 * max(lag, 0), max(lag, 0))
                               / 4**max(lag, 0) for lag in row]
                              for row in lags], 0.0)
  return root / mechanism.scale


@pytest.mark.every(3)
@pytest.mark.parametrize('name', KINDS)
def test_totals_are_kept_or_cut_at_nothing(name):
  """Fitted counts are the nearest >= 0 whose sum is the estimate, or 0."""
  fields = dict(num_thresholds=8, rho=0.004, adjacency=ADD)
  mechanism, raw = KINDS[name](**fields), KINDS[name](monotone=False, **fields)
  metric, ends = _metric(mechanism), []
  for key in jax.random.split(jax.random.key(2), 12):
    noisy, fitted = raw.estimate(key, COUNTS), mechanism.estimate(key, COUNTS)
    ends.append(noisy[-1])
    total = max(noisy[-1], 0.0)
    wanted = optimize.nnls(
        np.vstack([metric, np.full(8, 1e4)]), np.append(
            metric @ np.diff(noisy, prepend=0), 1e4 * total))[0]
    np.testing.assert_allclose(fitted, np.cumsum(wanted), atol=1e-3)
    assert np.all(np.diff(fitted, prepend=0) >= 0)
  assert min(ends) < -1 and max(ends) > 20


def test_ranks_that_rounding_turned_round_are_in_order_and_end_at_n():
  ranks = jnp.array([1.0, 0.9999, 3.0, 5.0001, 5.0, 4.9999])
  for total in (None, 5.0):
    ended = np.asarray(trees.ended(ranks, total, monotone=True))
    assert np.all(np.diff(ended) >= 0)
    assert ended[-1] == pytest.approx(5.0001 if total is None else 5, abs=1e-6)
    raw = np.asarray(trees.ended(ranks, total, monotone=False))
    np.testing.assert_array_equal(raw[:-1], ranks[:-1])
    assert raw[-1] == (ranks[-1] if total is None else 5)


@pytest.mark.every(1)
@pytest.mark.parametrize('total', [-2.0, 0.0, 0.4, 1.0, 3.0])
def test_shares_are_of_a_record_or_more_and_quantiles_of_the_total(total):
  curve = api.Ecdf(thresholds=np.arange(1.0, 5.0), total=total, stddevs=None,
                   ranks=np.array([-1.0, 0.3, 0.8, 2.0]), mechanism=None)
  np.testing.assert_allclose(curve.cdf, np.clip(
      [-1 / max(total, 1), 0.3 / max(total, 1), 0.8 / max(total, 1),
       2 / max(total, 1)], 0, 1))
  for prob in (0.1, 0.5, 0.9):
    reached = np.append(curve.ranks[:-1] >= prob * total, True)
    assert curve.quantiles(prob) == curve.thresholds[np.argmax(reached)]
  np.testing.assert_allclose(np.cumsum(curve.counts()), curve.ranks)


def _shapes(size):
  """Yields all trees of two parts or more with the
  smallest top that suffices."""
  for high in range(1, size.bit_length() + 1):
    for lower in itertools.product(range(2, size), repeat=high - 1):
      if math.prod(lower) <= size:
        yield hierarchy.filled(lower, size)


@pytest.mark.every(1)
@pytest.mark.parametrize('size', [2, 3, 5, 7, 14, 15])
def test_no_shape_of_few_leaves_errs_less_than_the_best(size):
  for known, pure in itertools.product((False, True), repeat=2):
    cost = lambda shape: hierarchy.even_cost(shape, size, known=known,
                                             pure=pure)
    best = hierarchy.best_shape(size, known=known, pure=pure)
    assert cost(best) <= min(map(cost, _shapes(size))) * (1 + 1e-9)
