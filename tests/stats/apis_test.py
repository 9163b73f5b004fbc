"""Tests whole releases of columns: their cost, and that no more is shown."""

import math

import jax
import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import numbers
from dpjax.stats.density_methods import api as density_api
from dpjax.stats.ecdf_methods import api as ecdf_api
from dpjax.stats.ecdf_methods import grids
from dpjax.stats.quantile_methods import api as quantiles_api
from tests import coupling

ADD, REPLACE = Adjacency
KEY = jax.random.key(3)


@pytest.mark.sound
@pytest.mark.parametrize('adjacency', [ADD, REPLACE])
def test_plans_cost_what_is_asked(adjacency):
  def costs(mechanism, budget):
    assert coupling.claim(mechanism.event, adjacency) == pytest.approx(
        (budget.get('epsilon', 0), budget.get('rho', 0)), rel=1e-6)
    assert mechanism.adjacency is adjacency
  for method in quantiles_api.METHODS:
    for lower, upper in ((0.0, 9.0), (0.0, math.inf), (-math.inf, 9.0)):
      bounded = math.isfinite(upper - lower)
      if not bounded and method not in ('auto', 'unbounded') or (
          method == 'inverse' and adjacency is ADD):
        continue
      for probs in ((0.5,), (0.2, 0.5, 0.9)):
        mechanism = quantiles_api.plan(
            probs, epsilon=0.4, lower=lower, upper=upper, method=method,
            adjacency=adjacency, num_examples=5000)
        costs(mechanism, dict(epsilon=0.4))
        assert mechanism.probs == probs
        if bounded and method != 'unbounded':
          assert (mechanism.lower, mechanism.upper) == (lower, upper)
  for budget in (dict(epsilon=0.4), dict(rho=0.1)):
    for boundary in ('interval', 'circle'):
      mechanism = density_api.plan(900, adjacency=adjacency, boundary=boundary,
                                   **budget)
      assert mechanism.num_records == 900
      costs(mechanism, budget)
    mechanism = ecdf_api.plan(40, adjacency=adjacency, **budget)
    assert mechanism.num_thresholds == 40
    costs(mechanism, budget)
  if adjacency is REPLACE:
    costs(density_api.plan(900, adjacency=adjacency, boundary='circle',
                           method='two_stages', epsilon=0.4),
          dict(epsilon=0.4))
  with pytest.raises(ValueError, match='one of lower and upper must be finite'):
    quantiles_api.plan((0.5,), epsilon=0.4, lower=-math.inf, upper=math.inf,
                       adjacency=adjacency)


@pytest.mark.sound
def test_what_is_released_is_what_the_plan_releases():
  """Each value is clipped and filled in alone, and only the plan reads it."""
  column = [7.5, math.nan, -40.0, 3.25, 90.0, 5.0, 5.0, 0.0, 10.0, 1.0]
  known = [7.5, 2.0, 2.0, 3.25, 8.0, 5.0, 5.0, 2.0, 8.0, 2.0]
  public = dict(epsilon=3.0, adjacency='replace_one', missing='lower')
  with pytest.warns(UserWarning, match='beyond the public bounds'):
    released = quantiles_api.quantiles(
        KEY, column, [0.9, 0.1, 0.9], lower=2.0, upper=8.0, method='histogram',
        **public)
  mechanism = quantiles_api.plan((0.1, 0.9), epsilon=3.0, lower=2.0, upper=8.0,
                                 adjacency=REPLACE, method='histogram',
                                 num_examples=10)
  wanted = mechanism.estimate(KEY, np.array(known))
  np.testing.assert_array_equal(released, wanted[[1, 0, 1]])
  grid = grids.Grid(lower=2.0, upper=8.0, num_thresholds=4)
  with pytest.warns(UserWarning, match='beyond the public bounds'):
    curve = ecdf_api.ecdf(KEY, column, grid, **public)
  mechanism = ecdf_api.plan(4, epsilon=3.0, adjacency=REPLACE)
  np.testing.assert_array_equal(curve.mechanism.estimate(
      KEY, grid.counts(np.array(known))), mechanism.estimate(
          KEY, grid.counts(np.array(known))))
  np.testing.assert_array_equal(curve.ranks, mechanism.estimate(
      KEY, grid.counts(np.array(known))))
  with pytest.warns(UserWarning, match='beyond the public bounds'):
    estimate = density_api.density(KEY, column, lower=2.0, upper=8.0, **public)
  mechanism = density_api.plan(10, epsilon=3.0, adjacency=REPLACE)
  np.testing.assert_array_equal(estimate.coefficients, mechanism.estimate(
      KEY, (np.array(known) - 2) / 6).coefficients)
  assert (estimate.lower, estimate.upper) == (2, 8)


def test_columns_are_read_as_numbers():
  read = lambda x, missing='upper', adjacency=ADD: numbers.parse(
      x, -1.0, 4.0, missing=missing, adjacency=adjacency).tolist()
  gaps = [1, math.nan, 9.0]
  assert read(gaps) == [1, 4, 9] and read(gaps, 'lower') == [1, -1, 9]
  assert read(gaps, 'omit') == [1, 9] and read([2, 3], 'refuse') == [2, 3]
  for x, missing, adjacency, match in (
      (gaps, 'refuse', ADD, 'missing values'), (gaps, 'omit', REPLACE, 'omit'),
      (['a'], 'lower', ADD, 'must be numbers'), ([[1]], 'lower', ADD, 'shape'),
      ([], 'lower', ADD, 'no numbers'), ([math.nan], 'omit', ADD, 'no numbers'),
      (gaps, 'zero', ADD, 'missing must be')):
    with pytest.raises(ValueError, match=match):
      read(x, missing, adjacency)
  with pytest.raises(ValueError, match='bounds must be numbers'):
    numbers.parse([1], math.nan, 2.0, missing='lower', adjacency=ADD)
