"""Tests dpjax.privacy.adjacency by brute force over tiny data sets."""

import itertools

import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy import neighbours as enumerated
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import sum_sensitivity
from dpjax.privacy.notions import ApproxDP
from dpjax.stats import frequencies
from dpjax.stats import numbers
from experiments.methods.theory import composition

RECORDS = [np.array(r) * .75 for r in (
    (0., 0.), (1., 0.), (-1., 0.), (0., 1.), (.6, -.8))]


def neighbours(data, adjacency):
  for i in range(len(data)):
    rest = data[:i] + data[i + 1:]
    if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
      yield rest
    else:
      yield from (rest + (record,) for record in range(len(RECORDS)))


@pytest.mark.parametrize('adjacency, expected', [
  (Adjacency.ADD_OR_REMOVE_ONE, .75), (Adjacency.REPLACE_ONE, 1.5)])
def test_sensitivity_of_a_sum_is_attained(adjacency, expected):
  """The stated sensitivity is attained; replacing doubles it (DP-09, E25)."""
  total = lambda data: sum((RECORDS[i] for i in data), np.zeros(2))
  worst = max(np.linalg.norm(total(data) - total(other))
              for data in itertools.product(range(len(RECORDS)), repeat=3)
              for other in neighbours(data, adjacency))
  assert sum_sensitivity(adjacency, record_norm=.75) == expected
  assert worst == pytest.approx(expected)


def test_names_are_stable():
  # Result files contain these values.
  assert [a.value for a in Adjacency] == ['add_or_remove_one', 'replace_one']


def test_no_default():
  with pytest.raises(TypeError):
    sum_sensitivity(record_norm=1.)


_STRING = 'replace_one'
_RUN = accounting.poisson_gaussian_event(sampling_prob=1.0, num_steps=3,
                                         noise_multiplier=2.0)
TAKEN = {
    'epsilon': lambda a: accounting.epsilon(_RUN, delta=1e-5, adjacency=a),
    'epsilon by rdp': lambda a: accounting.epsilon(
        _RUN, delta=1e-5, adjacency=a, accountant='rdp'),
    'delta': lambda a: accounting.delta_for(_RUN, target_epsilon=1.0,
                                            adjacency=a),
    'calibration': lambda a: accounting.calibrate_noise_multiplier(
        target_epsilon=1.0, target_delta=1e-5, sampling_prob=0.1, num_steps=3,
        adjacency=a),
    'pure event': lambda a: accounting.pure_event(epsilon=1.0, adjacency=a),
    'concentrated event': lambda a: accounting.concentrated_event(
        rho=1.0, adjacency=a),
    'neighbours': lambda a: list(enumerated.neighbours((1,), (1, 2), a)),
    'parallel': lambda a: composition.parallel(
        [ApproxDP(epsilon=1.0, delta=0.0)], adjacency=a),
    'sum': lambda a: sum_sensitivity(a, record_norm=1.0),
    'numbers': lambda a: numbers.parse([1.0], 0, 1, missing='omit',
                                       adjacency=a),
    'frequencies': lambda a: frequencies.gaussian(
        num_categories=2, rho=1.0, num_examples=4, adjacency=a),
}


@pytest.mark.parametrize('name', TAKEN)
def test_a_string_is_refused_wherever_it_would_decide(name):
  """A string is refused, since `is` would take it for the other adjacency."""
  with pytest.raises(ValueError,
                     match=r"got 'replace_one'; write Adjacency\('replace_one'"):
    TAKEN[name](_STRING)
  with pytest.raises(ValueError, match='REPLACE_ONE, got None$'):
    TAKEN[name](None)


@pytest.mark.parametrize('value', ['replace', None, 1])
def test_an_unknown_name_is_answered_with_the_known_ones(value):
  with pytest.raises(ValueError, match='one of add_or_remove_one, replace_one; '
                                       f'got {value!r}$'):
    Adjacency(value)
