"""Tests the sensitivities of a reference table by enumeration."""

import math

import numpy as np
import pytest

from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import sum_sensitivity

AR, RO = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
VALUES = (-1.0, 0.0, 2.0)
SIZES = (0, 1, 2, 3)


def _counts(dataset, domain=VALUES):
  return np.array([dataset.count(value) for value in domain], float)


def _centred_mean(dataset):
  """Returns the mean, or the middle 0.5 of [-1, 2] without records."""
  return sum(dataset) / len(dataset) if dataset else 0.5


@pytest.mark.parametrize('function, order, added, replaced', [
  (lambda d: d.count(2.0), 1, 1, 1),
  (_counts, 1, 1, 2),
  (_counts, 2, 1, math.sqrt(2)),
  (sum, 1, 2, 3),
  (lambda d: max(d, default=-1.0), 1, 3, 3),
  (_centred_mean, 1, 1.5, 3),
])
def test_sensitivities(function, order, added, replaced):
  """Enumerated sensitivities of values in [-1, 2] match the reference table."""
  for adjacency, wanted in ((AR, added), (RO, replaced)):
    assert neighbours.sensitivity(function, VALUES, SIZES, adjacency,
                                  order=order) == pytest.approx(wanted)


@pytest.mark.parametrize('size', [1, 2, 4])
def test_of_public_size(size):
  assert neighbours.sensitivity(
    lambda d: sum(d) / len(d), VALUES, (size,), RO) == pytest.approx(3 / size)
  assert neighbours.sensitivity(
    lambda d: _counts(d) / len(d), VALUES, (size,), RO) == (
      pytest.approx(2 / size))


def test_the_mean_of_private_size():
  """A mean of private size has sensitivity (b - a) / 2, or b - a if the
  empty data set's value is at an end (MECH-09, erratum T-E11)."""
  mean = lambda d: sum(d) / len(d)
  assert neighbours.sensitivity(mean, VALUES, (1, 2, 3), AR) == 1.5
  at_an_end = lambda d: sum(d) / len(d) if d else -1.0
  assert neighbours.sensitivity(at_an_end, VALUES, SIZES, AR) == 3


def test_a_sum_is_what_the_factor_says():
  for adjacency in (AR, RO):
    assert neighbours.sensitivity(
      sum, (-1.0, 0.0, 1.0), SIZES, adjacency) == (
        sum_sensitivity(adjacency, record_norm=1.0))


@pytest.mark.parametrize('adjacency', [AR, RO])
def test_neighbours_are_symmetric_and_at_distance_one(adjacency):
  pairs = set(neighbours.pairs('ab', (1, 2, 3), adjacency))
  assert pairs == {(other, one) for one, other in pairs}
  away = neighbours.distances(('a', 'b'), 'ab', SIZES, adjacency)
  assert {other for one, other in pairs if one == ('a', 'b')} == {
    dataset for dataset, steps in away.items() if steps == 1 and dataset}
  if adjacency is RO:
    # Replacing is removing and adding.
    steps = neighbours.distances(('a', 'b'), 'ab', SIZES, AR)
    assert all(steps[dataset] <= 2 * away[dataset] for dataset in away)
    assert all(away[d] == sum(x != y for x, y in zip(d, 'ab')) for d in away)


@pytest.mark.parametrize('adjacency, sizes, share', [
  (AR, (0, 1, 2, 3, 4), 1), (RO, (3,), .5)])
def test_steps_between_histograms_are_their_l1_distance(adjacency, sizes,
                                                        share):
  """Steps between histograms are their l1 distance, or half if replacing."""
  start, nearest = ('a', 'a', 'b'), {}
  for other, steps in neighbours.distances(start, 'abc', sizes,
                                           adjacency).items():
    kind = tuple(sorted(other))
    nearest[kind] = min(steps, nearest.get(kind, steps))
  for other, steps in nearest.items():
    apart = np.abs(_counts(start, 'abc') - _counts(other, 'abc')).sum()
    assert steps == share * apart
  assert max(nearest.values()) >= 3


def test_scores_by_distance_move_as_the_function():
  """Scores by distance move at most as the function, attained on a line."""
  def sensitivity(function, thetas, sizes, adjacency):
    return neighbours.sensitivity(
      lambda d: -np.abs(np.array(thetas) - function(d)), VALUES, sizes,
      adjacency, order=math.inf)

  for adjacency in (AR, RO):
    whole = neighbours.sensitivity(sum, VALUES, SIZES, adjacency)
    assert sensitivity(sum, np.linspace(-9, 9, 19), SIZES, adjacency) == whole
    assert sensitivity(sum, [.3], SIZES, adjacency) <= whole
  # For one point half-way the score does not move at all.
  assert sensitivity(lambda d: d.count(2.0), [.5], (1,), RO) == 0


def test_too_many_are_refused(monkeypatch):
  with pytest.raises(ValueError, match='too many to enumerate'):
    neighbours.datasets(range(10), 6)
  monkeypatch.setattr(neighbours, 'MAX_DATASETS', 7)
  assert len(neighbours.distances(('a', 'a'), 'ab', (1, 2), AR)) == 6
  assert len(neighbours.datasets('abcdefg', 1)) == 7
  with pytest.raises(ValueError, match='too many data sets to enumerate'):
    neighbours.distances(('a', 'a', 'a'), 'ab', (3,), RO)
