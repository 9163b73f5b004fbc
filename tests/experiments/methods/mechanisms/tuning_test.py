"""These tests compare tuning with golden numbers and enumerated searches."""

import functools
import math

import jax
import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy import divergences
from dpjax.privacy.adjacency import Adjacency
from experiments.methods.mechanisms import tuning

ADD = Adjacency.ADD_OR_REMOVE_ONE


@functools.cache
def trial():
  return accounting.poisson_gaussian_event(
      sampling_prob=.00853, noise_multiplier=2., num_steps=4688)


def spend(event):
  return accounting.epsilon(event, delta=1e-5, adjacency=ADD,
                            accountant='rdp')


@pytest.mark.parametrize('num_trials, epsilon', [
  (1, 1.309), (20, 6.970), (50, 12.08)])
def test_golden_numbers_of_all_trials(num_trials, epsilon):
  """All trials of a search cost the golden epsilons (DP-21).

  Ignoring the search would report the cost of one trial (E30).
  """
  event = tuning.all_trials_event(trial(), num_trials=num_trials)
  assert spend(event) == pytest.approx(epsilon, rel=4e-4)


@pytest.mark.every(3)
@pytest.mark.parametrize('shape', [0., .5, 1., 3.])
def test_a_random_number_of_trials_costs_far_less(shape):
  """A random number of trials costs far less
  than all, more than one (DP-21, E30)."""
  twenty = spend(tuning.best_trial_event(trial(), mean=20., shape=shape))
  fifty = spend(tuning.best_trial_event(trial(), mean=50., shape=shape))
  assert 1.309 * 1.5 < twenty < fifty < 5.


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
  trial_probs = tuning.num_trials_probs(mean=mean, shape=shape)
  p_best, q_best = (best_of_random(side, trial_probs) for side in (p, q))
  for pair in ((p_best, q_best), (q_best, p_best)):
    exact = divergences.renyi(*pair, order=order)
    trial_loss = lambda a: max(divergences.renyi(p, q, order=a),
                               divergences.renyi(q, p, order=a))
    stop = stop_prob(mean, shape)
    constant = min(
        (1 - 1 / a) * trial_loss(a) - math.log(stop) / a
        for a in np.geomspace(1.01, 1e4, 200))
    bound = (trial_loss(order) + math.log(mean) / (order - 1) +
             (1 + shape) * constant)
    assert exact <= bound + 1e-9


def stop_prob(mean, shape):
  """Returns the stopping parameter from the first two probabilities."""
  first, second = tuning.num_trials_probs(mean=mean, shape=shape)[:2]
  factor = .5 if shape == 0 else (1 + shape) / 2
  return 1 - second / first / factor


@pytest.mark.parametrize('mean', [1.5, 4., 60.])
@pytest.mark.parametrize('shape', [0., .5, 1., 2.5])
def test_distribution_of_the_number_of_trials(mean, shape):
  probs = tuning.num_trials_probs(mean=mean, shape=shape)
  numbers = np.arange(1, probs.size + 1)
  assert probs.sum() == pytest.approx(1, abs=1e-11)
  assert probs @ numbers == pytest.approx(mean, rel=1e-6)
  # The distribution has the recursion (1 - g) (k + shape) / (k + 1).
  stop = stop_prob(mean, shape)
  ratio = (1 - stop) * (numbers[:-1] + shape) / (numbers[:-1] + 1)
  kept = probs[1:] > 1e-14
  np.testing.assert_allclose((probs[1:] / probs[:-1])[kept], ratio[kept],
                             rtol=1e-6)
  assert tuning.expected_num_trials(
      stop_prob=stop, shape=shape) == pytest.approx(mean, rel=1e-6)


def test_geometric():
  probs = tuning.num_trials_probs(mean=5., shape=1.)
  np.testing.assert_allclose(probs[:10], .2 * .8**np.arange(10), rtol=1e-9)
  assert tuning.expected_num_trials(stop_prob=1., shape=0.) == 1.


@pytest.mark.every(2)
def test_draws_follow_the_distribution():
  """Drawn numbers of trials follow the distribution (Kolmogorov-Smirnov).

  With 500 draws a false alarm has probability 1e-6.
  """
  probs = tuning.num_trials_probs(mean=6., shape=.5)
  numbers = [tuning.draw_num_trials(key, mean=6., shape=.5)
             for key in jax.random.split(jax.random.key(0), 500)]
  assert min(numbers) >= 1
  shares = np.cumsum(np.bincount(numbers, minlength=probs.size + 1)[1:]) / 500
  assert np.abs(shares[:probs.size] - np.cumsum(probs)).max() < 2.7 / 500**.5


def test_both_words_of_a_draw_count(monkeypatch):
  """Both random words count, just below and above each step of the table."""
  probs = tuning.num_trials_probs(mean=6., shape=.5)
  for number, level in enumerate(np.cumsum(probs)[:9], 1):
    place = int(level * 2.0**64)
    for shift, wanted in ((-2**16, number), (2**16, number + 1)):
      monkeypatch.setattr(
        jax.random, 'bits', lambda key, shape, dtype, word=place + shift:
        np.array(divmod(word, 2**32), dtype))
      assert tuning.draw_num_trials(None, mean=6., shape=.5) == wanted
  # The largest word still falls into the table.
  monkeypatch.setattr(jax.random, 'bits', lambda key, shape, dtype:
                      np.full(shape, 2**32 - 1, dtype))
  assert tuning.draw_num_trials(None, mean=6., shape=.5) == probs.size


@pytest.mark.parametrize('call, message', [
  (lambda e: tuning.all_trials_event(e, num_trials=0), 'num_trials must be an'),
  (lambda e: tuning.best_trial_event(e, mean=1., shape=1.), 'mean must be a num'
   'ber > 1, got 1.0'),
  (lambda e: tuning.best_trial_event(e, mean=2., shape=-1.), 'shape must be a '),
  (lambda e: tuning.num_trials_probs(mean=1e7, shape=0.), 'a mean of 1000000'),
  (lambda e: tuning.expected_num_trials(stop_prob=0., shape=1.), 'stop_prob '),
  (lambda e: accounting.epsilon(
      tuning.best_trial_event(e, mean=2., shape=1.), delta=1e-5,
      adjacency=ADD), 'the pld accountant does not cover RepeatAndSelect'),
])
def test_refusals(call, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    call(trial())
