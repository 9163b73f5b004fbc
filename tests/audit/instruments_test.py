"""These tests check audit instruments on faults that show in one place only."""

import dataclasses
import types
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.audit import bounds
from dpjax.audit import canary
from dpjax.audit import claims
from dpjax.audit import empirical
from dpjax.audit import exact
from dpjax.audit import noise
from dpjax.audit.target import Pair
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Batch

pytestmark = pytest.mark.every(1)

_ADD = Adjacency.ADD_OR_REMOVE_ONE
_FAULTS = {
    'variance': lambda z, _: 1.15 * z, 'mean': lambda z, _: z + 0.2,
    'distribution': lambda z, _: np.sign(z) * np.abs(z)**0.7,
    'independence of calls': lambda z, _: (z + np.roll(z, 1)) / 2**0.5,
    'independence of keys': lambda z, other: other}


@pytest.mark.parametrize('name', _FAULTS)
@pytest.mark.parametrize('column', [0, 1, 2])
def test_noise_is_tested_in_every_coordinate(name, column):
  scores, others = np.random.default_rng(2).normal(size=(2, 2500, 3))
  scores[:, column] = _FAULTS[name](scores[:, column], others[:, column])
  p_values = dict(noise.p_values(scores, others))
  assert p_values[name] < 1e-4
  if name == 'independence of keys':
    # Only this coordinate is the same in both data sets.
    assert min(value for key, value in p_values.items() if key != name) > 1e-4


@pytest.mark.parametrize('first, second', [
    (0, 1), (0, 11), (10, 11), (3, 6), (5, 7)])
def test_noise_that_two_coordinates_share_is_found(first, second):
  """Noise shared by two of the coordinates is found, wherever they lie.

  Pairs are among the first eight, adjacent, or at the ends.
  """
  scores, others = np.random.default_rng(3).normal(size=(2, 2500, 12))
  honest = dict(noise.p_values(scores, others))
  scores[:, second] = scores[:, first]
  faulty = dict(noise.p_values(scores, others))
  assert honest['independence of coordinates'] > 1e-4
  assert faulty['independence of coordinates'] < 1e-6


@pytest.mark.parametrize('sign', [1, -1])
@pytest.mark.parametrize('swapped', [False, True])
def test_the_best_of_many_thresholds_is_found_at_either_end(sign, swapped):
  """The best of 6000 thresholds is found
  although it lies far out at one end."""
  rng = np.random.default_rng(4)
  inside, outside = rng.normal(size=(2, 3000))
  inside[:131] = 9 + rng.random(131)
  pair = (sign * inside, sign * outside)[::-1 if swapped else 1]
  test = empirical.choose_threshold(*pair, delta=0.0)
  bound = lambda hits, alarms: bounds.epsilon_lower_bounds(
      true_positives=hits, num_in=3000, false_positives=alarms, num_out=3000,
      delta=0.0)
  cuts = np.concatenate(pair)
  above = [3000 - np.searchsorted(np.sort(each), cuts, 'right')
           for each in pair]
  best = max(bound(*above).max(), bound(*(3000 - each for each in above)).max())
  assert bound(*map(np.array, map(test.count, pair))) == pytest.approx(best)
  assert best > 3


def test_an_output_that_is_impossible_on_one_side_refutes_a_pure_claim():
  def log_density(data, outputs):
    inside = np.abs(outputs[:, 0] - data) <= 1
    return np.where(inside, -np.log(2.0), -np.inf)

  target = types.SimpleNamespace(log_density=log_density)
  for pair, outputs, refuted in (
      ((0.0, 0.5), [0.1, 0.4, 1.2], True), ((0.0, 0.5), [-0.7], True),
      ((0.0, 0.5), [0.0, 0.9], False), ((0.0, 0.5), [7.0, -3.0], False)):
    worst = exact.density_ratio(target, Pair(*pair),
                                np.array(outputs)[:, None], epsilon=1.0)
    assert (worst.amount > 0) == refuted
    assert not refuted or np.isinf(worst.amount)


def test_gaussian_noise_has_no_pure_claim():
  event = accounting.gaussian_event(noise_multiplier=3.0)
  assert claims.of_event(event, delta=0.0, adjacency=_ADD).epsilon == np.inf
  with pytest.raises(ValueError, match='below the inf'):
    claims.check(claims.Claim(epsilon=1e3, delta=0.0, adjacency=_ADD,
                              event=event))


@pytest.mark.parametrize('count', [1, 10, 1000])
def test_pure_claims_of_composed_events_add_up(count):
  """Epsilons of composed pure events add up in a claim at delta 0.

  At a positive delta, a thousand events would cost 26 instead of 100.
  """
  event = accounting.repeated_event(
      accounting.laplace_event(noise_multiplier=10.0), count)
  claim = claims.of_event(event, delta=0.0, adjacency=_ADD)
  assert claim.epsilon == pytest.approx(count / 10)
  assert claims.check(claim) == claim.epsilon
  with pytest.raises(ValueError, match='that its event costs'):
    claims.check(dataclasses.replace(claim, epsilon=0.99 * claim.epsilon))


@pytest.mark.parametrize('order, wanted', [
    (None, np.hypot(5 / 2, 2 / 4)), (1, 7 / 2 + 2 / 4),
    (np.inf, 4 / 2 + 2 / 4)])
def test_shares_of_blocks_add_up_as_their_costs_do(order, wanted):
  """Shares of blocks add up in squares for Gaussian noise.

  For K-norm noise they add up linearly, as epsilons do.
  """
  shift = canary.Shift({'a': np.array([3.0, -4.0]), 'b': np.array([[2.0]])},
                       None, {'a': 2.0, 'b': 4.0})
  game = types.SimpleNamespace(
      method=types.SimpleNamespace(noise_order=order),
      plan=types.SimpleNamespace(noise_multiplier=0.3))
  with mock.patch.object(canary, 'shift', lambda game: shift):
    assert canary.fraction_spent(game) == pytest.approx(0.3 * wanted)


def test_neighbouring_data_sets_differ_by_the_canary():
  one = Batch(jnp.full((1, 2), 7.0), jnp.asarray([3]))
  records = canary.neighbouring_records(one, 4)
  rows = np.asarray(canary.neighbouring_rows(4, 3))
  assert rows.shape == (6, 4) and records.x.shape == (5, 2)
  counted = np.isfinite(np.asarray(records.x)).all(1)
  assert counted.tolist() == [True] + [False] * 4
  np.testing.assert_array_equal(records.y, [3] * 5)
  for run, numbers in enumerate(rows):
    assert len(set(numbers)) == 4 and numbers.max() <= 4
    assert counted[numbers].tolist() == [run < 3, False, False, False]
