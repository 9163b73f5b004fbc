"""Tests dpjax.stats.quantile_methods.knots: interpolation and its benefit."""

import functools

import jax
import numpy as np
import pytest
from scipy import interpolate
from scipy import stats

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import knots
from dpjax.stats.quantile_methods import smoothing
from tests.stats.quantile_methods import pairs

MANY = tuple(np.linspace(0.25, 0.75, 41).tolist())
BOUNDS = dict(epsilon=0.5, lower=0.0, upper=1.0,
              adjacency=Adjacency.REPLACE_ONE)
make = independent.IndependentQuantiles


def test_cubic_interpolation_is_that_of_scipy():
  rng = np.random.default_rng(0)
  compiled = jax.jit(knots.cubic)
  for _ in range(20):
    steps = rng.exponential(size=7) * rng.choice([0.0, 1.0, 50.0], 7)
    values = np.cumsum(np.concatenate([[-1.0], steps]))
    places = np.cumsum(rng.exponential(size=8))
    at = np.sort(np.append(rng.uniform(places[0], places[-1], 90),
                           places[[0, 3, 3, -1]]))
    with jax.enable_x64(True):
      interpolated = np.asarray(compiled(at, places, values))
    want = interpolate.PchipInterpolator(places, values)(at)
    np.testing.assert_allclose(interpolated, want, rtol=1e-9, atol=1e-11)
    assert np.all(np.diff(interpolated) >= -1e-13)


@pytest.mark.sound
@pytest.mark.parametrize('between', knots.BETWEEN)
def test_answers_are_interpolated_from_those_of_the_knots(between):
  data = np.random.default_rng(1).uniform(size=30)
  asked = knots.KnotQuantiles(probs=MANY, make=make, between=between, knots=4,
                              **BOUNDS)
  key = jax.random.key(2)
  at = np.linspace(0.25, 0.75, 4)
  np.testing.assert_allclose(asked.asked, at)
  known = asked.inner.estimate(key, data)
  want = (np.interp(MANY, at, known) if between == 'linear'
          else interpolate.PchipInterpolator(at, known)(MANY))
  np.testing.assert_allclose(asked.estimate(key, data), want, atol=1e-12)
  assert asked.event == asked.inner.event
  # If there are at most as many levels as knots, they are asked directly.
  few = knots.KnotQuantiles(probs=(0.1, 0.2, 0.6, 0.9), make=make, knots=4,
                            between=between, **BOUNDS)
  np.testing.assert_array_equal(few.estimate(key, data),
                                few.inner.estimate(key, data))
  assert few.asked == few.probs and few.draw is asked.draw


@pytest.mark.slow
def test_few_knots_beat_many_orders():
  distribution = stats.beta(2, 5)
  data = distribution.rvs(size=(10, 2000), random_state=3)
  truth = distribution.ppf(MANY)
  sup = lambda of: np.mean(np.max(np.abs(
      pairs.answers(of, data, 10) - truth), 1))
  error = sup(knots.KnotQuantiles(probs=MANY, make=make, knots=3, **BOUNDS))
  assert error < 0.03
  assert sup(make(probs=MANY, **BOUNDS)) > 4 * error


def test_wrappers_nest():
  def smooth(**kwargs):
    return smoothing.Smoothed(inner=make(**kwargs))
  asked = knots.KnotQuantiles(probs=MANY, make=smooth, **BOUNDS)
  answers = asked.estimate(jax.random.key(4), np.full(30, 0.5))
  assert answers.shape == (41,) and np.all(np.diff(answers) >= 0)
  with pytest.raises(ValueError, match='num_examples'):
    asked.estimate(jax.random.key(4), np.zeros(0))


def test_numbers_of_knots():
  rule = functools.partial(knots.num_knots, epsilon=0.1)
  assert rule(100, num_examples=10_000) == 5
  assert rule(100, num_examples=100) == 3
  assert rule(100, num_examples=100_000) == 8
  assert rule(1, num_examples=10_000) == rule(2, num_examples=10_000) == 2
  with pytest.raises(ValueError, match='knots must be an integer >= 2'):
    knots.KnotQuantiles(probs=MANY, make=make, knots=1, **BOUNDS)
  with pytest.raises(ValueError, match='between must be one of'):
    knots.KnotQuantiles(probs=MANY, make=make, between='quintic', **BOUNDS)
