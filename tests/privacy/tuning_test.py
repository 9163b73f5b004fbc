"""These tests compare the cost of choosing with enumerated best runs.

The output distribution of the best of a random number of runs is computed
exactly, from the generating function of the number.
"""

import functools
import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import divergences
from dpjax.privacy import notions
from dpjax.privacy import tuning
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.stopping import RandomStopping

ADD = Adjacency.ADD_OR_REMOVE_ONE
STOPPINGS = (
  RandomStopping(mean=2., shape=1.), RandomStopping(mean=20., shape=1.),
  RandomStopping(mean=20., shape=0.), RandomStopping(mean=6., shape=-.5),
  RandomStopping(mean=8., shape=3.), RandomStopping(mean=.7, shape=math.inf),
  RandomStopping(mean=10., shape=math.inf))


@functools.cache
def trial():
  return accounting.poisson_gaussian_event(
      sampling_prob=.00853, noise_multiplier=2., num_steps=4688)


def spend(event, accountant='rdp'):
  return accounting.epsilon(event, delta=1e-5, adjacency=ADD,
                            accountant=accountant)


@pytest.mark.parametrize('num_runs, epsilon', [
  (1, 1.309), (20, 6.970), (50, 12.08)])
def test_golden_numbers_of_all_trials(num_runs, epsilon):
  """All trials of a search cost the golden epsilons (DP-21).

  Ignoring the search would report the cost of one trial (E30).
  """
  event = tuning.all_runs_event([trial()] * num_runs)
  assert spend(event) == pytest.approx(epsilon, rel=4e-4)


def generating(stopping, s):
  """Returns E s^N; the closed forms do not share code with `weight`."""
  if stopping.is_poisson:
    return np.exp(stopping.mean * (s - 1))
  stop, shape = stopping.stop_prob, stopping.shape
  if shape == 0:
    return np.log1p(-(1 - stop) * s) / math.log(stop)
  return (np.power(1 - (1 - stop) * s, -shape) - 1) / (stop**-shape - 1)


def best_of(probs, stopping):
  """Returns the distribution of the best run; no run at all comes last."""
  below = np.minimum(np.concatenate([[0.], np.cumsum(probs)]), 1.)
  masses = np.maximum(np.diff(generating(stopping, below)), 0.)
  return (np.append(masses, math.exp(-stopping.mean)) if stopping.is_poisson
          else masses)


def exact_profile(p, q):
  epsilons = np.linspace(0., np.abs(np.log(p / q)).max(), 300)
  return tuning.Profile(epsilons, np.array([
    max(divergences.hockey_stick(p, q, epsilon=epsilon),
        divergences.hockey_stick(q, p, epsilon=epsilon))
    for epsilon in epsilons]))


def pairs():
  """Returns pairs of distributions on four outputs, some very unequal."""
  rng = np.random.default_rng(5)
  for concentration in (.3, 1., 5.):
    for _ in range(3):
      p, q = rng.dirichlet(np.full(4, concentration), 2) + 1e-6
      yield p / p.sum(), q / q.sum()
  yield np.array([.6, .3, .1 - 1e-6, 1e-6]), np.array([.3, .6, .05, .05])


def excess(p, q, stopping):
  """Returns by how much the best run exceeds its delta, over all orders."""
  selection, worst = tuning.BestRun(exact_profile(p, q), stopping), -math.inf
  deltas = {e: selection.delta(e) for e in (0., .1, .5, 1., 2., 4., 6., 8.)}
  for order in itertools.permutations(range(len(p))):
    sides = [best_of(side[list(order)], stopping) for side in (p, q)]
    for first, second in (sides, sides[::-1]):
      for epsilon, delta in deltas.items():
        worst = max(worst, divergences.hockey_stick(
          first, second, epsilon=epsilon) - delta)
  return worst


@pytest.mark.sound
@pytest.mark.parametrize('stopping', STOPPINGS, ids=str)
def test_enumerated_best_runs_are_covered(stopping):
  """No order of outputs gives a best run that costs more (DP-21)."""
  for p, q in pairs():
    assert excess(p, q, stopping) <= 0


