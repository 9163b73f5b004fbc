"""These tests check scores of outputs: each finds its fault, none by chance."""

import functools
import math
import re

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.audit import auditor
from dpjax.audit import blackbox
from dpjax.audit import claims
from dpjax.audit import partitions
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.privacy.adjacency import Adjacency


def _target(sample, *, floating_point=False):
  """Returns a target that releases the numbers 1 and 0 and claims epsilon 1."""
  def draw(key, data, size):
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    return sample(rng, data, size)

  return Target(
      name='score', release=None, pairs=(Pair(1, 0),), sample=draw,
      floating_point=floating_point, claim=claims.Claim(
          epsilon=1.0, delta=0.0, adjacency=Adjacency.ADD_OR_REMOVE_ONE))


def _audit(target, num_runs=4096):
  return auditor.audit(jax.random.key(0), target, num_runs=num_runs)


def _missing(rng, data, size):
  """Returns four numbers, one of which is NaN with probability `data`."""
  outputs = rng.normal(size=(size, 4))
  lost = (rng.random((size, 1)) < data) & (
      np.arange(4) == rng.integers(0, 4, (size, 1)))
  return np.where(lost, np.nan, outputs)


def _multiples(rng, data, size):
  """Returns x in 1, ..., 6 beside 2 x or 4 x modulo 7, both halved.

  Both data sets release the same pairs, up to their order.
  """
  first = rng.integers(1, 7, size)
  return np.stack([first, (2 + 2 * data) * first % 7], 1) / 2


def _shifted(rng, data, size):
  """Returns one hundred normal numbers, shifted
  up and down in turn by the data."""
  return rng.normal(size=(size, 100)) + .3 * data * (-1)**np.arange(100)


def _shape(rng, data, size):
  """Returns 24 numbers of variance 1, uniform
  or normal according to the data."""
  if data:
    return rng.uniform(-3**.5, 3**.5, (size, 24))
  return rng.normal(size=(size, 24))


def _added_in_float32(rng, data, size):
  return np.float32(data) + np.float32(rng.laplace(size=(size, 1)))


def _stepped(step, scale=400.0):
  """Returns a target: a count plus `step` times discrete Laplace noise."""
  prob = -math.expm1(-1 / scale)
  return _target(lambda rng, data, size: data + step * (
      rng.geometric(prob, (size, 1)) - rng.geometric(prob, (size, 1))))


def _scattered(rng, data, size):
  """Returns a count whose parity reveals the data only to a long table."""
  table = np.random.default_rng(3).integers(0, 2, 20_001)
  noise = np.clip(rng.geometric(1e-2, (size, 1)) -
                  rng.geometric(1e-2, (size, 1)), -10_000, 10_000)
  return 2 * noise + (table[noise + 10_000] ^ data)


def _noise_used_twice(rng, data, size):
  """Returns two counts with one noise, and a third number of its own noise."""
  noise = rng.laplace(scale=9, size=(size, 1))
  return np.concatenate([data + noise, -noise**3 + 0 * data, 3 + noise], 1)


def _dependent(rng, data, size, width=2):
  """Returns normal numbers; two signs agree or differ by the data."""
  outputs = rng.normal(size=(size, width))
  sign = np.where(rng.random(size) < .85, 2 * data - 1, 1 - 2 * data)
  outputs[:, 1] = sign * np.sign(outputs[:, 0]) * np.abs(outputs[:, 1])
  return outputs


# This maps a kind of score to a release whose fault it shows best.
FAULTS = {
    'coordinate': _target(
        lambda rng, data, size: data + rng.laplace(scale=.5, size=(size, 1))),
    'not finite': _target(_missing),
    'whole output': _target(_multiples),
    'sum': _target(lambda rng, data, size: rng.normal(size=(size, 100)) +
                   .3 * data * rng.normal(size=(size, 1))),
    'size': _target(lambda rng, data, size: (1 + .2 * data) * rng.normal(
        size=(size, 100))),
    'means': _target(_shifted),
    'likelihood': _target(_shape),
    'support': _target(_scattered),
    'difference': _target(_noise_used_twice),
    'product': _target(_dependent),
    'remainder': _stepped(3, 1e5),
    'learned': _target(functools.partial(_dependent, width=6)),
    'lowest bit': _target(_added_in_float32, floating_point=True),
}


