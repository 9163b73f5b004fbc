"""Tests dpjax.stats.support and risks: which estimators are consistent."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.theory.parametric import supports
from experiments.methods.statistics import doubled_means
from experiments.methods.statistics import local_queries as queries
from experiments.methods.statistics import risks
from experiments.methods.statistics import support_queries

REPLACE = Adjacency.REPLACE_ONE
KEY = jax.random.key(31)
THETA, PEOPLE, EPSILON = 0.7, 1000, 1.0
REPETITIONS = 3000


def squared(estimate):
  """Returns (squared error, whether the interval holds the truth)."""
  return jnp.stack([jnp.square(estimate.value - THETA), jnp.float32(
    (estimate.low <= THETA) & (THETA <= estimate.high))])


@functools.cache
def risk_of_all():
  """Returns risk and coverage of each estimator, in 4000 repetitions."""
  mean = doubled_means.DoubledMean(num_examples=PEOPLE, epsilon=EPSILON)
  noisy = supports.NoisyMaximum(epsilon=EPSILON, adjacency=REPLACE)
  answers = support_queries.local_answers(epsilon=EPSILON)

  def estimate(key, data):
    first, second, third = jax.random.split(key, 3)
    said = answers.release(third, data - 0.5)
    top = support_queries.local_maximum(said)
    return {
      'largest': squared(doubled_means.largest(data)),
      'doubled': squared(doubled_means.doubled_mean(data)),
      'noisy_doubled': squared(mean.release(first, data)),
      'local_doubled': squared(support_queries.local_doubled_mean(
        said, epsilon=EPSILON)),
      'noisy_maximum': jnp.stack([jnp.square(noisy.release(
        second, data) - THETA)] * 2),
      'local_maximum': jnp.stack([top, jnp.square(top)])}

  summaries = jax.jit(lambda key: risks.monte_carlo(
    lambda costs: jnp.stack(list(costs.values())), estimate,
    lambda k: jax.random.uniform(k, (PEOPLE,), maxval=THETA), key=key,
    num_repetitions=REPETITIONS))(KEY)
  names = ('largest', 'doubled', 'noisy_doubled', 'local_doubled',
           'noisy_maximum', 'local_maximum')
  return {
      name: (np.float64(summaries.mean[i]),
             np.float64(summaries.standard_error[i])
            ) for i, name in enumerate(names)
  }


@pytest.mark.slow
@pytest.mark.parametrize('name, risk, coverage', [
  ('largest', THETA**2 / (PEOPLE * (PEOPLE + 2)), 0.9517),
  ('doubled', THETA**2 / (3 * PEOPLE), 0.950),
  ('noisy_doubled', 1.7133e-4, 0.950), ('local_doubled', 8.163e-3, 0.949)])
def test_risks_and_coverage(name, risk, coverage):
  """Estimators have the stated risk and coverage (EST-04, EST-05b, EST-06b)."""
  (mean_error, covered), (error, _) = risk_of_all()[name]
  assert mean_error == pytest.approx(risk, abs=4 * error)
  assert covered == pytest.approx(
    coverage, abs=0.002 + 4 * math.sqrt(0.95 * 0.05 / REPETITIONS))


@pytest.mark.every(2)
def test_maxima_are_not_consistent():
  """Noisy and local maxima do not converge: 2.0000, and
  7.16 for 0.7 (L-E15)."""
  (mean_error, _), (error, _) = risk_of_all()['noisy_maximum']
  assert mean_error == pytest.approx(2.0, abs=4 * error)
  (mean, square), (error, _) = risk_of_all()['local_maximum']
  predicted = support_queries.local_maximum_mean(THETA, num_examples=PEOPLE,
                                                 epsilon=EPSILON)
  assert predicted == pytest.approx(7.16, abs=5e-3)
  assert mean == pytest.approx(predicted, abs=0.03 + 4 * error)
  assert math.sqrt(square - mean**2) == pytest.approx(1.28, abs=0.08)
  for people in (10**4, 10**6):
    assert support_queries.local_maximum_mean(
      THETA, num_examples=people, epsilon=EPSILON) > predicted + 2


def test_closed_forms():
  estimator = doubled_means.DoubledMean(num_examples=PEOPLE, epsilon=EPSILON)
  assert estimator.population_risk(THETA) == pytest.approx(1.7133e-4, rel=1e-4)
  assert support_queries.local_doubled_mean_risk(
    THETA, num_examples=PEOPLE, epsilon=EPSILON) == pytest.approx(8.163e-3,
                                                                  rel=1e-3)
  assert support_queries.local_answers(epsilon=2.0).scale == pytest.approx(0.5)
  # EST-08: noise reverses the order of maximum and mean.
  noisy = supports.NoisyMaximum(epsilon=EPSILON, adjacency=REPLACE)
  assert noisy.risk(1) > estimator.population_risk(1.0)
  assert THETA**2 / (PEOPLE * (PEOPLE + 2)) < THETA**2 / (3 * PEOPLE)


@pytest.mark.slow
def test_a_quantile_near_the_top_recovers_the_rate():
  """A high quantile has an error of order ln(n) / (n epsilon) (EST-05c)."""
  errors = {}
  for people in (500, 5000):
    estimator = doubled_means.top_quantile(num_examples=people, epsilon=EPSILON)

    def once(key, estimator=estimator, people=people):
      data, noise = jax.random.split(key)
      records = jax.random.uniform(data, (people,), maxval=THETA)
      return jnp.square(
          estimator.release(noise, records) / estimator.prob - THETA)

    squares = jax.jit(jax.vmap(once))(jax.random.split(KEY, 200))
    errors[people] = float(jnp.sqrt(jnp.mean(squares)))
    assert errors[people] < 2 * math.log(people) / (people * EPSILON)
  assert errors[5000] < 0.25 * errors[500]
  assert doubled_means.top_quantile(num_examples=4, epsilon=0.1).prob == 0.5


@pytest.mark.slow
def test_bisection_by_people_who_answer_once():
  """Bisection by people who answer once holds the truth (EST-06c, EST-07)."""
  oracle = queries.LocalOracle(num_queries=4, tolerance=0.15, failure_prob=0.05,
                               epsilon=2.0)
  records = jax.random.uniform(KEY, (oracle.num_examples,), maxval=THETA)
  for seed in range(2):
    interval = support_queries.by_queries(oracle, jax.random.key(seed), records)
    assert interval.low <= THETA <= interval.high
    assert abs(interval.value - THETA) <= 2 * 0.15 * THETA + 2**-5
  assert support_queries.by_one_query(
      jnp.float32(THETA / 2 + 0.1)) == pytest.approx(
    THETA + 0.2)


@pytest.mark.every(2)
def test_a_private_learner_generalises():
  """A private mean has E R <= E R_n + e^epsilon - 1 + delta (INT-05)."""
  assert risks.gap_bound(epsilon=0.1, delta=1e-5) == pytest.approx(0.10518,
                                                                   abs=1e-5)
  people, epsilon = 20, 0.1
  estimator = doubled_means.DoubledMean(num_examples=people, epsilon=epsilon)
  loss = lambda prediction, record: jnp.clip(
    jnp.abs(prediction - record), 0.0, 1.0)

  def gap(key, data):
    prediction = jnp.clip(estimator.release(key, data).value / 2, 0.0, 1.0)
    fresh = jnp.linspace(0.0005, 0.9995, 1000)
    return (risks.empirical_risk(loss, prediction, fresh)
            - risks.empirical_risk(loss, prediction, data))

  estimate = jax.jit(lambda key: risks.monte_carlo(
    lambda value: value, gap, lambda k: jax.random.uniform(k, (people,)),
    key=key, num_repetitions=2000))(KEY)
  assert abs(estimate.mean) <= risks.gap_bound(epsilon=epsilon) + 4 * float(
    estimate.standard_error)
  # Without privacy the best fit does not generalise: it repeats records.
  assert float(risks.empirical_risk(loss, 0.25, jnp.array([0.25, 0.75]))) == (
    0.25)


@pytest.mark.parametrize('call, message', [
  (lambda: risks.gap_bound(epsilon=-1.0), 'epsilon must be'),
  (lambda: risks.gap_bound(epsilon=1.0, delta=1.0), 'delta must lie'),
  (lambda: doubled_means.DoubledMean(num_examples=3, epsilon=0.0), 'epsilon must be'),
  (lambda: doubled_means.DoubledMean(num_examples=3, epsilon=1.0, confidence=2.0),
   'confidence must lie'),
  (lambda: supports.NoisyMaximum(epsilon=1.0, adjacency='replace_one'),
   'adjacency must be Adjacency'),
  (lambda: risks.monte_carlo(None, None, None, key=KEY, num_repetitions=1),
   'num_repetitions must be an integer >= 2')])
def test_refusals(call, message):
  with pytest.raises(ValueError, match=message):
    call()


@pytest.mark.slow
def test_data_and_coins_are_independent():
  """Data and noise use own keys, so their product has mean 0, variance 1."""
  product = risks.monte_carlo(
    lambda value: value, lambda key, data: data * jax.random.normal(key),
    jax.random.normal, key=KEY, num_repetitions=1000)
  assert abs(product.mean) < 4 * product.standard_error
  assert product.standard_error == pytest.approx(1000**-0.5, rel=0.25)
