"""Tests dpjax.stats.quantile_methods.recursive: samples, privacy, waste."""

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods import recursive
from tests.stats.quantile_methods import brute

ADD, REPLACE = brute.ADD, brute.REPLACE
KEY = jax.random.key(63)
NUM_DRAWS = 20_000


def make(probs, cost='real', epsilon=4., adjacency=REPLACE, budget='depth'):
  return recursive.RecursiveQuantiles(
      probs=tuple(probs), epsilon=epsilon, lower=0., upper=1., cost=cost,
      adjacency=adjacency, budget=budget)


def drawn(one, data, count):
  """Returns releases [count, m]."""
  with jax.enable_x64(True):
    return np.asarray(jax.jit(jax.vmap(one.draw, (0, None, None)))(
        jax.random.split(KEY, count), records.padded(data, 0., 1.),
        one.parameters))


FEW = np.array([.1, .25, .25, .7])


@pytest.mark.slow
@pytest.mark.parametrize('data, probs, cost', [
  (np.arange(52)**2 / 2704, (.3,), 'interpolated'), (FEW, (.3, .8), 'real'),
  (FEW, (.2, .5, .9), 'rounded')])
def test_laws_of_few_orders_are_those_of_enumeration(data, probs, cost):
  """Few levels have the enumerated distribution, by chi-square (QT-01).

  There are 20 000 draws at level 1e-4. With 52 records the node chooses among 8
  rows of 8 intervals.
  """
  one = make(probs, cost, epsilon=.2 * (20 if data is FEW else 1))
  probs_at = brute.recursive_probs(data, probs, one.parameters.rates, cost)
  assert probs_at.sum() == pytest.approx(1, abs=1e-9)
  ranks = np.searchsorted(data, drawn(one, data, NUM_DRAWS))
  counts = np.zeros(probs_at.shape)
  np.add.at(counts, tuple(ranks.T), 1)
  assert not counts[probs_at == 0].any() and probs_at[probs_at == 0].size
  often = probs_at * NUM_DRAWS >= 5
  expected = np.append(probs_at[often], probs_at[~often].sum()) * NUM_DRAWS
  pooled = np.append(counts[often], counts[~often].sum())
  keep = expected > 1
  assert stats.chisquare(pooled[keep], expected[keep] * pooled[keep].sum()
                         / expected[keep].sum()).pvalue > 1e-4


def reference(rng, data, low, high, known, node_rates, answers, span):
  """Fills in RecExp's answers by recursion on copies of the records."""
  first, last = span
  if last - first < 2:
    return
  middle = (first + last) // 2
  prob = (known[middle] - known[first]) / (known[last] - known[first])
  ends = np.concatenate([[low], data, [high]])
  logs = np.log(np.diff(ends)) - node_rates[middle - 1] * np.abs(
      np.arange(len(data) + 1) - prob * len(data))
  masses = np.cumsum(np.exp(logs - logs.max()))
  place = np.searchsorted(masses, rng.random() * masses[-1])
  point = ends[place] + rng.random() * (ends[place + 1] - ends[place])
  answers[middle - 1] = point
  for part, bounds, half in ((data[:place], (low, point), (first, middle)),
                             (data[place:], (point, high), (middle, last))):
    reference(rng, part, *bounds, known, node_rates, answers, half)


@pytest.mark.every(2)
def test_many_orders_are_those_of_a_recursion():
  """Many levels have the recursion's distribution, by Kolmogorov (QT-02).

  Eleven coordinates are tested at level 1e-3 in all. Nodes of the last level
  are at two depths, and some have no records.
  """
  rng = np.random.default_rng(9)
  data = np.sort(rng.beta(2, 5, 60))
  one = make(np.sort(rng.random(11)), epsilon=20.)
  expected = np.empty([2000, 11])
  for row in expected:
    reference(rng, data, 0., 1., [0., *one.probs, 1.], one.parameters.rates,
              row, (0, 12))
  answers = drawn(one, data, 4000)
  assert np.all(np.diff(answers) > 0)
  for mine, theirs in zip(answers.T, expected.T, strict=True):
    assert stats.ks_2samp(mine, theirs).pvalue > 1e-3 / 11


def test_the_tree_is_balanced():
  """The tree has each level once, in ceil(log2(m + 1)) halvings."""
  for number in [*range(1, 40), 127, 128]:
    known = {0, number + 1}
    levels = quantile_levels.halvings(number)
    assert len(levels) == rates.depth(number) == number.bit_length()
    for nodes in levels:
      assert set(nodes[:, [0, 2]].ravel()) <= known
      assert not set(nodes[:, 1]) & known
      known |= set(nodes[:, 1])
    assert known == set(range(number + 2))
  np.testing.assert_allclose(quantile_levels.relative([.1, .3, .5, .7, .9]),
                             [1 / 5, 1 / 2, 1 / 2, 2 / 5, 2 / 3])