def _kind(name):
  """Returns the kind of a score from a name
  such as 'lowest bit of coordinate 3'."""
  return re.sub(r' of .*| \d+$', '', name)


@pytest.mark.parametrize('kind', FAULTS)
def test_a_planted_fault_is_found_by_its_score(kind):
  report = _audit(FAULTS[kind])
  assert report.verdict == auditor.VIOLATED
  assert _kind(report.details['event_of']) == kind


def test_every_score_has_a_planted_fault():
  rng = np.random.default_rng(0)
  numbers = rng.normal(size=(2, 400, 3))
  numbers[0, 0, 0] = np.inf
  counts = rng.integers(0, 200, (2, 400, 3))
  counts[0, :, 0] *= 3
  names = {each.name for outputs in (numbers, counts)
           for each in partitions.learn(*outputs.astype(float), low_bits=True)}
  names |= {each.name for each in partitions.learn_network(*numbers)}
  assert {_kind(name) for name in names} == FAULTS.keys()


def _two_congruent(rng, data, size):
  """Returns two integers below 100 with first + 2 second = data modulo 5."""
  first, second = rng.integers(0, 100, size), rng.integers(0, 20, size)
  second = 5 * second + 3 * (data - first) % 5
  return np.stack([first, second], 1)


@pytest.mark.parametrize('target, event', [
    (_stepped(2), 'lowest bit of coordinate 0'),
    (_stepped(3, 10_000.0), 'remainder of coordinate 0'),
    (_target(_scattered), 'support of coordinate 0'),
    (_target(_two_congruent), 'support of whole output')])
def test_values_that_one_data_set_alone_releases_are_found(target, event):
  """Audits find values that only one data set releases, although each is rare.

  They alternate with the values of the other data set.
  """
  report = _audit(target, num_runs=2**15)
  assert report.verdict == auditor.VIOLATED and report.epsilon_lower > 3
  assert report.details['event_of'] == event
  assert report.details['false_positives'] == 0


@pytest.mark.parametrize('scale', [1.0, 30.0, 400.0, 10_000.0])
def test_equal_supports_are_not_refuted(scale):
  """Equal supports are not refuted, even if most values are seen once.

  The claim is tight at scale 1; values are rare at scale 10000.
  """
  assert _audit(_stepped(1, scale), num_runs=2**15).verdict == (
      auditor.CONSISTENT)


@pytest.mark.every(2)
def test_supports_are_found_by_chance_as_seldom_as_stated(monkeypatch):
  """Supports are refuted by chance no more often than stated, on a tight claim.

  One parity of 600 values is e times as likely as the other. All other scores
  are removed, so every audit counts values that its pilot saw for one data
  set only. Of 200 audits at 20 %, more than 64 false alarms have probability
  3e-5.
  """
  def sample(rng, data, size):
    odd = rng.random((size, 1)) < 1 / (1 + math.exp(1 - 2 * data))
    return 2 * rng.integers(0, 300, (size, 1)) + odd

  for name in ('_scores', '_remainders', 'lowest_bits'):
    monkeypatch.setattr(partitions, name, lambda *samples: [])
  reports = [blackbox.audit(jax.random.key(seed), _target(sample),
                            num_runs=4096, significance=0.2)
             for seed in range(200)]
  assert {each.event.partition.name for each in reports} == {
      'support of coordinate 0'}
  assert np.median([each.epsilon_lower for each in reports]) > .5
  assert stats.binom.sf(64, 200, 0.2) < 3e-5
  assert sum(each.excess > 0 for each in reports) <= 64
