"""Tests dpjax.privacy.integers: the exact distribution of draws."""

import dataclasses
from fractions import Fraction
import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import additive
from dpjax.privacy import integers

KEY = jax.random.key(5)
UNIT = 2**integers.RESOLUTION
TABLES = {
  'gaussian': lambda: integers.discrete_gaussian(2.5),
  'narrow': lambda: integers.discrete_gaussian(.3),
  'rounded': lambda: integers.rounded_gaussian(2.5),
  'laplace': lambda: integers.discrete_laplace(1.7),
  'digit': lambda: integers.geometric_digits(300., 64)[0]}
DRAWS = 200_000


def ideal(name, x):
  """Returns the probability that the table rounds, with 300 bits."""
  x = mpmath.mpf(int(x))
  if name in ('gaussian', 'narrow'):
    s = mpmath.mpf(2.5 if name == 'gaussian' else .3)
    total = mpmath.nsum(lambda k: mpmath.exp(-(k / s)**2 / 2), [-60, 60])
    return mpmath.exp(-(x / s)**2 / 2) / total
  if name == 'rounded':
    return mpmath.quad(lambda y: mpmath.npdf(y, 0, 2.5), [x - .5, x + .5])
  if name == 'laplace':
    a = mpmath.exp(-1 / mpmath.mpf(1.7))
    return (1 - a) / (1 + a) * a**abs(x)
  a = mpmath.exp(-1 / mpmath.mpf(300))
  return a**x / sum(a**k for k in range(64)) if 0 <= x < 64 else 0


def columns_of(table):
  """Returns (threshold, alias) of each column as integers."""
  bits = table.column_bits
  return [
      (((int(e) >> bits) << 64) + (int(m) << 32) + int(t), int(e) % 2**bits)
      for e, m, t in zip(table.entries, table.middle, table.last, strict=True)
  ]


def drawn_weights(table):
  """Returns 2^96 times each outcome's probability, by the table's arrays."""
  room = 2**(96 - table.column_bits)
  weights = [0] * len(table.weights)
  for column, (threshold, alias) in enumerate(columns_of(table)):
    weights[column] += threshold
    weights[alias] += room - threshold
  return weights


def check_columns(table):
  assert sum(table.weights) == UNIT and min(table.weights) >= 0
  assert drawn_weights(table) == list(table.weights)


@pytest.mark.parametrize('name', TABLES)
def test_columns_draw_the_weights_exactly(name):
  check_columns(TABLES[name]())


def test_columns_of_any_weights():
  rng = np.random.default_rng(0)
  for bits in range(1, 8):
    parts = np.sort(rng.integers(0, 2**62, 2**bits - 1)).tolist()
    cuts = [0, *(part * 2**34 for part in parts), UNIT]
    table = dataclasses.replace(
      integers.discrete_gaussian(.3), weights=tuple(np.diff(
        np.array(cuts, object))), **integers._columns(
          list(np.diff(np.array(cuts, object))), bits))
    check_columns(table)


def test_fault_one_entry_shifted():
  table = integers.discrete_gaussian(2.5)
  for field in ('entries', 'middle', 'last'):
    shifted = np.roll(getattr(table, field), 1)
    with pytest.raises(AssertionError):
      check_columns(dataclasses.replace(table, **{field: shifted}))


@pytest.mark.parametrize('name', TABLES)
def test_total_variation_is_what_is_said(name):
  table = TABLES[name]()
  # Values outside the table are included.
  outside = range(table.first - 3, table.first + len(table.weights) + 3)
  weights = dict(zip(range(table.first, table.first + len(table.weights)),
                     table.weights, strict=True))
  with mpmath.workprec(220):
    error = sum(abs(ideal(name, x) - mpmath.mpf(weights.get(x, 0)) / UNIT)
                for x in outside) / 2
    assert table.total_variation - 2.**-95 <= error + mpmath.mpf(2)**-96
    assert error <= table.total_variation < 1e-25


def test_total_variation_allows_for_errors_of_exact_probabilities():
  """Exact weights leave no remainder, but each may be wrong by 2^-130."""
  for num_outcomes in (1, 2, 8):
    table = integers.make_table(0,
                                [mpmath.mpf(1) / num_outcomes] * num_outcomes)
    assert sum(table.weights) == UNIT
    assert num_outcomes * 2.**-130 < table.total_variation < 2.**-95


