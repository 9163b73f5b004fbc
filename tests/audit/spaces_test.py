"""These tests check that spaces list and make legal neighbours only."""

import math

import numpy as np
import pytest

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit import wrapping
from dpjax.audit.target import Target
from dpjax.privacy.adjacency import Adjacency

pytestmark = pytest.mark.every(1)

_AR, _RO = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
_KINDS = [
    {}, dict(bounds=(0.0, 3.0)), dict(bounds=(-1.0, 0.1), shape=(3,)),
    dict(shape=(2, 2)), dict(num_categories=5), dict(dtype=np.float64),
    dict(dtype=bool), dict(bounds=(0, 20), dtype=np.int8),
    dict(bounds=(0.0, 1.0), constants=(0.37, 7.0), sizes=(3, 1)),
    *(dict(dtype=dtype) for dtype in (np.int8, np.int32, np.int64, np.uint8,
                                      np.uint64))]


def _count_of_changes(one, other):
  """Returns how many records were replaced, or were added at one place."""
  rows = lambda data: [row.tobytes() for row in data]
  one, other = rows(one), rows(other)
  if len(one) == len(other):
    return sum(a != b for a, b in zip(one, other, strict=True))
  return 1 if len(one) == len(other) + 1 and any(
      one[:k] + one[k + 1:] == other for k in range(len(one))) else math.inf


def _check_legal(space, pair):
  """Checks one pair against the adjacency, the bounds and the dtype."""
  one, other = pair[:2]
  assert _count_of_changes(one, other) == 1
  assert (len(one) == len(other)) == (space.adjacency is _RO)
  assert min(len(one), len(other)) in {
      size for size in space.sizes if size or space.adjacency is _AR}
  for data in (one, other):
    assert data.dtype == space.dtype and data.shape[1:] == space.shape
    if space.bounds is not None or space.num_categories is not None:
      low, high = space.bounds or (0, space.num_categories - 1)
      assert data.size == 0 or low <= data.min() + 1e-7 and (
          data.max() <= np.asarray(high, data.dtype))


@pytest.mark.parametrize('adjacency', [_AR, _RO])
@pytest.mark.parametrize('kind', _KINDS, ids=str)
def test_all_pairs_and_their_changes_are_legal_neighbours(kind, adjacency):
  space = spaces.Records(adjacency=adjacency, **kind)
  pairs = space.pairs()
  for pair in pairs:
    _check_legal(space, pair)
  rng = np.random.default_rng(0)
  changed = list(pairs)
  for number in range(400):
    place = rng.integers(len(changed))
    changed[place] = space.mutated(rng, changed[place])
    _check_legal(space, changed[place])
  contents = {tuple(np.asarray(data).tobytes() for data in pair[:2])
              for pair in changed}
  assert len(contents) > 20 or kind.get('dtype') is bool


def test_a_check_of_legality_notices_two_changes_and_other_sizes():
  space = spaces.Records(adjacency=_RO, bounds=(0.0, 1.0))
  pair = space.pairs()[0]
  far = np.copy(pair.neighbour)
  far[-1] = 0.5
  for neighbour in (far, pair.data, pair.neighbour[1:], pair.neighbour + 2):
    with pytest.raises(AssertionError):
      _check_legal(space, pair._replace(neighbour=neighbour))


@pytest.mark.parametrize('adjacency', [_AR, _RO])
def test_what_hides_a_leak_is_among_the_structured_pairs(adjacency):
  """Every category, size, extreme, constant, tie and inner record is tried."""
  met = lambda **kind: spaces.Records(adjacency=adjacency, **kind).pairs()
  for category in range(20):
    assert any((pair.data == category).any() != (
        pair.neighbour == category).any() for pair in met(num_categories=20))
  numbers = met(bounds=(0.0, 1.0), constants=(0.37,))
  assert {len(pair.neighbour) for pair in numbers} == (
      {8, 2, 1} | ({0} if adjacency is _AR else set()))
  for value in (0.0, 1.0, 0.5, 0.37, 0.37 + 1e-3, 0.37 - 1e-3):
    assert any(np.isclose(np.sum(pair.data), value) and len(pair.data) == 1 or
               (np.float32(value) in pair.data) for pair in numbers)
  equal = [pair for pair in numbers if len(np.unique(pair.data)) == 1 and
           len(pair.data) > 1]
  assert equal and any(len(np.unique(pair.neighbour)) > 5 for pair in numbers)
  for dtype in (np.int8, np.int64, np.uint8):
    info = np.iinfo(dtype)
    values = np.concatenate([pair.data for pair in met(dtype=dtype)])
    assert {info.min, info.max} <= set(values.tolist())
  hostile = np.concatenate([pair.data for pair in met()])
  assert np.isnan(hostile).any() and np.isinf(hostile).any()
  bounded = np.concatenate([pair.data for pair in numbers])
  assert np.isfinite(bounded).all()


