"""Tests noisy sums of vectors: exact encoding, shares, noise and its cost."""

import fractions
import itertools
import math
import random

import hypothesis
from hypothesis import strategies
import numpy as np
import pytest
from scipy import stats

from dpjax.mpc import additive
from dpjax.mpc import packing
from dpjax.mpc import prg
from dpjax.mpc import vector_sums
from dpjax.mpc.vector_sums import VectorSum
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency

Fraction = fractions.Fraction


def _sum(**kwargs):
  return VectorSum(**dict(length=3, num_servers=3, bound=1.5,
                          granularity_bits=8, value_bits=20) | kwargs)


def _opened(summed, units, source, noise=None):
  """Returns the opened sum of the owners' integers [n, d]."""
  sent = summed.shares(units, source=source)
  assert [rows.shape[1] for rows in sent] == list(
      map(summed.message_bytes, range(summed.num_servers)))
  zero = np.zeros(summed.length, np.int64)
  return summed.combine({
      server: summed.add_noise(summed.aggregate(server, rows),
                               zero if noise is None else noise[server])
      for server, rows in enumerate(sent)})


@pytest.mark.parametrize('num_servers', [2, 3, 5])
@pytest.mark.parametrize('value_bits', [13, 33, 64])
def test_sums_are_exact_before_noise(num_servers, value_bits, monkeypatch):
  monkeypatch.setattr(vector_sums, '_NUMBERS', 16)  # several chunks of owners
  summed = _sum(num_servers=num_servers, value_bits=value_bits)
  rng = np.random.default_rng(value_bits)
  vectors = rng.uniform(-0.8, 0.8, (12, 3))
  units = summed.encode(vectors)
  assert (units < 0).any() and (units > 0).any()
  source = prg.Stream(bytes(32))
  for owners in (range(12), [3, 5], []):  # the rest has dropped out
    chosen = list(owners)
    np.testing.assert_array_equal(
        _opened(summed, units[chosen], source), units[chosen].sum(0))
  np.testing.assert_allclose(summed.decode(units), vectors, rtol=0,
                             atol=1.5 / 2**8)


@pytest.mark.parametrize('num_owners', [1, 7, 8, 9])
def test_the_largest_sums_just_fit_in_the_bits_of_the_formula(num_owners):
  bits = vector_sums.value_bits(num_owners, num_servers=2, granularity_bits=3,
                                noise_variance=0)
  summed = _sum(length=1, num_servers=2, granularity_bits=3, value_bits=bits)
  summed.check_width(num_owners)
  for sign in (1, -1):
    units = summed.encode(np.full((num_owners, 1), sign * 1.5))
    assert _opened(summed, units, prg.system) == [sign * 8 * num_owners]
  narrow = _sum(length=1, num_servers=2, granularity_bits=3,
                value_bits=bits - 1)
  with pytest.raises(ValueError, match=f'need numbers of {bits} bits'):
    narrow.check_width(num_owners)
  most = 2**(bits - 2) // 8  # sums of this many owners leave the smaller range
  units = np.full((most, 1), 8)
  assert _opened(narrow, units, prg.system) == [-2**(bits - 2)]


def test_the_formula_of_bits_has_room_for_noise_of_all_servers():
  bits = vector_sums.value_bits(4, num_servers=9, granularity_bits=2,
                                noise_variance=2**20)
  # 4 2^2 + 12 sqrt(9 2^20) + 1 = 36881 has 16 bits, and one bit is the sign.
  assert bits == 17


_EXTREME = strategies.one_of(
    strategies.floats(-1.5, 1.5, allow_subnormal=True),
    strategies.integers(-256, 256).map(lambda unit: unit * 1.5 / 256),
    strategies.integers(-256, 256).map(
        lambda unit: math.nextafter(unit * 1.5 / 256, 0)),
    strategies.sampled_from([5e-324, -5e-324, 2.2e-308, 0.0, -0.0]))


@hypothesis.settings(max_examples=300, deadline=None, derandomize=True)
@hypothesis.given(strategies.lists(_EXTREME, min_size=3, max_size=3),
                  strategies.sampled_from([1.5, 1 / 3, 2**.5, 1e-12, 1e12]))
def test_encoding_rounds_toward_zero_exactly(vector, bound):
  summed = _sum(bound=bound)
  vector = np.array([vector]) * (bound / 1.5)
  norm = sum(Fraction(float(x))**2 for x in vector[0])
  try:
    units, = summed.encode(vector)
  except ValueError as error:
    # Only a vector that is really too long is refused.
    assert 'above bound' in str(error)
    assert norm > Fraction(bound)**2
    return
  grain = Fraction(bound) / 2**8
  for x, unit in zip(vector[0], units.tolist(), strict=True):
    gap = abs(Fraction(float(x))) - abs(unit) * grain
    assert 0 <= gap < grain and unit * x >= 0
  assert sum(unit**2 for unit in units.tolist()) <= 4**8
  assert sum(unit**2 for unit in units.tolist()) * grain**2 <= norm


