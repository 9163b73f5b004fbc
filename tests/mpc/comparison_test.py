"""Tests comparison keys: exact values, stated length, random single keys."""

import numpy as np
import pytest
from scipy import stats

from dpjax.mpc import comparison
from dpjax.mpc import prg


def _keys(alphas, betas, depth, bits):
  return comparison.generate(
      np.asarray(alphas), np.asarray(betas), depth=depth, value_bits=bits,
      source=prg.Stream(bytes(32)))


def _mask(bits):
  return np.uint64((1 << bits) - 1)


@pytest.mark.parametrize('bits', [1, 16, 32, 63, 64])
@pytest.mark.parametrize('depth', [1, 3, 6])
def test_two_shares_add_up_to_the_comparison(depth, bits):
  alphas = np.arange(2**depth)
  betas = prg.words(prg.Stream(bytes(range(32))), alphas.shape)
  points = np.arange(2**depth)
  pair = _keys(alphas, betas, depth, bits)
  wanted = np.where(points < alphas[:, np.newaxis], betas[:, np.newaxis],
                    np.uint64(0)) & _mask(bits)
  each = np.broadcast_to(points, wanted.shape)
  got = sum(comparison.evaluate(keys, each) for keys in pair) & _mask(bits)
  np.testing.assert_array_equal(got, wanted)
  whole = sum(comparison.sums(keys) for keys in pair) & _mask(bits)
  np.testing.assert_array_equal(whole, wanted.sum(0) & _mask(bits))


def test_every_owner_has_points_of_its_own():
  alphas = prg.words(prg.Stream(bytes(range(32))), (20,))
  points = np.stack([alphas - np.uint64(1), alphas, alphas + np.uint64(1),
                     ~alphas], 1)
  pair = _keys(alphas, np.ones(20, int), 64, 32)
  got = sum(comparison.evaluate(keys, points) for keys in pair) & _mask(32)
  np.testing.assert_array_equal(got, points < alphas[:, np.newaxis])


def test_sums_visit_what_is_asked_in_any_order(monkeypatch):
  alphas = prg.words(prg.Stream(bytes(range(32))), (50,)) >> np.uint64(57)
  keys, other = _keys(alphas, np.ones(50, int), 7, 20)
  points = np.array([5, 127, 5, 0, 64])
  counts = (points < alphas[:, np.newaxis].astype(int)).sum(0)
  monkeypatch.setattr(comparison, '_CHUNK', 40)  # several chunks of owners
  monkeypatch.setattr(comparison, '_WIDEST', 3)  # several chunks of points
  shares = comparison.sums(keys, points) + comparison.sums(other, points)
  np.testing.assert_array_equal(shares & _mask(20), counts)
  np.testing.assert_array_equal(comparison.sums(keys)[points],
                                comparison.sums(keys, points))
  assert comparison.sums(keys, np.zeros(0, int)).size == 0
  with pytest.raises(ValueError, match='below 2.7'):
    comparison.sums(keys, np.array([128]))


@pytest.mark.parametrize('depth,bits,length', [(10, 32, 1780), (15, 32, 2590),
                                               (10, 64, 2132), (15, 64, 3102)])
def test_messages_have_the_length_of_the_formula(depth, bits, length):
  assert comparison.key_bits(depth, bits) == length
  for party, keys in enumerate(_keys([3, 2**depth - 1], [1, 5], depth, bits)):
    packed = keys.to_bytes()
    assert packed.shape == (2, -(-length // 8))
    again = comparison.from_bytes(packed, party=party, depth=depth,
                                  value_bits=bits)
    for name in ('roots', 'seeds', 'values', 'controls', 'last'):
      np.testing.assert_array_equal(getattr(again, name), getattr(keys, name))
  with pytest.raises(ValueError, match='rows of'):
    comparison.from_bytes(packed[:, 1:], party=1, depth=depth, value_bits=bits)


@pytest.mark.parametrize('party', [0, 1])
@pytest.mark.parametrize('alpha,beta', [(0, 1), (21, 0), (31, 1)])
def test_a_key_alone_is_random_bits(party, alpha, beta):
  """A single key looks like random bits; the test fails
  once in 10^6 by chance."""
  keys = _keys(np.full(10000, alpha), np.full(10000, beta), 5, 16)[party]
  bits = np.unpackbits(keys.to_bytes(), axis=1)[
      :, :comparison.key_bits(5, 16)]
  squares = (bits.mean(0) - 0.5)**2 * 4 * len(bits)
  assert stats.chi2.sf(squares.sum(), len(squares)) > 1e-6
  pairs = np.corrcoef(bits[:, -60:].T)[np.triu_indices(60, 1)]
  assert stats.chi2.sf((pairs**2).sum() * len(bits), len(pairs)) > 1e-6


@pytest.mark.parametrize('bits', [1, 63, 64])
def test_control_bits_are_no_bits_of_values(bits):
  """Control bits are independent of values, which would
  reveal the other key."""
  seeds = prg.words(prg.Stream(bytes(32)), (100, 2))
  values, controls = comparison._values_and_controls(seeds, bits)
  assert set(np.unique(controls)) == {0, 2**64 - 1}
  for place in range(bits):
    of_values = (values >> np.uint64(place)) & np.uint64(1)
    assert 20 < (of_values == controls & np.uint64(1)).sum() < 180


@pytest.mark.slow
def test_no_bit_of_the_correction_words_is_idle():
  """Every bit of correction words matters, except unread bits of last seeds."""
  depth, bits = 3, 8
  packed = [keys.to_bytes() for keys in _keys([5], [77], depth, bits)]
  length = comparison.key_bits(depth, bits)
  idle = range(128 * depth, 128 * depth + 128)

  def curve(place):
    total = np.zeros(8, np.uint64)
    for party, row in enumerate(packed):
      flipped = np.unpackbits(row, axis=1)
      flipped[:, place] ^= np.uint8(place is not None)
      keys = comparison.from_bytes(np.packbits(flipped, axis=1), party=party,
                                   depth=depth, value_bits=bits)
      total += comparison.sums(keys)
    return (total & _mask(bits)).tolist()

  assert curve(None) == [77] * 5 + [0] * 3
  for place in range(128, length):
    if place not in idle:
      assert curve(place) != [77] * 5 + [0] * 3, place


def test_what_cannot_be_compared_is_refused():
  with pytest.raises(ValueError, match='below 2.3'):
    _keys([8], [1], 3, 8)
  with pytest.raises(ValueError, match='at most 64'):
    _keys([1], [1], 3, 65)
  with pytest.raises(ValueError, match='whole'):
    _keys([1.5], [1], 3, 8)
