"""Tests privacy losses of sampling against quadrature, enumeration and draws."""

import itertools

import numpy as np
import pytest
from scipy import integrate
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import losses
from dpjax.privacy import sampled_events
from dpjax.privacy.adjacency import Adjacency

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
GRID = 1e-4
EPSILONS = (0.0, 0.05, 0.3, 1.0, 2.0)


def _delta(loss, epsilon):
  values = GRID * (loss.first + np.arange(len(loss.probs)))
  return loss.infinity + float(np.sum(
      loss.probs * np.maximum(-np.expm1(epsilon - values), 0)))


def _call(strike, shift):
  """Returns E (W - strike)_+ of a log-normal W of mean 1."""
  if strike <= 0:
    return 1 - strike
  score = -np.log(strike) / shift
  return stats.norm.cdf(score + shift / 2) - strike * stats.norm.cdf(
      score - shift / 2)


def _of_two_steps(noise, epsilon):
  """Returns exact deltas of two steps, by quadrature over one of them."""
  shift, order = 1 / noise, np.exp(epsilon)

  def mean(payoff):
    return integrate.quad(
        lambda x: stats.norm.pdf(x) * payoff(np.exp(shift * x - shift**2 / 2)),
        -12, 12, limit=400, epsabs=1e-13, epsrel=1e-11)[0]

  removed = mean(lambda w: _call(2 * order - w, shift) / 2)
  # A put from a call: (k - W)_+ = (W - k)_+ - W + k.
  added = mean(lambda w: order / 2 * max(_call(2 / order - w, shift) - 1
                                         + 2 / order - w, 0))
  return removed, added


@pytest.mark.sound
@pytest.mark.parametrize('noise', [0.7, 1.0, 3.0])
def test_two_steps_are_bounded_and_bounds_are_tight(noise):
  bounds = losses.random_allocation(noise_multiplier=noise, num_steps=2,
                                    interval=GRID)
  for epsilon in EPSILONS:
    for bound, exact in zip(bounds, _of_two_steps(noise, epsilon),
                            strict=True):
      assert _delta(bound, epsilon) >= exact * (1 - 1e-9) - 1e-13
      # Ratios near 0 are rounded to 0, with the probability of the square.
      slack = 1e-7 if noise < 1 else 1e-10
      assert _delta(bound, epsilon) <= exact * 1.005 + slack


def _ratios(rng, noise, steps, count, held):
  """Draws averages of likelihood ratios, with the record or without it."""
  x = noise * rng.normal(size=(count, steps))
  x[:, 0] += held
  return np.mean(np.exp((x - 0.5) / noise**2), 1)


@pytest.mark.sound
@pytest.mark.parametrize('noise, steps, epochs', [
    (1.0, 20, 1), (0.6, 20, 1), (2.0, 10, 3)])
def test_events_agree_with_draws_of_the_loss(noise, steps, epochs):
  """False alarms: 10 comparisons at 6 standard errors, 2e-8 together."""
  rng = np.random.default_rng(1)
  event = accounting.repeated_event(sampled_events.allocation_event(
      noise_multiplier=noise, num_steps=steps), epochs)
  count = 50_000
  held, free = (np.prod([_ratios(rng, noise, steps, count, held)
                         for _ in range(epochs)], 0) for held in (1.0, 0.0))
  for epsilon in EPSILONS:
    bound = accounting.delta_for(event, target_epsilon=epsilon, adjacency=ADD)
    drawn = [np.maximum(1 - np.exp(epsilon) / held, 0),
             np.maximum(1 - np.exp(epsilon) * free, 0)]
    largest = max(drawn, key=np.mean)
    error = 6 * np.std(largest) / count**0.5 + 30 / count**1.5
    assert np.mean(largest) <= bound + error
    assert bound <= 1.01 * np.mean(largest) + error


@pytest.mark.sound
@pytest.mark.parametrize('noise, steps, epsilon, shift', [
    (1.0, 10, 3.0, 5.5), (0.6, 30, 5.0, 4.5)])
def test_small_deltas_by_importance_sampling(noise, steps, epsilon, shift):
  """The record's step is drawn with a larger mean, and weighted.

  False alarms: 2 comparisons at 6 standard errors, 4e-9 together.
  """
  rng, count = np.random.default_rng(3), 200_000
  x = noise * rng.normal(size=(count, steps))
  x[:, 0] += shift
  weights = np.exp(((x[:, 0] - shift)**2 - (x[:, 0] - 1)**2) / (2 * noise**2))
  ratios = np.mean(np.exp((x - 0.5) / noise**2), 1)
  drawn = weights * np.maximum(1 - np.exp(epsilon) / ratios, 0)
  error = 6 * np.std(drawn) / count**0.5
  removed, _ = losses.random_allocation(noise_multiplier=noise,
                                        num_steps=steps, interval=GRID)
  bound = _delta(removed, epsilon)
  assert 1e-9 < bound < 1e-4
  assert np.mean(drawn) - error <= bound <= 1.1 * np.mean(drawn) + error


