"""Tests the functions on arrays: curves, their answers, and bad input."""

import jax
import numpy as np
import pytest

from dpjax.privacy import mechanism
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.ecdf_methods import api
from dpjax.stats.ecdf_methods import grids
from dpjax.stats.ecdf_methods import inverse

_GRID = grids.Grid(lower=0.0, upper=10.0, num_thresholds=16)
_KEY = jax.random.key(0)


def _records(size=400):
  return np.random.default_rng(0).gamma(2.0, 1.5, size).clip(0, 10)


@pytest.mark.every(3)
@pytest.mark.parametrize('method', api.METHODS)
@pytest.mark.parametrize('adjacency', ['replace_one', 'add_or_remove_one'])
def test_curves_are_close_monotone_and_cost_their_budget(method, adjacency):
  budget = dict(rho=200.0) if method == 'square_root' else dict(epsilon=200.0)
  records = _records()
  curve = api.ecdf(_KEY, records, _GRID, adjacency=adjacency, method=method,
                   **budget)
  exact = _GRID.ranks(records)
  assert np.abs(curve.ranks - exact).max() < 6 * curve.stddevs.max() + 1
  assert np.all(np.diff(curve.cdf) >= 0) and curve.cdf[-1] <= 1
  assert curve.counts().min() >= 0
  assert curve.mechanism.adjacency is Adjacency(adjacency)
  if 'epsilon' in budget:
    assert mechanism.epsilon(curve.mechanism,
                             delta=1e-9) == pytest.approx(200.0)


def test_auto_is_the_least_error_of_each_budget():
  for budget in (dict(epsilon=1.0), dict(rho=0.5)):
    errors = {
        name: api.plan(256, adjacency='replace_one', method=name, **budget)
        .risk(1) for name in api.METHODS
        if 'rho' in budget or name != 'square_root'}
    assert errors['auto'] == min(errors.values())
    assert errors['auto'] < errors['dyadic'] < errors['dyadic_paper']


def test_quantiles_are_the_first_thresholds_that_reach_them():
  records = _records()
  curve = api.ecdf(_KEY, records, _GRID, epsilon=1e6, adjacency='replace_one')
  probs = np.array([[0.1, 0.5], [0.9, 0.999]])
  expected = [_GRID.thresholds[np.argmax(_GRID.ranks(records) >= 400 * p - 1e-6)]
              for p in probs.ravel()]
  np.testing.assert_array_equal(curve.quantiles(probs).ravel(), expected)
  with pytest.raises(ValueError, match='probs'):
    curve.quantiles(1.0)


def test_search_passes_where_a_curve_falls():
  curve = np.array([[1.0, 4.0, 2.0, 6.0, 5.0, 9.0]])
  wanted = np.array([[0.5, 3.0, 5.5, 9.0, 10.0]])
  places = inverse.search(curve, wanted)[0]
  padded = np.concatenate([[-np.inf], curve[0], [np.inf]])
  for j, rank in zip(places, wanted[0]):
    assert padded[j - 1] < rank and (padded[j] >= rank or j == 6)
  monotone = np.sort(curve)
  np.testing.assert_array_equal(
      inverse.search(monotone, wanted)[0],
      np.minimum(np.searchsorted(monotone[0], wanted[0]) + 1, 6))


@pytest.mark.every(2)
def test_printed_errors_are_those_of_ranks_and_not_of_shares():
  """The printed error 2 (L + 1)^3 is that of ranks, not shares (C1)."""
  records, printed = _records(), 2 * 5**3
  curves = [api.ecdf(key, records, _GRID, epsilon=1.0, monotone=False,
                     adjacency='replace_one', method='dyadic_paper')
            for key in jax.random.split(_KEY, 40)]
  shares = [curve.ranks / curve.total for curve in curves]
  error = np.mean(np.square(np.array(shares) - _GRID.ranks(records) / 400))
  assert curves[0].mechanism.risk(1) == pytest.approx(printed, rel=5e-3)
  # All 16 ranks share the root's noise, a fifth of the variance.
  assert error == pytest.approx(printed / 400**2, rel=0.5)


@pytest.mark.every(1)
@pytest.mark.parametrize('change, message', [
    (dict(method='square_root'), 'Gaussian'),
    (dict(epsilon=None), 'epsilon or rho'), (dict(rho=1.0), 'epsilon or rho'),
    (dict(adjacency='other'), 'other'), (dict(method='other'), 'method'),
    (dict(x=[1.0, np.nan]), 'missing'), (dict(x=[]), 'no numbers'),
    (dict(x=[1.0, np.nan], missing='omit'), 'omit')], ids=str)
def test_bad_input_is_one_line(change, message):
  asked = {**dict(x=[1.0, 2.0], epsilon=1.0, adjacency='replace_one'),
           **change}
  with pytest.raises(ValueError, match=message) as error:
    api.ecdf(_KEY, asked.pop('x'), _GRID, **asked)
  assert '\n' not in str(error.value)


def test_values_beyond_the_bounds_are_told():
  with pytest.warns(UserWarning, match='beyond the public bounds'):
    curve = api.ecdf(_KEY, [-1.0, 20.0, 3.0], _GRID, epsilon=1e6,
                     adjacency='replace_one')
  np.testing.assert_allclose(curve.ranks[[0, 3, 4, -2, -1]], [1, 1, 2, 2, 3],
                             atol=1e-6)