def test_conversions_and_places_survive_changes():
  space = spaces.Records(adjacency=_RO, bounds=(0.0, 1.0),
                         convert=lambda records: {'x': records.tolist()})
  rng, pair = np.random.default_rng(1), space.pairs()[0]
  places = set()
  for _ in range(200):
    pair = space.mutated(rng, pair)
    assert pair.data == {'x': pair.records[0].tolist()}
    assert _count_of_changes(*pair.records) == 1
    places.add(space.parts(pair)[3])
  assert len(places) > 3


def test_spaces_refuse_what_has_no_neighbours():
  for changes, message in (
      (dict(bounds=(1.0, 0.0)), 'two numbers in order'),
      (dict(sizes=(0,)), 'at least 1'), (dict(num_categories=0), '>= 1'),
      (dict(num_categories=3, bounds=(0.0, 1.0)), 'not both')):
    with pytest.raises(ValueError, match=message):
      spaces.Records(adjacency=_RO, **changes)
  claim = claims.Claim(epsilon=1.0, delta=0.0, adjacency=_AR)
  with pytest.raises(ValueError, match='its space has neighbours under'):
    Target(name='x', release=lambda key, data: data, claim=claim,
           space=spaces.Records(adjacency=_RO))
  space = spaces.Records(adjacency=_AR)
  target = Target(name='x', release=lambda key, data: data, claim=claim,
                  space=space)
  assert [pair.what for pair in target.pairs] == [
      pair.what for pair in space.pairs()]


@pytest.mark.parametrize('order', [1, 2, np.inf])
@pytest.mark.parametrize('width', [1, 2, 3, 5])
def test_sums_move_along_axes_and_across_with_both_signs(order, width):
  """Sums move by exactly the sensitivity, along axes, across and all together.

  They start from zero and from large values.
  """
  space = spaces.Sums(adjacency=_AR, sensitivity=0.5, order=order, width=width)
  pairs = space.pairs()
  shifts = np.array([pair.data - pair.neighbour for pair in pairs])
  np.testing.assert_allclose(np.linalg.norm(shifts, order, axis=1), 0.5,
                             rtol=1e-4)
  alone = np.count_nonzero(np.abs(shifts) > 1e-6, axis=1) == 1
  across = shifts[~alone]
  if width > 1:
    assert (across.max(1) > 0).all() and np.ptp(np.abs(across)) < 1e-5
    # With both signs, and all up.
    assert (across != 0).all() and set(across.min(1) < 0) == {True, False}
  assert set(np.argmax(shifts[alone], 1)) == {0, width - 1}
  sizes = [np.abs(pair.neighbour).max() for pair in pairs]
  assert min(sizes) == 0 and max(sizes) >= 32
  rng, pair = np.random.default_rng(0), pairs[0]
  for _ in range(100):
    pair = space.mutated(rng, pair)
    assert np.linalg.norm(pair.data.astype(float) - pair.neighbour, order) == (
        pytest.approx(0.5, rel=1e-3))


def test_integer_sums_and_scores_change_by_the_sensitivity():
  sums = spaces.Sums(adjacency=_RO, sensitivity=2, dtype=np.int32)
  scores = {monotone: spaces.Scores(adjacency=_RO, sensitivity=0.5,
                                    monotone=monotone)
            for monotone in (False, True)}
  rng = np.random.default_rng(0)
  for space in (sums, *scores.values()):
    pairs = list(space.pairs())
    for number in range(100):
      pairs.append(space.mutated(rng, pairs[number]))
    for pair in pairs:
      change = pair.data.astype(float) - pair.neighbour
      if space is sums:
        assert pair.data.dtype == np.int32 and np.abs(change).sum() == 2
      else:
        assert np.abs(change).max() <= 0.5 + 1e-5
        assert not space.monotone or (change >= 0).all()


def test_attributes_of_a_mechanism_make_its_space():
  make = lambda **fields: wrapping.space_of(type('M', (), fields), _AR)
  assert make(num_categories=20, num_records=5).sizes == (5,)
  assert len(make(num_categories=20).records()) == 20
  space = make(record_shape=(2,), record_bounds=(0, 9), record_dtype=np.int16)
  assert space.pairs()[0].data.dtype == np.int16 and space.shape == (2,)
  assert make(l1_sensitivity=3.0) == spaces.Sums(adjacency=_AR, sensitivity=3.0,
                                                 order=1)