def worst(probs, node_rates, cost, adjacency, count=1200):
  rng = np.random.default_rng(10)
  return max(brute.worst_recursive_loss(
      rng, brute.pairs(rng, count, size, spread, adjacency), 15, probs,
      node_rates, cost) for size, spread in ((3, 3), (6, 3), (3, 8), (6, 8)))


@pytest.mark.every(4)
@pytest.mark.parametrize('adjacency', [ADD, REPLACE])
@pytest.mark.parametrize('cost', independent.COSTS)
@pytest.mark.parametrize('probs', [(.5,), (.25, .5, .75), (.1, .4, .95)])
def test_neighbours_differ_by_epsilon(probs, cost, adjacency):
  """Neighbours differ by epsilon at most, nearly attained for even levels."""
  check_epsilon(probs, cost, adjacency)


@pytest.mark.sound
@pytest.mark.parametrize('adjacency', [ADD, REPLACE])
def test_neighbours_differ_by_epsilon_at_real_costs(adjacency):
  check_epsilon((.25, .5, .75), 'real', adjacency)


def check_epsilon(probs, cost, adjacency):
  one = make(probs, cost, 1., adjacency)
  loss = worst(probs, one.parameters.rates, cost, adjacency)
  assert loss <= 1 + 1e-9
  assert loss >= (.95 if probs[-1] < .9 else .8)


@pytest.mark.parametrize('probs', [(.5,), (.25, .5, .75)])
def test_the_budget_of_addition_is_too_much_for_replacement(probs):
  """Rates for adding a record cost twice epsilon for replacing one (QT-04)."""
  node_rates = make(probs, adjacency=ADD, epsilon=1.).parameters.rates
  assert worst(probs, node_rates, 'real', REPLACE) == pytest.approx(2, rel=.06)


@pytest.mark.every(3)
@pytest.mark.parametrize('cost, adjacency, number, spent', [
  ('rounded', REPLACE, 1, .5), ('rounded', REPLACE, 3, .56),
  ('rounded', ADD, 1, 1.), ('rounded', ADD, 3, .774),
  ('real', REPLACE, 1, 1.), ('real', REPLACE, 3, .774)])
def test_the_printed_budget_is_wasted(cost, adjacency, number, spent):
  """The printed budget spends 2 / (log2(3) + 1) of epsilon for 3 levels
  (QE-21).

  Under replacement with rounded targets it spends about half of epsilon. With
  real targets, as Kaplan, Schnapp and Stemmer have them, the printed half is
  what replacement needs.
  """
  probs = np.arange(1, number + 1) / (number + 1)
  node_rates = make(probs, cost, 1., adjacency, 'printed').parameters.rates
  loss = worst(probs, node_rates, cost, adjacency)
  assert loss == pytest.approx(spent, rel=.03) and loss <= 1 + 1e-9


def test_rates_of_the_table():
  """Rates are QB-02's for m = 5, and the printed ones
  those of Lalanne (2023)."""
  probs, levels = (.1, .3, .5, .7, .9), 3
  changes = np.array([.8, .5, .5, .6, 2 / 3])
  rates_of = lambda *args: make(probs, *args).parameters.rates
  np.testing.assert_allclose(rates_of('real', 1., ADD),
                             1 / (2 * levels * changes))
  expected = 1 / (4 * levels * changes)
  expected[2] = 1 / (2 * levels)
  np.testing.assert_allclose(rates_of('real', 1., REPLACE), expected)
  np.testing.assert_allclose(rates_of('interpolated', 1., REPLACE), expected)
  np.testing.assert_allclose(rates_of('rounded', 1., REPLACE),
                             np.array([1, 1, 2, 1, 1]) / (4 * levels))
  printed = 1 / (np.log2(5) + 1)
  np.testing.assert_allclose(rates_of('rounded', 1., ADD, 'printed'),
                             [printed / 2] * 5)
  np.testing.assert_allclose(rates_of('rounded', 1., REPLACE, 'printed'),
                             [printed / 4] * 5)
  np.testing.assert_allclose(rates_of('real', 1., REPLACE, 'printed'),
                             printed / 4 / changes)


@pytest.mark.slow
def test_rows_of_any_length_hold_all_intervals():
  """With a large budget each level gets its rank, for any length of rows."""
  rng = np.random.default_rng(12)
  for size, number in ((300, 2), (7, 40)):
    data = np.sort(rng.random(size))
    one = make(np.arange(1, number + 1) / (number + 1), epsilon=1e5)
    answers = one.estimate(KEY, data)
    ranks = np.searchsorted(data, answers)
    assert np.all(np.diff(answers) > 0)
    assert np.abs(ranks - size * np.array(one.probs)).max() <= (
        rates.depth(number))
  with pytest.raises(ValueError, match='budget must be one of depth, printed'):
    make((.5,), budget='all')
