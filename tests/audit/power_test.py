"""These tests compare the stated 50 % power with the power of real audits."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.audit import blackbox
from dpjax.audit import claims
from dpjax.audit import events
from dpjax.audit import power
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency

_AR = Adjacency.ADD_OR_REMOVE_ONE
_RUNS, _LEVEL = 2**12, 0.05
_GAUSSIAN = claims.of_event(accounting.gaussian_event(noise_multiplier=1.0),
                            delta=1e-5, adjacency=_AR)


def _target(sample, claim):
  return Target(
      name='x', release=None, pairs=(Pair(1, 0),), claim=claim,
      sample=lambda key, data, size: sample(np.random.default_rng(
          np.asarray(jax.random.key_data(key))), data, size))


def _laplace(epsilon, delta=0.0):
  return _target(lambda rng, data, size: data + rng.laplace(
      scale=1 / epsilon, size=(size, 1)),
      claims.Claim(epsilon=1.0, delta=delta, adjacency=_AR))


def _normal(epsilon, claim):
  shift = accounting.gaussian_shift(epsilon=epsilon, delta=1e-5)
  return _target(lambda rng, data, size: shift * data + rng.normal(
      size=(size, 1)), claim)


def _coin(epsilon):
  odds = math.exp(epsilon)
  return _target(lambda rng, data, size: np.where(
      rng.random((size, 1)) < odds / (1 + odds), data, 1 - data),
      claims.Claim(epsilon=1.0, delta=0.0, adjacency=_AR))


_MECHANISMS = {
    'laplace': (_laplace, 1.0),
    'laplace, delta': (lambda epsilon: _laplace(epsilon, 1e-5), 1.0),
    'coin': (_coin, 1.0),
    'normal, event': (lambda epsilon: _normal(epsilon, _GAUSSIAN),
                      _GAUSSIAN.epsilon),
    'normal, one point': (lambda epsilon: _normal(epsilon, claims.Claim(
        epsilon=1.0, delta=1e-5, adjacency=_AR)), 1.0)}


def _audit(target, seed):
  return blackbox.audit(jax.random.key(seed), target, num_runs=_RUNS,
                        significance=_LEVEL)


@pytest.mark.every(4)
@pytest.mark.parametrize('name', _MECHANISMS)
def test_half_of_the_audits_refute_at_the_detectable_epsilon(name):
  """Power passes 50 % within 10 % of the stated epsilon.

  The stated one is the median of five audits of a mechanism with its claim. Of
  30 audits with power at most .5, more than 24 refute with probability 2e-4.
  """
  mechanism, epsilon = _MECHANISMS[name]
  stated = np.median([power.detectable_epsilon(
      mechanism(epsilon), _audit(mechanism(epsilon), seed), significance=_LEVEL)
                      for seed in range(5)])
  assert stated > epsilon
  refuted = lambda factor: sum(_audit(mechanism(factor * stated),
                                      100 + seed).excess > 0
                               for seed in range(30))
  assert stats.binom.sf(24, 30, .5) < 2e-4
  assert refuted(1 / 1.1) <= 24 and refuted(1.1) >= 6


def test_members_of_a_gaussian_family_are_gaussian():
  """Gaussian counts give the line of a Gaussian loss, and its members."""
  edges = np.linspace(-3, 4, 141)
  cdf = lambda mean: np.diff(special.ndtr(edges - mean), prepend=0, append=1)
  present, absent = (1e5 * cdf(mean) for mean in (1.0, 0.0))
  members = power.family(present, absent, np.arange(present.size)[::-1])
  assert members.shift == pytest.approx(1.0, abs=.01)
  for factor in (.5, 1.0, 2.0):
    found = members.member(factor)
    # Both means are symmetric about one half.
    wanted = cdf((1 + factor) / 2), cdf((1 - factor) / 2)
    for one, other in zip(found, wanted, strict=True):
      assert np.abs(one - other).sum() < .03


def test_members_of_a_coin_multiply_its_epsilon():
  probs = np.array([1.0, 3.0]) / 4
  members = power.family(1e5 * probs, 1e5 * probs[::-1], np.array([1, 0]))
  for factor in (.5, 1.0, 2.0):
    present, absent = members.member(factor)
    assert np.log(present[1] / absent[1]) == pytest.approx(
        factor * math.log(3), rel=1e-3)
    assert present.sum() == pytest.approx(1)


def test_nothing_is_detectable_where_nothing_is_seen_or_claimed():
  silent = _target(lambda rng, data, size: rng.normal(size=(size, 1)),
                   claims.Claim(epsilon=1.0, delta=0.0, adjacency=_AR))
  assert power.detectable_epsilon(silent, _audit(silent, 0),
                                  significance=_LEVEL) == math.inf
  nothing = claims.Claim(epsilon=math.inf, delta=0.0, adjacency=_AR)
  target = dataclasses.replace(_coin(1.0), claim=nothing)
  assert power.detectable_epsilon(target, _audit(target, 0),
                                  significance=_LEVEL) == math.inf


def test_simulated_power_rises_from_the_level_to_one():
  """A coin of epsilon 1 is refuted at most at the level, one of 2 always."""
  count = events.Count(claims.curve(_coin(1.0).claim), num_runs=_RUNS)
  def refuted(epsilon):
    prob = 1 / (1 + math.exp(-epsilon))
    cells = np.array([0, 1 - prob, prob, 0, 0, 0])
    return power.simulated_power(count, cells, np.array(
        [0, prob, 1 - prob, 0, 0, 0]), num_pilot=1024, seed=0)
  assert refuted(1.0) <= _LEVEL and refuted(2.0) == 1.0
  assert refuted(1.0) <= refuted(1.04) <= refuted(1.1)
