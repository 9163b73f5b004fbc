"""These tests check trials of quantile mechanisms: errors and pairing."""

import jax
import numpy as np
import pytest

from dpjax.data import series
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import histogram
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import knots
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.studies import quantile_distributions
from dpjax.studies import quantile_trials

_DISTRIBUTION = quantile_distributions.named('mixed_0.2_0.1')
_PROBS = np.array([.25, .5, .75])


def _measure(of, distribution=_DISTRIBUTION, method='toy', **fields):
  return quantile_trials.measure(
      distribution, _PROBS, of, method=method, **dict(
          num_examples=50, repetitions=4, seed=0) | fields)


def _answers(key, data, values):
  del key, data
  return values


def _noise(key, data, scale):
  del data
  return scale * jax.random.normal(key, (3,), float)


@pytest.mark.every(2)
def test_errors_are_those_of_what_is_drawn():
  """Errors equal those counted for known answers and records."""
  distribution = quantile_distributions.empirical('toy', series.Series(
      np.array([1., 2., 3., 4.]), 0.0, 9.0))
  metrics = _measure(quantile_trials.Asked(_answers, np.array([1., 1., 3.5])),
                     distribution)
  assert metrics['value_sup'] == 1 and metrics['value_sup_se'] == 0
  counts = [np.searchsorted(row[:50], [1., 1., 3.5], 'right')
            for row in quantile_distributions.datasets(
                distribution, 0, 50, 4).ordered]
  gaps = np.abs(np.array(counts) - 50 * _PROBS)
  assert metrics['rank_sup'] == pytest.approx(gaps.max(1).mean())
  assert metrics['rank_mean'] == pytest.approx(gaps.mean())


@pytest.mark.slow
def test_the_standard_error_is_that_of_the_mean():
  metrics = _measure(quantile_trials.Asked(_noise, np.float64(100)),
                     repetitions=400)
  once = np.max(np.abs(100 * np.random.default_rng(0).normal(
      size=(100_000, 3))), 1)
  assert metrics['value_sup'] == pytest.approx(
      once.mean(), abs=5 * metrics['value_sup_se'])
  assert metrics['value_sup_se'] == pytest.approx(once.std() / 20, rel=.2)


def test_quantiles_of_the_records_miss_by_less_than_a_rank():
  metrics = _measure(quantile_trials.without_privacy(_PROBS),
                     quantile_distributions.named('mixed_0_0'))
  assert metrics['rank_sup'] < 1
  assert 0 < metrics['value_sup'] < .3


@pytest.mark.every(2)
def test_coins_are_those_of_the_method():
  """Randomness depends on the method; the data do not."""
  of = quantile_trials.Asked(_noise, np.float64(1))
  first, again, other, reseeded = (
      _measure(of), _measure(of), _measure(of, method='other'),
      _measure(of, seed=1))
  assert first == again
  assert len({metrics['value_sup']
              for metrics in (first, other, reseeded)}) == 3


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['histogram', 'knots'])
def test_what_is_read_off_for_many_orders_is_the_same_for_few(kind):
  public = dict(probs=tuple(_PROBS.tolist()), epsilon=1.0, lower=0.0,
                upper=1.0, adjacency=Adjacency.REPLACE_ONE)
  mechanism = (histogram.HistogramQuantiles(num_bins=8, **public)
               if kind == 'histogram' else knots.KnotQuantiles(
                   make=independent.IndependentQuantiles, knots=2, **public))
  of = quantile_trials.asked(mechanism)
  assert len(of.parameters.probs) > 3
  data = quantile_distributions.datasets(_DISTRIBUTION, 0, 50, 4)
  with jax.enable_x64(True):
    one = data._replace(ordered=data.ordered[0])
    long, short = (np.asarray(of.draw(jax.random.key(0), one, parameters))
                   for parameters in (of.parameters, mechanism.parameters))
  np.testing.assert_array_equal(long[:3], short)
  assert np.all(long[3:] == short[-1])


def test_other_mechanisms_are_asked_as_they_are():
  mechanism = independent.IndependentQuantiles(
      probs=(.2, .4), epsilon=1.0, lower=0.0, upper=1.0,
      adjacency=Adjacency.REPLACE_ONE)
  of = quantile_trials.asked(mechanism)
  assert of.draw is mechanism.draw
  np.testing.assert_array_equal(of.parameters.probs,
                                quantile_levels.check_levels((.2, .4)))