@pytest.mark.sound
@pytest.mark.parametrize('noise, steps', [(0.5, 10), (1.0, 100), (4.0, 1000)])
def test_allocation_costs_less_than_one_step_of_all_and_than_poisson(
    noise, steps):
  spent = lambda event: accounting.epsilon(event, delta=1e-6, adjacency=ADD)
  allocated = spent(sampled_events.allocation_event(
      noise_multiplier=noise, num_steps=steps))
  whole = spent(accounting.gaussian_event(noise_multiplier=noise))
  poisson = spent(accounting.poisson_gaussian_event(
      sampling_prob=1 / steps, noise_multiplier=noise, num_steps=steps))
  assert 0.05 * poisson < allocated < 1.02 * poisson
  assert allocated < whole


def test_an_allocation_to_one_step_is_that_step():
  assert sampled_events.allocation_event(
      noise_multiplier=2.0, num_steps=1) == accounting.gaussian_event(
          noise_multiplier=2.0)


def test_allocation_is_refused_where_it_is_not_covered():
  event = sampled_events.allocation_event(noise_multiplier=1.0, num_steps=9)
  for adjacency, accountant in ((REPLACE, 'pld'), (REPLACE, 'rdp'),
                                (ADD, 'rdp')):
    with pytest.raises(ValueError, match='accountant does not cover'):
      accounting.epsilon(event, delta=1e-5, adjacency=adjacency,
                         accountant=accountant)


def _mixture(records, size, noise, grid):
  """Returns the density of a noisy sum over a uniform subset of records."""
  subsets = list(itertools.combinations(records, size))
  return np.mean([stats.norm.pdf(grid, sum(subset), noise)
                  for subset in subsets], 0)


@pytest.mark.sound
@pytest.mark.parametrize('size, noise', [(1, 1.0), (2, 1.5), (2, 4.0)])
def test_fixed_sizes_by_enumeration(size, noise):
  """All neighbours of three numbers of size 1 are covered, one pair exactly."""
  first, deltas = losses.fixed_size_deltas(
      noise_multiplier=noise, sampling_prob=size / 3, interval=0.1)
  grid = np.linspace(-60, 60, 60_001)
  width = grid[1] - grid[0]
  epsilons = 0.1 * (first + np.arange(len(deltas)))
  shown = np.abs(epsilons) < 3
  attained = np.zeros(np.sum(shown))
  for rest in itertools.product((-1.0, 0.0, 1.0), repeat=2):
    for own, other in itertools.permutations((-1.0, 0.0, 1.0), 2):
      p, q = (_mixture((value, *rest), size, noise, grid)
              for value in (own, other))
      exact = np.array([width * np.sum(np.maximum(p - np.exp(e) * q, 0))
                        for e in epsilons[shown]])
      # The sum over the grid errs by its spacing squared, at the kink.
      assert np.all(exact <= deltas[shown] + 2e-7)
      attained = np.maximum(attained, exact)
  if size == 1:
    positive = epsilons[shown] >= 0
    np.testing.assert_allclose(attained[positive], deltas[shown][positive],
                               rtol=1e-6, atol=2e-7)


@pytest.mark.sound
@pytest.mark.parametrize('steps', [1, 30])
def test_fixed_sizes_cost_less_than_the_renyi_bound(steps):
  event = accounting.repeated_event(sampled_events.fixed_size_event(
      num_examples=1000, batch_size=50, noise_multiplier=2.0), steps)
  spent = {name: accounting.epsilon(event, delta=1e-5, adjacency=REPLACE,
                                    accountant=name)
           for name in accounting.ACCOUNTANTS}
  one_way = accounting.epsilon(accounting.poisson_gaussian_event(
      sampling_prob=0.05, noise_multiplier=1.0, num_steps=steps),
                               delta=1e-5, adjacency=ADD)
  # Both directions at once cost at least as much as the worse one.
  assert one_way * 0.999 <= spent['pld'] <= spent['rdp']
  with pytest.raises(ValueError, match='accountant does not cover'):
    accounting.epsilon(event, delta=1e-5, adjacency=ADD)


def test_a_batch_of_all_records_is_no_sample():
  event = sampled_events.fixed_size_event(
      num_examples=7, batch_size=7, noise_multiplier=2.0)
  assert event == accounting.gaussian_event(noise_multiplier=2.0)