def test_a_quotient_that_floats_round_up_to_an_integer_is_rounded_down():
  """Some floats just below a multiple of S / 2^b have a quotient that rounds
  up to it; the exact comparison takes those down."""
  corrected = 0
  for unit in range(1, 257):
    bound = 1 / 3
    summed = _sum(length=1, bound=bound)
    below = unit * bound / 256
    while Fraction(below) >= unit * Fraction(bound) / 256:
      below = math.nextafter(below, 0)
    corrected += below / bound * 256 == unit
    assert summed.encode(np.array([[below]])) == [[unit - 1]]
  assert corrected > 10


@pytest.mark.parametrize('entry', [
    math.nan, math.inf, -math.inf, 1e308, -1.7e308, 1.5000001, 3e38])
def test_entries_that_are_not_finite_or_too_large_are_refused(entry):
  vectors = np.array([[0.0, 0.1, 0.2], [0.0, entry, 0.0]])
  with pytest.raises(ValueError, match='finite' if not math.isfinite(entry)
                     else 'vector 1 has an l2 norm above bound = 1.5'):
    _sum().encode(vectors)
  assert _sum().encode(vectors[:1]).tolist() == [[0, 17, 34]]


def test_nothing_is_clipped_at_the_bound():
  summed = _sum(length=2, bound=1.0, granularity_bits=4)
  assert summed.encode(np.array([[0.6, 0.8]])).tolist() == [[9, 12]]
  assert summed.encode(np.array([[0.0, -1.0]])).tolist() == [[0, -16]]
  for vector in ([1.0, 0.0625], [0.8, 0.8]):
    with pytest.raises(ValueError, match='vector 0 has an l2 norm above'):
      summed.encode(np.array([vector]))
  # Each entry has 2^15 units at most, so squares fit in int64 at any length.
  long = _sum(length=2**20, granularity_bits=20)
  with pytest.raises(ValueError, match='above bound'):
    long.encode(np.full((1, 2**20), 1.5))


def test_the_sensitivity_is_attained_and_never_exceeded():
  """All pairs of integer vectors that `encode` lets pass, in two dimensions."""
  summed = _sum(length=2, bound=1.0, granularity_bits=3)
  passed = []
  for unit in itertools.product(range(-9, 10), repeat=2):
    try:
      passed.append(summed.encode(np.array([unit]) / 8)[0])
    except ValueError:
      continue
  points = np.stack(passed)
  assert len({tuple(point) for point in points.tolist()}) == len(points) == 197
  gaps = np.square(points[:, np.newaxis] - points).sum(-1)
  assert gaps.max() == summed.l2_sensitivity**2 == 16**2


def _noise(summed, seed):
  draw = random.Random(seed)
  return np.stack([summed.draw_noise(draw.randrange)
                   for _ in range(summed.num_servers)])


def test_noise_has_the_distribution_of_sums_over_servers():
  """The total of three servers' noise, and that of one, at level 10^-6.

  The draws have a fixed seed, so that the test passes always or never.
  """
  summed = _sum(length=4000, noise_variance=7)
  noise = _noise(summed, 5)
  values = np.arange(-60, 61)
  one = np.exp(-values**2 / (2 * 7))
  one /= one.sum()
  three = np.convolve(np.convolve(one, one, 'same'), one, 'same')
  opened = _opened(summed, np.zeros((1, 4000), np.int64), prg.system, noise)
  np.testing.assert_array_equal(opened, noise.sum(0))
  for drawn, probs in ((noise[1], one), (opened, three)):
    edges = np.unique(np.searchsorted(np.cumsum(probs), np.arange(1, 20) / 20))
    expected = 4000 * np.diff(np.cumsum(probs)[edges], prepend=0.0, append=1.0)
    counts = np.bincount(np.searchsorted(values[edges], drawn),
                         minlength=expected.size)
    assert stats.chisquare(counts, expected).pvalue > 1e-6
  # Servers draw independently: within 5 standard errors of no correlation.
  assert abs(np.corrcoef(noise)[np.triu_indices(3, 1)]).max() < 5 / 4000**.5
  assert not _sum().draw_noise().any()


def test_noise_of_the_system_is_drawn_anew():
  summed = _sum(length=50, noise_variance=10**12)
  assert (summed.draw_noise() != summed.draw_noise()).any()