@pytest.mark.every(8)
@pytest.mark.parametrize('stopping', STOPPINGS[1:6], ids=str)
def test_simulated_best_runs_have_the_enumerated_distribution(stopping):
  """10,000 searches pass a chi-square test; false alarm 1e-6 for each."""
  probs = np.array([.5, .2, .2, .1])
  rng, below = np.random.default_rng(1), random.Random(1).randrange
  # Outputs are numbers, of which the largest is the best.
  chosen = [max(rng.choice(4, size=number, p=probs)) if number else 4
            for number in (stopping.draw(below) for _ in range(10_000))]
  expected = 10_000 * best_of(probs, stopping)
  counts = np.bincount(chosen, minlength=len(expected))[:len(expected)]
  assert counts.sum() == 10_000
  assert stats.chisquare(counts, expected).pvalue > 1e-6


@pytest.mark.sound
@pytest.mark.parametrize('stopping', STOPPINGS, ids=str)
@pytest.mark.parametrize('size', [.2, 1., 3.])
def test_pure_runs_cost_the_closed_form_and_no_less(stopping, size):
  """The cost of pure runs is the closed form, which a bit attains (DP-21)."""
  epsilons = np.linspace(0., size, 50)
  profile = tuning.Profile(epsilons, (math.exp(size) - np.exp(epsilons))
                           / (1 + math.exp(size)))
  cost = tuning.BestRun(profile, stopping).epsilon(1e-9)
  if stopping.is_poisson:
    wanted = size + stopping.mean * math.tanh(size / 2)
  else:
    stop = stopping.stop_prob
    wanted = size + (1 + stopping.shape) * math.log(
      (math.exp(size) + stop) / (1 + stop * math.exp(size)))
    assert wanted <= (2 + stopping.shape) * size
  assert cost == pytest.approx(wanted, abs=3e-3)
  # The true bit in thin slices, below the wrong one.
  true = math.exp(size) / (1 + math.exp(size))
  sides = [best_of(np.append(np.full(20_000, mass / 20_000), 1 - mass),
                   stopping) for mass in (true, 1 - true)]
  assert divergences.max_divergence(*sides) == pytest.approx(wanted, abs=3e-3)


@pytest.mark.parametrize('stopping', [
  s for s in STOPPINGS if 0 <= s.shape < math.inf], ids=str)
def test_profiles_cost_less_than_renyi_divergences(stopping):
  """Profiles are below Theorem 2 of Papernot and Steinke (2022), above one run.
  """
  best = tuning.epsilon([trial()], stopping, delta=1e-5, adjacency=ADD)
  assert spend(trial(), 'pld') < best < spend(stopping.event(trial()))


def test_golden_numbers_of_the_guide():
  """The numbers in docs/private_loop.md."""
  run, stopping = accounting.gaussian_event(noise_multiplier=2.), STOPPINGS[1]
  assert [round(epsilon, 2) for epsilon in (
    spend(run, 'pld'), spend(stopping.event(run)), tuning.epsilon(
      [run], stopping, delta=1e-5, adjacency=ADD))] == [1.99, 4.69, 3.31]


def test_the_cost_of_gaussian_runs_is_nearly_attained():
  """A bad order of a Gaussian output reaches nearly the delta of the bound.

  The largest outputs are put below the smallest ones, where few runs are
  better on one data set and many are on the other.
  """
  stopping, shift = RandomStopping(mean=20.), .5
  event = accounting.gaussian_event(noise_multiplier=1 / shift)
  selection = tuning.BestRun(tuning.profile([event], adjacency=ADD), stopping)
  edges = np.concatenate([[-np.inf], np.linspace(-8., 8., 40_001), [np.inf]])
  p, q = (np.diff(stats.norm.cdf(edges, mean)) for mean in (shift, 0.))
  for epsilon in (3., 3.5):
    reached = max(divergences.hockey_stick(
      *(best_of(np.concatenate([side[cut:], side[:cut]]), stopping)
        for side in (p, q)), epsilon=epsilon)
      for cut in range(10_000, 24_000, 250))
    assert .8 * selection.delta(epsilon) < reached <= selection.delta(epsilon)


@pytest.mark.slow
def test_candidates_of_different_cost():
  """Candidates are charged by their mean profile, between both profiles."""
  cheap = accounting.gaussian_event(noise_multiplier=4.)
  dear = accounting.gaussian_event(noise_multiplier=2.)
  claim = dict(delta=1e-5, adjacency=ADD)
  stopping = RandomStopping(mean=5.)
  costs = [tuning.epsilon(runs, stopping, **claim)
           for runs in ([cheap], [cheap, dear], [dear, cheap], [dear])]
  assert costs[0] < costs[1] < costs[3]
  assert costs[1] == costs[2]
  mixed = tuning.profile([cheap, dear], adjacency=ADD)
  deltas = [accounting.delta_for(each, target_epsilon=.7, adjacency=ADD)
            for each in (cheap, dear)]
  assert float(mixed.at(np.array(.7))) == pytest.approx(np.mean(deltas),
                                                        rel=2e-3)


