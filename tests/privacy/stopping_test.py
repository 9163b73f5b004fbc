"""These tests compare random numbers of runs with their distributions."""

import math
import random

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import divergences
from dpjax.privacy import stopping as stoppings
from dpjax.privacy.stopping import RandomStopping

SHAPES = (-.5, 0., .5, 1., 2.5, 3.)


def response(epsilon):
  """Returns randomised response on three outcomes; the last is the best."""
  rest = 1 / (2 + math.exp(epsilon))
  best, worst = np.full(3, rest), np.full(3, rest)
  best[2] = worst[0] = 1 - 2 * rest
  return best, worst


def best_of(probs, num_trials):
  """Returns the distribution of the best of independent trials."""
  below = np.concatenate([[0.], np.cumsum(probs)])
  return np.diff(below**num_trials)


def best_of_random(probs, trial_probs):
  return sum(mass * best_of(probs, k + 1) for k, mass in enumerate(trial_probs))


@pytest.mark.parametrize('num_trials', [5, 20])
def test_the_best_of_many_trials_breaks_the_epsilon_of_one(num_trials):
  """The best of many trials exceeds one trial's epsilon, by enumeration (E30).

  The charge for all trials holds.
  """
  p, q = response(.5)
  assert divergences.max_divergence(p, q) == pytest.approx(.5)
  best = [best_of(side, num_trials) for side in (p, q)]
  worst = max(divergences.max_divergence(*best),
              divergences.max_divergence(*best[::-1]))
  assert worst > 1.
  leak = max(divergences.hockey_stick(*best, epsilon=.5),
             divergences.hockey_stick(*best[::-1], epsilon=.5))
  assert leak > 1e-3
  # The charge for all trials holds.
  assert worst <= num_trials * .5 + 1e-9


@pytest.mark.parametrize('mean, shape', [
  (2., 1.), (10., 1.), (10., 0.), (6., .5), (8., 3.)])
@pytest.mark.parametrize('order', [1.5, 2., 5., 16.])
def test_the_theorem_holds_for_enumerated_searches(mean, shape, order):
  """Enumerated searches satisfy Theorem 2 of Papernot and Steinke (2022)."""
  p, q = response(.4)
  stopping = RandomStopping(mean=mean, shape=shape)
  p_best, q_best = (best_of_random(side, stopping.probs()) for side in (p, q))
  for pair in ((p_best, q_best), (q_best, p_best)):
    exact = divergences.renyi(*pair, order=order)
    trial_loss = lambda a: max(divergences.renyi(p, q, order=a),
                               divergences.renyi(q, p, order=a))
    constant = min(
        (1 - 1 / a) * trial_loss(a) - math.log(stopping.stop_prob) / a
        for a in np.geomspace(1.01, 1e4, 200))
    bound = (trial_loss(order) + math.log(mean) / (order - 1) +
             (1 + shape) * constant)
    assert exact <= bound + 1e-9


@pytest.mark.parametrize('mean', [1.5, 4., 60.])
@pytest.mark.parametrize('shape', SHAPES)
def test_distribution_of_the_number_of_runs(mean, shape):
  stopping = RandomStopping(mean=mean, shape=shape)
  probs = stopping.probs()
  numbers = np.arange(1, probs.size + 1)
  assert probs.sum() == pytest.approx(1, abs=1e-11)
  assert probs @ numbers == pytest.approx(mean, rel=1e-6)
  ratio = (1 - stopping.stop_prob) * (numbers[:-1] + shape) / (numbers[:-1] + 1)
  kept = probs[1:] > 1e-14
  np.testing.assert_allclose((probs[1:] / probs[:-1])[kept], ratio[kept],
                             rtol=1e-6)


@pytest.mark.parametrize('shape', [*SHAPES, math.inf])
def test_the_weight_is_the_derivative_of_the_generating_function(shape):
  stopping = RandomStopping(mean=4., shape=shape)
  probs = stopping.probs()
  numbers = np.arange(1, probs.size + 1)
  for better in (0., .01, .3, 1.):
    wanted = probs @ (numbers * (1 - better)**(numbers - 1.))
    assert stopping.weight(np.array(better)) == pytest.approx(wanted, rel=1e-6)


def test_geometric():
  probs = RandomStopping(mean=5.).probs()
  np.testing.assert_allclose(probs[:10], .2 * .8**np.arange(10), rtol=1e-9)
  assert stoppings.expected_num_runs(stop_prob=1., shape=0.) == 1.


def p_value(numbers, stopping):
  """Returns a p-value of a chi-square test; bins expect at least 20 draws."""
  probs = stopping.probs()
  probs = np.concatenate([[max(0., 1 - probs.sum())], probs])
  counts = np.bincount(numbers, minlength=probs.size)
  assert counts.size == probs.size or not counts[probs.size:].any()
  expected = probs * len(numbers)
  last = max(2, int(np.sum(np.cumsum(expected[::-1]) >= 20)) - 1)
  kept = expected[:last] >= 20
  groups = [np.append(values[:last][kept], values[:last][~kept].sum()
                      + values[last:].sum())
            for values in (counts, expected)]
  return stats.chisquare(groups[0], groups[1] * groups[0].sum()
                         / groups[1].sum()).pvalue


@pytest.mark.sound
@pytest.mark.parametrize('shape', [*SHAPES, math.inf])
def test_draws_follow_the_distribution(shape):
  """20,000 draws pass a chi-square test; false alarm 1e-6 for each shape."""
  stopping = RandomStopping(mean=3., shape=shape)
  below = random.Random(3).randrange
  numbers = [stopping.draw(below) for _ in range(20_000)]
  assert min(numbers) >= (0 if stopping.is_poisson else 1)
  assert p_value(numbers, stopping) > 1e-6


def test_draws_of_keys_follow_the_distribution():
  """400 draws from keys pass a chi-square test; false alarm 1e-6."""
  stopping = RandomStopping(mean=2.)
  numbers = [stopping.draw_number(key)
             for key in jax.random.split(jax.random.key(0), 400)]
  assert p_value(numbers, stopping) > 1e-6
  assert stopping.draw_number(jax.random.key(4)) == stopping.draw_number(
    jax.random.key(4))


@pytest.mark.parametrize('bound', [1, 2, 3, 2**32, 2**32 + 1, 3**50])
def test_integers_of_keys_are_below_their_bound(bound):
  below = stoppings.integers_of(jax.random.key(1))
  drawn = [below(bound) for _ in range(20)]
  assert 0 <= min(drawn) and max(drawn) < bound
  assert bound == 1 or len(set(drawn)) > 1
  assert bound < 2**40 or len(set(drawn)) == 20


@pytest.mark.parametrize('fields, message', [
  (dict(mean=1.), 'mean must be a number > 1, got 1.0'),
  (dict(mean=0., shape=math.inf), 'mean must be a number > 0, got 0.0'),
  (dict(mean=2., shape=-1.), 'shape must be > -1, got -1.0'),
  (dict(mean=2., shape=math.nan), 'shape must be > -1, got nan'),
  (dict(mean=1e5, shape=-.99), 'a mean of 100000.0 needs a shape further'),
])
def test_refusals(fields, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    RandomStopping(**fields)


def test_a_table_that_is_too_long_is_refused():
  with pytest.raises(ValueError, match='^a mean of 1000000'):
    RandomStopping(mean=1e7, shape=0.).probs()
