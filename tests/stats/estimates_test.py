"""Tests which mechanisms array functions use, and what they refuse."""

import jax
import numpy as np
import pytest

from dpjax import stats
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import means
from dpjax.stats import roc_curves

_ADD, _REPLACE = Adjacency
_X = np.arange(200) % 40


def _same(actual, wanted):
  jax.tree.map(np.testing.assert_array_equal, actual, wanted)


@pytest.mark.every(2)
def test_a_mean_is_that_of_the_mechanism_of_its_adjacency():
  """A mean uses a public number of records under replace-one only."""
  key = jax.random.key(0)
  public = dict(epsilon=0.5, lower=0, upper=30, confidence=0.9)
  _same(stats.mean(key, _X, **public, adjacency='replace_one'),
        means.BoundedMean(num_examples=200, **public).release(
            key, _X.astype(np.float64)))
  _same(stats.mean(key, list(_X), **public, adjacency=_ADD),
        means.PrivateSizeMean(**public).release(key, _X.astype(np.float64)))


def test_a_proportion_is_a_mean_of_zeros_and_ones():
  key = jax.random.key(1)
  for values in (_X > 9, (_X > 9).astype(int)):
    _same(stats.proportion(key, values, epsilon=1.0, adjacency=_REPLACE),
          stats.mean(key, (_X > 9).astype(float), epsilon=1.0, lower=0.0,
                     upper=1.0, adjacency=_REPLACE))
  with pytest.raises(ValueError, match='0 or 1, for every record'):
    stats.proportion(key, _X, epsilon=1.0, adjacency=_REPLACE)


@pytest.mark.every(2)
@pytest.mark.parametrize('adjacency', Adjacency)
def test_a_roc_curve_is_that_of_the_mechanism_of_its_budget(adjacency):
  key, grid = jax.random.key(2), stats.Grid(lower=0, upper=40,
                                            num_thresholds=8)
  labels = (_X > 20).astype(int)
  for budget in (dict(epsilon=2.0), dict(rho=0.5)):
    curve = stats.roc(key, _X, labels, grid, **budget, adjacency=adjacency,
                      positive='low')
    mechanism = roc_curves.make(grid, **budget, adjacency=adjacency,
                                positive='low')
    _same(curve, mechanism.release(key, roc_curves.counts(grid, _X, labels)))


@pytest.mark.parametrize('changes, message', [
    (dict(adjacency='one'), 'one'), (dict(epsilon=0.0), 'epsilon'),
    (dict(lower=9, upper=8), 'upper|lower'), (dict(missing='x'), 'missing')])
def test_refusals(changes, message):
  with pytest.raises(ValueError, match=message):
    stats.mean(jax.random.key(0), _X, **{
        'epsilon': 1.0, 'lower': 0, 'upper': 1, 'adjacency': 'replace_one',
        **changes})


def test_names_are_there_without_their_modules_and_others_are_not():
  for name in stats.__all__:
    assert getattr(stats, name) is not None
  with pytest.raises(AttributeError, match="no attribute 'medians'"):
    stats.medians


@pytest.mark.parametrize('release', [
    lambda key, x, grid: stats.ecdf(key, x, grid, epsilon=1.0,
                                    adjacency='replace_one'),
    lambda key, x, grid: stats.roc(key, x, x > 5, grid, epsilon=1.0,
                                   adjacency='replace_one')])
def test_thresholds_that_are_no_grid_are_refused(release):
  with pytest.raises(TypeError, match=r'stats.Grid\(.*got ndarray'):
    release(jax.random.key(0), np.arange(10), np.linspace(0, 10, 5))
