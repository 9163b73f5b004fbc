"""Tests dpjax.stats.frequencies: goldens, projection, risks, coverage."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from dpjax.privacy import local
from dpjax.privacy import mechanism
from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import frequencies

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE
KEY = jax.random.key(0)


def coverage(estimates, probs):
  low, high = np.asarray(estimates.low), np.asarray(estimates.high)
  return np.mean((low <= probs) & (probs <= high))


def projected(values):
  """Returns the projection by its definition: a threshold of sum 1."""
  level = optimize.brentq(lambda t: np.maximum(values - t, 0).sum() - 1,
                          values.max() - 1, values.max())
  return np.maximum(values - level, 0)


@pytest.mark.slow
@pytest.mark.parametrize('size', [1, 2, 7, 300])
def test_projection(size):
  rng = np.random.default_rng(0)
  many = [rng.normal(size=size), 5 * rng.normal(size=size) - 3,
          np.full(size, 0.2), rng.dirichlet(np.ones(size))]
  actual = jax.vmap(frequencies.project_on_simplex)(
    jnp.asarray(np.stack(many), jnp.float32))
  np.testing.assert_allclose(actual, [projected(v) for v in many], atol=2e-5)
  np.testing.assert_allclose(np.sum(actual, 1), 1, atol=1e-4)
  assert np.min(actual) >= 0


@pytest.mark.parametrize('categories, people, epsilon, raw, after', [
  (10, 1000, 1.0, 0.00098, 0.00098), (1000, 1000, 1.0, 0.00900, 0.00312),
  (100, 500, 0.1, 0.32198, 0.0667)])
def test_golden_risks(categories, people, epsilon, raw, after):
  """Risks match MECH-10 on uniform populations, within 4 % in 1000 runs."""
  mechanism = frequencies.laplace(num_categories=categories,
                                  num_examples=people, epsilon=epsilon,
                                  adjacency=REPLACE)
  uniform = np.full(categories, 1 / categories)
  assert mechanism.population_risk(uniform) == pytest.approx(raw, rel=6e-3)
  rng = np.random.default_rng(3)
  counts = rng.multinomial(people, uniform, 1000) / people
  noise = rng.laplace(scale=2 / (people * epsilon), size=counts.shape)
  values = jnp.asarray(counts + noise, jnp.float32)
  better = jax.jit(jax.vmap(frequencies.project_on_simplex))(values)
  before, now = (np.sum(np.square(np.float64(each) - uniform), 1)
                 for each in (values, better))
  np.testing.assert_allclose([before.mean(), now.mean()], [raw, after],
                             rtol=0.04)
  # Each projection is nearer to any distribution than before.
  assert np.all(now <= before * (1 + 1e-4))


@pytest.mark.every(2)
@pytest.mark.parametrize('categories', [2, 70])
def test_counts(categories):
  data = np.random.default_rng(0).integers(-1, categories + 1, 200)
  counted = frequencies.count(jnp.asarray(data, jnp.int32), categories)
  np.testing.assert_array_equal(counted, [np.sum(data == k)
                                          for k in range(categories)])
  assert counted.dtype == jnp.float32


def test_sensitivities_by_enumeration():
  """Sensitivities match table 0.2: 2 and sqrt(2) replacing, 1 and 1 adding."""
  counts = lambda data: np.bincount(np.array(data, int), minlength=3)
  for adjacency, one, two in ((REPLACE, 2, 2**0.5), (ADD, 1, 1)):
    sensitivities = [
        neighbours.sensitivity(counts, range(3), [0, 1, 2, 3], adjacency,
                               order=order) for order in (1, 2)
    ]
    np.testing.assert_allclose(sensitivities, [one, two])
    public = 9 if adjacency is REPLACE else None
    laplace = frequencies.laplace(num_categories=3, num_examples=public,
                                  epsilon=0.5, adjacency=adjacency)
    gauss = frequencies.gaussian(num_categories=3, num_examples=public,
                                 rho=0.3, adjacency=adjacency)
    assert laplace.counts.l1_sensitivity == pytest.approx(one)
    assert laplace.counts.scale == pytest.approx(one / 0.5)
    assert gauss.counts.l2_sensitivity == pytest.approx(two)
    assert gauss.counts.stddev**2 == pytest.approx(two**2 / 0.6)
    assert mechanism.epsilon(laplace, delta=1e-12) == pytest.approx(
      0.5, abs=1e-3)
    # The cost is rho-zCDP, by the exact Gaussian of that rho.
    same = frequencies.gaussian(num_categories=3, num_examples=4, rho=0.3,
                                adjacency=REPLACE)
    assert mechanism.epsilon(gauss, delta=1e-5) == pytest.approx(
      mechanism.epsilon(same, delta=1e-5), abs=2e-4)


@pytest.mark.every(2)
@pytest.mark.parametrize('make, adjacency', [
  (lambda **f: frequencies.laplace(epsilon=0.3, **f), REPLACE),
  (lambda **f: frequencies.gaussian(rho=0.02, **f), REPLACE),
  (lambda **f: frequencies.laplace(epsilon=0.3, **f), ADD)])
def test_coverage_and_risk_of_releases(make, adjacency):
  """Releases cover at 0.95 with the stated risk, in 4000 repetitions."""
  probs = np.array([0.6, 0.3, 0.1])
  mechanism = make(num_categories=3, adjacency=adjacency,
                   num_examples=200 if adjacency is REPLACE else None)
  data = np.random.default_rng(5).choice(3, (4000, 200), p=probs)
  estimates = jax.jit(jax.vmap(mechanism.release))(
    jax.random.split(KEY, 4000), jnp.asarray(data, jnp.int32))
  assert coverage(estimates, probs) == pytest.approx(0.95, abs=0.012)
  squares = np.sum(np.square(np.float64(estimates.value) - probs), 1)
  if adjacency is REPLACE:
    assert squares.mean() == pytest.approx(
      mechanism.population_risk(probs), abs=4 * squares.std() / 4000**0.5)
  else:
    assert mechanism.risk(3) is None
    with pytest.raises(ValueError, match='no closed form'):
      mechanism.population_risk(probs)


def test_trust_is_worth_a_factor_of_the_number_of_people():
  """Local privacy costs a factor of the number of people (LDP-08, L-E13)."""
  people, uniform = 10**4, np.full(10, 0.1)
  shared = dict(num_categories=10, epsilon=1.0)
  crowd = local.RandomizedResponse(**shared)
  replaced = frequencies.laplace(num_examples=people, adjacency=REPLACE,
                                 **shared)
  assert replaced.risk(10) == pytest.approx(8e-7)
  added = frequencies.laplace(adjacency=ADD, **shared)
  assert added.counts.risk(10) / people**2 == pytest.approx(2e-7)
  assert frequencies.local_risk(crowd, uniform, people) == pytest.approx(
    4.0958e-3, rel=1e-4)
  # Records vary too, which adds the population's spread.
  population = frequencies.local_population_risk(crowd, uniform, people)
  assert population == pytest.approx(4.0958e-3 + 0.9 / people, rel=1e-4)


@pytest.mark.every(2)
def test_answers_are_turned_into_frequencies():
  """Frequencies are answers' shares, less lies, over the truth's surplus."""
  crowd = local.RandomizedResponse(num_categories=3, epsilon=1.2)
  answers = jnp.asarray([0] * 40 + [1] * 50 + [2] * 10, jnp.int8)
  estimates = frequencies.local(crowd, answers, confidence=0.9)
  apart = crowd.truth_prob - crowd.other_prob
  shares = np.array([0.4, 0.5, 0.1])
  wanted = (shares - crowd.other_prob) / apart
  np.testing.assert_allclose(estimates.value, wanted, atol=1e-6)
  half = 1.6448536 * np.sqrt(shares * (1 - shares) / 100) / apart
  np.testing.assert_allclose(estimates.low, np.clip(wanted - half, 0, 1),
                             atol=1e-5)
  np.testing.assert_allclose(estimates.high, np.clip(wanted + half, 0, 1),
                             atol=1e-5)


@pytest.mark.slow
def test_answers_of_people_who_trust_nobody():
  """Local answers cover within 0.01 of 0.95, with the stated risk (LDP-07)."""
  crowd = local.RandomizedResponse(num_categories=5, epsilon=1.0)
  probs = np.array([0.4, 0.3, 0.2, 0.1, 0.0])
  seen = crowd.other_prob + (crowd.truth_prob - crowd.other_prob) * probs
  rng = np.random.default_rng(9)
  answers = jnp.asarray(rng.choice(5, (2000, 3000), p=seen), jnp.int8)
  estimates = jax.jit(jax.vmap(lambda a: frequencies.local(crowd, a)))(answers)
  assert coverage(estimates, probs) == pytest.approx(0.95, abs=0.01)
  squares = np.sum(np.square(np.float64(estimates.value) - probs), 1)
  assert squares.mean() == pytest.approx(
    frequencies.local_population_risk(crowd, probs, 3000),
    abs=4 * squares.std() / 2000**0.5)


@pytest.mark.parametrize('fields, message', [
  ({'adjacency': REPLACE}, 'num_examples must be given under replace_one'),
  ({'adjacency': ADD, 'num_examples': 4}, 'num_examples is private under'),
  ({'adjacency': ADD, 'epsilon': 0.0}, 'epsilon must be a positive'),
  ({'adjacency': ADD, 'num_categories': 0}, 'num_categories must be')])
def test_refusals(fields, message):
  with pytest.raises(ValueError, match=message):
    frequencies.laplace(**{'num_categories': 2, 'epsilon': 1.0, **fields})
