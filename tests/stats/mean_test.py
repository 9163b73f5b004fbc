"""Tests dpjax.stats.means and bernoulli: goldens, risks, coverage.

Privacy is tested in the battery (`tests/privacy/roster.py`), sensitivities
below.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import mechanism
from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import means as mean
from dpjax.theory.parametric import proportions

KEY = jax.random.key(21)
REPETITIONS = 20_000


def covered(estimates, truth):
  return float(np.mean((np.asarray(estimates.low) <= truth)
                       & (truth <= np.asarray(estimates.high))))


def close(actual, wanted, slack=0.0):
  """Returns whether a frequency is within four standard errors."""
  return abs(actual - wanted) < slack + 4 * np.sqrt(
    wanted * (1 - wanted) / REPETITIONS)


def releases(mechanism, data):
  """Returns releases of data sets [r, n], each with its own key."""
  keys = jax.random.split(KEY, data.shape[0])
  return jax.jit(jax.vmap(mechanism.release))(keys, data)


@pytest.mark.slow
@pytest.mark.parametrize('people, epsilon, truth, risk, wald, exact', [
  (1000, 0.1, 0.3, 4.10e-4, 0.948, 0.947),
  (1000, 1.0, 0.3, 2.12e-4, 0.947, 0.947),
  (200, 0.05, 0.5, 2.125e-2, 0.936, 0.950)])
def test_proportions(people, epsilon, truth, risk, wald, exact):
  """Both intervals have INT-03's risk and coverage, in 20,000 repetitions."""
  assert proportions.risk(truth, num_examples=people, epsilon=epsilon) == (
    pytest.approx(risk, rel=2e-3))
  rng = np.random.default_rng(0)
  # The release depends on the sum alone.
  ones = rng.binomial(people, truth, REPETITIONS) / people
  by_interval = {
      name: proportions.proportion(num_examples=people, epsilon=epsilon,
                                   interval=name) for name in ('wald', 'exact')
  }
  noise = rng.laplace(scale=1 / (people * epsilon), size=REPETITIONS)
  values = jnp.asarray(ones + noise, jnp.float32)
  for name, wanted in (('wald', wald), ('exact', exact)):
    estimates = jax.jit(by_interval[name]._estimate)(values)
    assert close(covered(estimates, truth), wanted, 0.001), name
  squares = np.square(np.float64(values) - truth)
  assert squares.mean() == pytest.approx(
    risk, abs=2e-3 * risk + 4 * squares.std() / REPETITIONS**0.5)
  clipped = np.square(np.clip(np.float64(values), 0, 1) - truth)
  assert np.all(clipped <= squares)


def test_a_whole_release_has_the_risk_and_the_coverage():
  data = jax.random.bernoulli(KEY, 0.3, (REPETITIONS // 4, 200))
  mechanism = proportions.proportion(num_examples=200, epsilon=0.2)
  estimates = releases(mechanism, data.astype(jnp.float32))
  squares = np.square(np.float64(estimates.value) - 0.3)
  wanted = mechanism.population_risk(0.21)
  assert squares.mean() == pytest.approx(
    wanted, abs=4 * squares.std() / squares.size**0.5)
  assert abs(covered(estimates, 0.3) - 0.95) < 4 * (0.0475 / squares.size)**0.5
  assert np.all((estimates.low >= 0) & (estimates.high <= 1))


@pytest.mark.every(2)
def test_means_of_other_records():
  """Means have risk sigma^2 / n + 2 ((b - a) / (n epsilon))^2 (MECH-09)."""
  mechanism = mean.BoundedMean(num_examples=100, lower=-2.0, upper=4.0,
                               epsilon=0.5)
  assert mechanism.scale == pytest.approx(6 / 50)
  data = jax.random.uniform(KEY, (5000, 100), minval=-2.0, maxval=4.0)
  estimates = releases(mechanism, data)
  squares = np.square(np.float64(estimates.value) - 1.0)
  assert squares.mean() == pytest.approx(
    mechanism.population_risk(3.0), abs=4 * squares.std() / 5000**0.5)
  # The variance is unknown, so the largest possible one is used.
  assert covered(estimates, 1.0) > 0.95
  assert estimates.value.dtype == jnp.float32


@pytest.mark.every(2)
def test_means_of_a_private_number_of_records():
  """A mean of private n covers, leaves out absent
  records and stays in range."""
  estimator = mean.PrivateSizeMean(lower=0.0, upper=1.0, epsilon=1.0)
  data = jax.random.bernoulli(KEY, 0.7, (5000, 150)).astype(jnp.float32)
  data = data.at[:, ::3].set(jnp.nan)
  estimates = releases(estimator, data)
  assert abs(covered(estimates, 0.7) - 0.95) < 0.015
  assert abs(np.mean(estimates.value) - 0.7) < 0.01
  assert mechanism.epsilon(estimator,
                           delta=1e-12) == pytest.approx(1.0, abs=2e-3)
  # Without records the release still lies in the range.
  empty = estimator.release(KEY, jnp.full([3], jnp.nan))
  assert 0 <= empty.low <= empty.value <= empty.high <= 1
  assert estimator.risk(1) is None


@pytest.mark.parametrize('adjacency, sizes, wanted', [
  (Adjacency.REPLACE_ONE, [3], 3 / 3),
  (Adjacency.ADD_OR_REMOVE_ONE, [1, 2, 3], 3 / 2)])
def test_sensitivity_of_a_mean(adjacency, sizes, wanted):
  """Sensitivity is (b - a) / n for a public n, else (b - a) / 2 (T-E11)."""
  assert neighbours.sensitivity(np.mean, (-1.0, 0.5, 2.0), sizes,
                                adjacency) == pytest.approx(wanted)
  mechanism = mean.BoundedMean(num_examples=3, lower=-1.0, upper=2.0,
                               epsilon=1.0)
  assert mechanism.scale == 1.0  # This is (b - a) / (n epsilon).


@pytest.mark.parametrize('fields, message', [
  ({'lower': 2.0}, 'lower must be below upper, got 2.0 and 1.0'),
  ({'num_examples': 0}, 'num_examples must be an integer >= 1'),
  ({'epsilon': -1.0}, 'epsilon must be a positive number'),
  ({'confidence': 95.0}, 'confidence must lie'),
  ({'interval': 'bayes'}, 'interval must be one of exact, wald')])
def test_refusals(fields, message):
  good = dict(num_examples=3, lower=0.0, upper=1.0, epsilon=1.0)
  with pytest.raises(ValueError, match=message):
    mean.BoundedMean(**{**good, **fields})


def test_another_number_of_records_is_refused():
  mechanism = proportions.proportion(num_examples=3, epsilon=1.0)
  with pytest.raises(ValueError, match='^there must be 3 records'):
    mechanism.release(KEY, jnp.zeros(2))
  with pytest.raises(ValueError, match='count_share must lie'):
    mean.PrivateSizeMean(lower=0.0, upper=1.0, epsilon=1.0, count_share=1.0)


@pytest.mark.parametrize('n', [2, 3, 5])
@pytest.mark.parametrize('ddof', [0, 1])
def test_the_sensitivity_of_a_variance_by_enumeration(n, ddof):
  # The grid holds the ends, and the variance is convex in each record.
  values = np.linspace(-1, 2, 4)
  data = np.array(list(itertools.product(values, repeat=n)))
  variances = np.var(data, axis=1, ddof=ddof).reshape((4,) * n)
  largest = np.max(np.ptp(variances, axis=0))
  assert largest == pytest.approx(mean.variance_sensitivity(
      num_examples=n, lower=-1.0, upper=2.0, ddof=ddof))
