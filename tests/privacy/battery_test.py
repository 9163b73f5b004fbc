"""Tests every mechanism: claim, samples, keys, compilation and values."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import divergences
from dpjax.privacy import mechanism
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import intervals
from tests.privacy import roster

KEY = jax.random.key(2024)
DRAWS = 20_000
every = pytest.mark.parametrize('case', roster.CASES,
                                ids=[case.name for case in roster.CASES])


EPSILONS = (0.0, 0.2, 0.5, 0.9, 1.1, 1.3, 1.6, 2.2)


@functools.cache
def many(name):
  """Returns releases of a case's first data set, one for each key."""
  case, keys = find(name), jax.random.split(KEY, DRAWS)
  return jax.jit(jax.vmap(case.mechanism.release, (0, None)))(
      keys, case.pairs[0][0])


@functools.cache
def claimed(name):
  """Returns the delta curve of the event, at `EPSILONS`."""
  case = find(name)
  return accounting.delta_curve(
      case.mechanism.event, epsilons=EPSILONS, accountant=case.accountant,
      adjacency=case.mechanism.adjacency)


def find(name):
  return next(case for case in roster.CASES if case.name == name)


def assert_same(left, right):
  """Checks for equal bits; estimates, which are computed,
  are compared nearly."""
  if isinstance(left, intervals.Estimate):
    for a, b in zip(left, right, strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    left, right = left.value * 2**10, right.value * 2**10
    np.testing.assert_array_equal(np.round(left), np.round(right))
  else:
    jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.mark.sound
@every
def test_the_claim_covers_all_pairs(case):
  """The event's delta curve covers the exact divergences of all pairs."""
  assert isinstance(case.mechanism, mechanism.Mechanism)
  curve, attained = claimed(case.name), np.zeros(len(EPSILONS))
  for pair in case.pairs:
    probs = [case.probs(data) for data in pair]
    for p, q in (probs, probs[::-1]):
      attained = np.maximum(attained, [
          divergences.hockey_stick(p, q, epsilon=epsilon)
          for epsilon in EPSILONS])
  assert np.all(attained <= curve + 1e-6)
  # It is also no larger than necessary: a pair comes near it.
  assert attained[1] >= case.attained * curve[1]


def statistic(cells, probs):
  """Returns (chi-square, degrees of freedom) of cells
  grouped by 1/16 of mass."""
  group = np.minimum((np.cumsum(probs) - probs / 2) * 16, 15).astype(int)
  expected = np.bincount(group, probs, minlength=16) * cells.size
  counts = np.bincount(group[cells], minlength=16)
  kept = expected > 0
  assert not counts[~kept].any()
  return (np.sum((counts - expected)[kept]**2 / expected[kept]),
          np.sum(kept) - 1)


@pytest.mark.every(4)
@every
def test_releases_have_the_law(case):
  """Releases have the exact distribution, at a
  false-alarm rate of 1e-6 each."""
  chi_square, freedom = statistic(case.cells(many(case.name)),
                                  case.probs(case.pairs[0][0]))
  assert chi_square < stats.chi2(freedom).isf(1e-6)


@pytest.mark.every(9)
@every
def test_keys_decide_and_compilation_does_not(case):
  """Equal keys give equal bits, one by one or compiled all at once."""
  release, data = case.mechanism.release, case.pairs[0][0]
  releases = many(case.name)
  for number, key in enumerate(jax.random.split(KEY, DRAWS)[:2]):
    alone = release(key, data)
    assert_same(alone, release(key, data))
    assert_same(alone, jax.tree.map(lambda leaf: leaf[number], releases))
  first = np.asarray(jax.tree.leaves(releases)[0]).reshape(DRAWS, -1)
  assert len(np.unique(first, axis=0)) > 1


@pytest.mark.every(4)
@every
def test_double_precision_is_taken(case):
  data = case.pairs[0][0]
  if data.dtype == np.float32:
    released = case.mechanism.release(KEY, data.astype(np.float64))
    assert_same(case.mechanism.release(KEY, data), released)
    assert all(leaf.dtype != np.float64 for leaf in jax.tree.leaves(released))


@pytest.mark.every(3)
@every
def test_another_adjacency_is_refused(case):
  """An adjacency's name is refused, and claims hold for one adjacency only."""
  mechanism = case.mechanism
  if dataclasses.is_dataclass(mechanism) and 'adjacency' in {
      field.name for field in dataclasses.fields(mechanism)}:
    with pytest.raises(ValueError, match='adjacency must be Adjacency'):
      dataclasses.replace(mechanism, adjacency='replace_one')
  other, = set(Adjacency) - {mechanism.adjacency}
  try:
    spent = accounting.delta_for(mechanism.event, target_epsilon=EPSILONS[2],
                                 adjacency=other, accountant=case.accountant)
  except ValueError as error:
    assert 'does not cover' in str(error)
    return
  # Data sets are twice as far apart, or half as far.
  own = claimed(case.name)[2]
  assert spent > own if other is Adjacency.REPLACE_ONE else spent < own