@pytest.mark.parametrize('honest', range(3))
def test_messages_to_two_of_three_servers_are_fair_bits(honest):
  """Bits of two messages, and their exclusive or, are fair for extreme vectors.

  Each test fails by chance once in 10^6; the seed is fixed.
  """
  summed = _sum(length=2, value_bits=20)
  for secret in ([256, 0], [0, -256]):
    sent = summed.shares(np.tile(secret, (4000, 1)),
                         source=prg.Stream(bytes([honest]) * 32))
    shares = [additive.expand(packing.unpack(
        rows, summed.layout(server))[0][0], 2, value_bits=20)
              if server < 2 else packing.unpack(
                  rows, summed.layout(2))[0][0]
              for server, rows in enumerate(sent)]
    seen = [share for server, share in enumerate(shares) if server != honest]
    for values in (*seen, seen[0] ^ seen[1], seen[0] + seen[1]):
      bits = (values[..., np.newaxis] >> np.arange(20).astype(np.uint64)) & (
          np.uint64(1))
      squares = (bits.mean(0) - 0.5)**2 * 4 * len(bits)
      assert stats.chi2.sf(squares.sum(), squares.size) > 1e-6


def test_messages_that_nobody_sends_are_found():
  summed = _sum(value_bits=19)  # 57 bits: seven bits of padding
  payloads = summed.shares(np.zeros((3, 3), np.int64), source=prg.system)[2]
  assert not summed.faults(2, payloads).any()
  payloads[1, -1] |= 1
  assert summed.faults(2, payloads).tolist() == [False, True, False]
  with pytest.raises(ValueError, match='message 1 '):
    summed.aggregate(2, payloads)
  with pytest.raises(ValueError, match='rows of 16 bytes'):
    summed.aggregate(0, payloads)
  answers = {server: np.zeros(3, np.uint64) for server in range(3)}
  assert not summed.combine(answers).any()
  for wrong in ({0: answers[0], 2: answers[2]}, answers | {3: answers[0]}):
    with pytest.raises(ValueError, match='all 3 servers have to answer'):
      summed.combine(wrong)


@pytest.mark.sound
@pytest.mark.parametrize('epsilon, num_sums', [(0.1, 1), (1.0, 30), (8.0, 7)])
def test_the_cost_is_that_of_the_sensitivity_and_meets_the_target(
    epsilon, num_sums):
  bits = 12
  variance = vector_sums.calibrated_variance(
      epsilon=epsilon, delta=1e-6, num_sums=num_sums, granularity_bits=bits)
  summed = _sum(granularity_bits=bits, noise_variance=variance)
  # Delta^2 / (2 sigma^2) with Delta = 2 2^b, and T sums cost T times it.
  rho = Fraction((2 * 2**bits)**2, 2 * variance)
  assert rho <= Fraction(summed.rho) <= rho * (1 + Fraction(1, 10**12))
  event = accounting.concentrated_event(
      rho=float(num_sums * rho), adjacency=Adjacency.REPLACE_ONE)
  spent = summed.epsilon(delta=1e-6, num_sums=num_sums)
  assert spent == pytest.approx(accounting.epsilon(
      event, delta=1e-6, adjacency=Adjacency.REPLACE_ONE, accountant='rdp'))
  assert 0.995 * epsilon < spent <= epsilon
  # It is at least what a Gaussian of this variance costs, and near to it.
  shift = math.sqrt(2 * num_sums * float(rho))
  gaussian = accounting.gaussian_epsilon(shift=shift, delta=1e-6)
  assert gaussian <= spent < 1.35 * gaussian
  assert summed.noise_stddev == pytest.approx(
      math.sqrt(3 * variance) * 1.5 / 2**bits)
  bare = _sum()
  assert bare.rho == bare.epsilon(delta=1e-6, num_sums=1) == math.inf


@pytest.mark.parametrize('kwargs, message', [
    (dict(length=0), 'length'), (dict(num_servers=1), 'num_servers'),
    (dict(bound=0.0), 'bound'), (dict(bound=math.inf), 'bound'),
    (dict(granularity_bits=0), 'granularity_bits'),
    (dict(granularity_bits=31), 'granularity_bits must be at most 30'),
    (dict(length=2**20, granularity_bits=21), 'at most 20'),
    (dict(noise_variance=-1), 'noise_variance'),
    (dict(noise_variance=0.5), 'noise_variance'),
    (dict(value_bits=65), 'at most 64'), (dict(value_bits=1), 'value_bits')])
def test_bad_parameters_are_refused(kwargs, message):
  with pytest.raises(ValueError, match=message):
    _sum(**kwargs)
  with pytest.raises(ValueError, match=r'vectors must be \[n, 3\]'):
    _sum().encode(np.zeros((2, 4)))