def test_a_profile_bounds_between_its_points_and_below_zero():
  event = accounting.gaussian_event(noise_multiplier=1.5)
  profile = tuning.profile([event], adjacency=ADD)
  mu = 1 / 1.5
  epsilons = np.linspace(-4., 4., 333)
  true = (stats.norm.cdf(mu / 2 - epsilons / mu)
          - np.exp(epsilons) * stats.norm.cdf(-mu / 2 - epsilons / mu))
  assert np.all(profile.at(epsilons) >= true * (1 - 1e-9))
  np.testing.assert_allclose(profile.at(epsilons), true, rtol=.02, atol=1e-9)
  probs = np.geomspace(1e-6, 1., 200)
  largest = stats.norm.cdf(stats.norm.ppf(probs) + mu)
  assert np.all(profile.largest_prob(probs) >= largest * (1 - 1e-9))
  np.testing.assert_allclose(profile.largest_prob(probs), largest, rtol=.01)


def test_epsilon_inverts_delta():
  selection = tuning.BestRun(
    tuning.profile([accounting.gaussian_event(noise_multiplier=3.)],
                   adjacency=ADD), RandomStopping(mean=30.))
  for delta in (1e-8, 1e-5, 1e-2):
    epsilon = selection.epsilon(delta)
    assert selection.delta(epsilon) <= delta < selection.delta(epsilon - 1e-4)


def test_the_epsilon_of_a_run_for_a_target():
  """The cost of the returned epsilon is below the target, and near it."""
  cost = lambda epsilon: 2.2 * epsilon + .01
  found = tuning.run_epsilon(cost, 3.)
  assert .985 * 3. < cost(found) <= 3.
  curved = lambda epsilon: 3. * epsilon**4
  assert .985 * 2. < curved(tuning.run_epsilon(curved, 2.)) <= 2.
  assert tuning.run_epsilon(lambda epsilon: 30 * epsilon, 1.) <= 1 / 30
  with pytest.raises(ValueError, match='^no epsilon of a run allows a choice'):
    tuning.run_epsilon(lambda epsilon: 5., 3.)


@pytest.mark.parametrize('call, message', [
  (lambda e: tuning.all_runs_event([]), 'there must be the event of at least'),
  (lambda e: tuning.profile([], adjacency=ADD), 'there must be the event of'),
  (lambda e: tuning.profile([accounting.non_private_event()], adjacency=ADD),
   'each run needs a guarantee: epsilon of one is inf'),
  (lambda e: tuning.epsilon([e], RandomStopping(mean=1e3), delta=1e-12,
                            adjacency=ADD), 'delta must be above 1.*e-09 for'),
  (lambda e: accounting.epsilon(
      RandomStopping(mean=2.).event(e), delta=1e-5, adjacency=ADD),
   'the pld accountant does not cover RepeatAndSelect'),
])
def test_refusals(call, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    call(accounting.gaussian_event(noise_multiplier=3.))


def test_the_guarantee_of_all_runs():
  """It is the sum for few runs, and the optimal composition for many."""
  approx = lambda epsilon, delta=1e-6: notions.ApproxDP(epsilon=epsilon,
                                                        delta=delta)
  assert tuning.all_runs_guarantee([approx(.5), approx(.25)]) == approx(
    .75, 2e-6)
  many = [approx(.1)] * 100
  total = tuning.all_runs_guarantee(many)
  assert total.delta == pytest.approx(2e-4)
  assert total.epsilon == accounting.optimal_composition(many, delta=total.delta)
  assert total.epsilon < 5
  # Too large to compose: basic composition.
  assert tuning.all_runs_guarantee([approx(8.)] * 50).epsilon == 400
  assert tuning.all_runs_guarantee([approx(1., 0.)] * 3) == approx(3., 0.)
  with pytest.raises(ValueError, match='^all runs together have no guarantee'):
    tuning.all_runs_guarantee([approx(1., .4)] * 3)
