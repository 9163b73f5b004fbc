"""These tests check data distributions, their quantiles and keys."""

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.data import series
from dpjax.studies import quantile_distributions

_ORDERS = np.array([.01, .1, .25, .5, .75, .9, .99])
_SERIES = series.Series(np.array([3., 1., 1., 2.]), 0.0, 9.0)


def _sorted(of, count, repetitions):
  return quantile_distributions.datasets(of, 0, count, repetitions)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['beta_2_5', 'mixed_0_0', 'mixed_0.2_0.1',
                                  *quantile_distributions.SURROGATES])
def test_draws_have_the_quantiles(name):
  """Draws have the stated quantiles within five deviations."""
  distribution, count = quantile_distributions.named(name), 20_000
  drawn = _sorted(distribution, count, 1).ordered[0, :count]
  quantiles, slack = distribution.quantiles(_ORDERS), 5 * np.sqrt(
      count * _ORDERS * (1 - _ORDERS))
  assert drawn.dtype == np.float64 and np.all(np.diff(drawn) >= 0)
  assert distribution.lower <= drawn[0] and drawn[-1] <= distribution.upper
  for side, sign in ('right', 1), ('left', -1):
    ranks = np.searchsorted(drawn, quantiles, side)
    assert np.all(sign * (ranks - count * _ORDERS) >= -slack), side
  # Quantiles of nearby levels would fail where there is no atom.
  between = np.searchsorted(drawn, distribution.quantiles(_ORDERS[-2:] - .02),
                            'right')
  assert np.all(between < count * _ORDERS[-2:])


def test_quantiles_in_closed_form():
  """Quantiles equal closed forms, and surrogates their CDFs (QF-25)."""
  np.testing.assert_allclose(
      quantile_distributions.named('mixed_0.5_0.25').quantiles(np.arange(1, 9) / 9),
      [1 / 9, 2 / 9, .5, .5, .5, .5, 7 / 9, 8 / 9], rtol=1e-12)
  np.testing.assert_allclose(
      quantile_distributions.named('mixed_0.1_0.05').quantiles(np.array([.45, .56])),
      [.45, .56], rtol=1e-12)
  np.testing.assert_allclose(
      quantile_distributions.named('beta_0.5_0.5').quantiles(_ORDERS),
      np.sin(np.pi * _ORDERS / 2)**2, rtol=1e-12)
  earned = quantile_distributions.named('earnings_surrogate').quantiles(
      np.array([.3, .5, .9]))
  assert earned[0] == 0 and np.all(earned % 10 == 0)
  at = lambda value: .35 + .65 * stats.lognorm.cdf(
      value, 1, scale=np.exp(10.5))
  assert np.all(at(earned[1:] + 5) >= [.5, .9])
  assert np.all(at(earned[1:] - 5) < [.5, .9])
  paid = quantile_distributions.named('dividends_surrogate').quantiles(
      np.array([.85, .9, 1 - 1e-6]))
  assert .85 + .15 * stats.lognorm.cdf(
      paid[1], 2, scale=np.exp(6.5)) == pytest.approx(.9)
  assert paid[0] == 0 and paid[2] == 1e5


def test_records_of_a_file():
  distribution = quantile_distributions.empirical('toy', _SERIES)
  assert distribution.quantiles(
      np.array([.25, .5, .51, .75, .76])).tolist() == [1, 1, 2, 2, 3]
  drawn = _sorted(distribution, 1000, 1)
  counts = np.searchsorted(drawn.ordered[0, :1000], [1, 1.5, 2.5, 3.5])
  assert np.all(np.abs(np.diff(counts) - [500, 250, 250]) < 80)
  assert drawn.lower == 0 and drawn.upper == 9 and counts[0] == 0


def test_data_sets_are_those_of_their_keys_and_coins_of_their_method():
  distribution = quantile_distributions.named('mixed_0_0')
  few, many = _sorted(distribution, 40, 2), _sorted(distribution, 41, 2)
  assert few.count == 40 and few.ordered.shape == many.ordered.shape
  assert np.all(few.ordered[:, 40:] == 1) and few.ordered[:, 39].max() < 1
  values = [few.ordered[:, :40], many.ordered[:, :41]]
  assert len(np.unique(np.concatenate(values, axis=None))) == 2 * 81
  keys = quantile_distributions.keys(0, 'mixed_0_0', 40, 2)
  words = [jax.random.key_data(each) for each in (
      keys, quantile_distributions.method_keys(keys, 'a'),
      quantile_distributions.method_keys(keys, 'b'),
      quantile_distributions.keys(1, 'mixed_0_0', 40, 2))]
  assert len(np.unique(np.concatenate(words), axis=0)) == 8


@pytest.mark.parametrize('name, message', [
    ('gamma_1_2', 'must be one such as beta_2_5, mixed'),
    ('beta_1', 'two numbers'), ('beta_0_1', 'positive'),
    ('mixed_1_0', 'p in'), ('mixed_0_0.6', 'delta in')])
def test_unknown_distributions(name, message):
  with pytest.raises(ValueError, match=message):
    quantile_distributions.named(name)