def test_a_table_is_filled_to_its_last_place():
  size = 2**13
  with mpmath.workprec(160):
    table = integers.make_table(0, [mpmath.mpf(1) / size] * size)
    assert table.weights == (UNIT // size,) * size
    with pytest.raises(ValueError, match='8192 outcomes at most, got 8193$'):
      integers.make_table(0, [mpmath.mpf(1) / size] * (size + 1))


@pytest.mark.parametrize('name', ['gaussian', 'narrow', 'rounded', 'laplace'])
def test_laws_are_symmetric(name):
  table = TABLES[name]()
  size = 1 - 2 * table.first
  assert table.weights[:size] == table.weights[:size][::-1]
  assert not any(table.weights[size:])


def words_around(table):
  """Returns words beside every threshold, and the outcomes they must give."""
  bits, words, outcomes = table.column_bits, [], []
  for column, (threshold, alias) in enumerate(columns_of(table)):
    room = 2**(96 - bits)
    for value in {0, threshold - 1, threshold, threshold + 1,
                  threshold - 2**32, threshold + 2**32, threshold - 2**64,
                  threshold + 2**64, room - 1}:
      if 0 <= value < room:
        words.append((column * 2**(32 - bits) + (value >> 64),
                      (value >> 32) % 2**32, value % 2**32))
        outcomes.append(table.first + (column if value < threshold else alias))
  return np.array(words, np.uint32), np.array(outcomes)


@pytest.mark.parametrize('name', TABLES)
def test_words_decide_as_the_columns_say(name):
  table = TABLES[name]()
  words, outcomes = words_around(table)
  high, low, tie = (jnp.asarray(column) for column in words.T)
  drawn = jax.jit(functools.partial(integers._look_up, table))(high, low, tie)
  np.testing.assert_array_equal(drawn, outcomes)


@pytest.mark.every(2)
@pytest.mark.parametrize('name', TABLES)
def test_draws_have_the_law(name):
  """Draws pass chi-square at 1e-6, and a sign bias of 2 percent fails it."""
  table = TABLES[name]()
  drawn = np.asarray(integers.draw(table, KEY, (DRAWS,)))

  def statistic(values):
    counts = np.bincount(values - table.first, minlength=len(table.weights))
    expected = np.array([w / UNIT for w in table.weights]) * DRAWS
    common = expected >= 20
    seen = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    if wanted[-1] < 1e-3:
      seen, wanted = seen[:-1], wanted[:-1]
    return np.sum((seen - wanted)**2 / wanted), len(wanted) - 1

  chi_square, freedom = statistic(drawn)
  assert chi_square < stats.chi2(freedom).isf(1e-6)
  if name in ('gaussian', 'rounded', 'laplace'):
    biased = np.where(np.arange(DRAWS) % 25 == 0, np.abs(drawn), drawn)
    assert statistic(biased)[0] > stats.chi2(freedom).isf(1e-6)
  neighbours = np.corrcoef(drawn[1:], drawn[:-1])[0, 1]
  assert abs(neighbours) < 5 / DRAWS**.5


@pytest.mark.every(2)
def test_draws_of_places_and_rows(monkeypatch):
  table = integers.discrete_gaussian(2.5)
  count = integers.num_places((1000,))
  first, again, other = (np.asarray(integers.draw(table, KEY, (1000,), start))
                         for start in (0, 0, count))
  np.testing.assert_array_equal(first, again)
  assert np.mean(first == other) < .3
  used = []
  honest = additive.random_pairs
  monkeypatch.setattr(additive, 'random_pairs', lambda key, shape, start=0: (
    used.append((start, start + np.prod(shape))), honest(key, shape, start))[1])
  rows = np.asarray(integers.draw_rows(table, KEY, (3, 1000)))
  integers.draw(table, KEY, (10, 5), 7)
  assert used == [(0, 3000), (3000, 3003), (7, 57), (57, 58)]
  assert integers.num_places((10, 5)) == 51
  assert abs(np.corrcoef(rows)[~np.eye(3, dtype=bool)]).max() < 5 / 1000**.5
  assert rows.std() == pytest.approx(2.5, rel=.1)


def test_ties_are_what_shares_a_word():
  table = integers.discrete_gaussian(2.5)
  assert table.column_bits == 6
  # This is the chance that any of 10 pairs of draws tie, in 58 bits twice.
  assert integers.tie_variation(table, 5) == pytest.approx(12.5 * 2.**-116)


# -- Sums of multiples.


def pmf(table):
  return {
      table.first + i: Fraction(w, UNIT)
      for i, w in enumerate(table.weights)
      if w
  }


@pytest.mark.parametrize('first, second, multiplier', [
  (1.5, 3., 1), (2., 2., 2), (2.5, 4., 3), (2., 1.3, 3)])
def test_convolutions_are_as_near_as_said(first, second, multiplier):
  """Z1 + k Z2 is within the stated distance of the discrete Gaussian."""
  total = {}
  for x, p in pmf(integers.discrete_gaussian(first)).items():
    for y, q in pmf(integers.discrete_gaussian(second)).items():
      z = x + multiplier * y
      total[z] = total.get(z, 0) + p * q
  with mpmath.workprec(200):
    width = mpmath.sqrt(first**2 + (multiplier * second)**2)
    masses = {z: mpmath.exp(-(z / width)**2 / 2) for z in total}
    scale = mpmath.fsum(masses.values())
    error = float(sum(
      abs(mpmath.mpf(p.numerator) / p.denominator - masses[z] / scale)
      for z, p in total.items()) / 2)
  bound = integers.convolution_variation(first, second, multiplier)
  assert error <= bound <= 4 * error + 1e-24
  assert integers.convolution_variation(1., 1., 100) == 1.


def test_digits_make_a_geometric_number():
  scale, base = 40., 16
  low, high = integers.geometric_digits(scale, base)
  with mpmath.workprec(200):
    ratio = mpmath.exp(-1 / mpmath.mpf(scale))
    error = sum(
      abs(mpmath.mpf(p) * q / UNIT**2 - (1 - ratio) * ratio**(x + base * y))
      for x, p in enumerate(low.weights)
      for y, q in enumerate(high.weights)) / 2
  assert error < 2**-84
  assert len(low.weights) == base


@pytest.mark.parametrize('make, message', [
  (lambda: integers.discrete_gaussian(362.), 'stddev must be at most 361'),
  (lambda: integers.rounded_gaussian(0.), 'stddev must be a positive number'),
  (lambda: integers.discrete_laplace(62.), 'scale must be at most 60.4'),
  (lambda: integers.geometric_digits(2e3, 16), 'a table holds 8192 out'),
])
def test_refusals(make, message):
  with pytest.raises(ValueError, match=f'^{message}'):
    make()
