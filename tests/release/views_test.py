"""Tests reports on scores and curves: bands, areas, groups and p-values."""

import decimal
import fractions
import itertools
import math
import types

import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import bands
from dpjax.release import calibration
from dpjax.release import classifiers
from dpjax.release import density_bands
from dpjax.release import grids
from dpjax.release import lattice
from dpjax.release import registry
from dpjax.release import trees
from dpjax.release.costs import Cost
from dpjax.release.query import Query

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency
_MISSES = (Fraction(1, 100), Fraction(1, 20), Fraction(3, 10), Fraction(1, 2))


def _plan(statistic, **fields):
  return registry.plan(Query(**{
      'statistic': statistic, 'adjacency': _AR, 'epsilon': Fraction(1),
      'column': 's', 'label': 'y', 'positive': '1', 'lower': Decimal(0),
      'upper': Decimal(1), 'thresholds': 4, 'confidence': Fraction(9, 10),
      **fields}))


class _Even:
  """A tree whose errors are 1, ..., R, in random order."""

  def errors(self, number, generator):
    """Returns [number] errors [1, 1]."""
    return 1 + generator.permutation(number)[:, np.newaxis, np.newaxis]

  def normal_errors(self, number, generator):
    """Returns errors of deviation 1."""
    del generator
    return np.ones((number, 1, 1))


@pytest.mark.parametrize('miss', _MISSES)
def test_a_band_holds_as_many_simulations_as_make_it_exchangeable(miss):
  """A band holds ceil((1 - miss) (R + 1)) of R runs, so it is exchangeable."""
  runs = bands.num_runs(float(miss))
  wanted = math.ceil((1 - miss) * (runs + 1))
  width, = bands.widths(_Even(), lambda counts: counts, float(miss))
  assert np.sum(1 + np.arange(runs) <= width) == wanted
  generator, size = np.random.default_rng(0), density_bands.POINTS + 1

  def errors(number, masses, *, normal=False):
    del masses
    widths = np.ones(number) if normal else 1 + generator.permutation(number)
    yield np.tile(widths[:, np.newaxis], (1, size))

  widths, far = density_bands.Fit._widths(
      types.SimpleNamespace(_errors=errors), float(miss), None)
  assert {*widths.reshape(-1), far} == {float(wanted)}
  # The attained level varies little, and rare misses are detected.
  assert math.sqrt(miss * (1 - miss) / (runs + 2)) < .016
  assert runs * miss > 19.9


@pytest.mark.parametrize('replacing, known', [
    (True, True), (True, False), (False, False)])
def test_errors_leave_the_number_alone_only_where_it_is_public(
    replacing, known):
  tree = trees.Tree(num_bins=3, num_classes=2, cost=Cost(epsilon=Fraction(1)),
                    replacing=replacing, known=known)
  for errors in (tree.errors, tree.normal_errors):
    totals = [error.sum() for error in errors(9, np.random.default_rng(0))]
    assert (np.max(np.abs(totals)) < 1e-9) == known


def _area(negatives, positives):
  """Returns the fraction of pairs with the positive ahead; ties count half."""
  negatives, positives = (np.diff(np.append(shares[:-1], 1), prepend=0)
                          for shares in (negatives, positives))
  return sum(p * q * ((k > j) + .5 * (k == j))
             for (j, q), (k, p) in itertools.product(
                 enumerate(negatives), enumerate(positives)))


def _fit(ranks, **fields):
  ranks = np.array(ranks, float)
  shares = ranks / np.maximum(ranks[:, -1:], 1)
  return types.SimpleNamespace(ranks=ranks, shares=lambda: shares, **fields)


def test_the_area_is_between_those_of_all_curves_in_the_band(monkeypatch):
  plan, generator = _plan('auc'), np.random.default_rng(1)
  monkeypatch.setattr(classifiers, '_area_intervals',
                      lambda *_: [(.1, .9), (0., 1.)])
  lower = np.array([[[2., 9, 11, 20], [1, 2, 8, 30]],
                    [[18., 10, 8, 0], [29, 28, 22, 0]]])
  band = bands.Bands(lower, lower + [[[5.], [6]], [[2.], [5]]])
  fit = _fit([[3, 9, 12, 21], [2, 4, 12, 32]])
  answer = plan._auc(fit, band)
  negatives, positives = fit.shares()
  assert answer['value'] == pytest.approx(_area(negatives, positives))
  assert answer['ties'] == pytest.approx(
      np.diff(negatives, prepend=0)
      @ np.diff(positives, prepend=0)) == pytest.approx(
          (3 * 2 + 6 * 2 + 3 * 8 + 9 * 20) / (21 * 32))
  interval = answer['band_interval']
  low, high = band.shares()
  for _ in range(40):
    curves = np.sort(generator.uniform(low, high), -1)
    assert interval['lower'] <= _area(*curves) <= interval['upper']
  assert interval['lower'] == pytest.approx(_area(low[0], high[1]))
  assert interval['upper'] == pytest.approx(_area(high[0], low[1]))
  assert (answer['interval']['lower'], answer['interval']['upper']) == (.1, .9)
  # Nothing follows for a class that may be empty.
  for few in ([[3, 9, 12, 21], [0, .2, .3, .9]], [[0, 0, 0, 0], [1, 2, 3, 4]]):
    answer = plan._auc(_fit(few), band)
    assert answer['value'] == .5
    for name in ('interval', 'population_interval'):
      assert (answer[name]['lower'], answer[name]['upper']) == (0, 1)


@pytest.mark.parametrize('num_above', [0, 1, 39])
def test_p_values_count_the_release_among_the_simulations(
    num_above, monkeypatch):
  """A p-value counts the release among its runs, so it is
  at least 1 / (R + 1)."""
  plan = _plan('hosmer_lemeshow', groups=2)
  counts = np.array([[30., 20, 10, 5], [8, 12, 25, 30]])
  centres = (np.arange(4) + .5) / 4
  value = calibration.grouped(counts, centres, 2).statistic
  simulated = np.append(np.full(num_above, 2 * value),
                        np.full(39 - num_above, value / 2))
  monkeypatch.setattr(calibration, 'null_statistics', lambda *_: simulated)
  monkeypatch.setattr(classifiers.Classifier, '_table', lambda *_: [])
  answer = plan._hosmer_lemeshow(types.SimpleNamespace(counts=counts), None)
  assert answer['p_value'] == (1 + num_above) / 40
  assert answer['value'] == pytest.approx(value)
  assert answer['critical_value'] == np.quantile(simulated, .9)
  # Levels of whole hundredths are attained.
  assert (calibration.RUNS + 1) % 100 == 0


@pytest.mark.parametrize('width', [0., 3., 100.])
def test_shares_of_groups_are_in_their_intervals(width, monkeypatch):
  """Group intervals hold the released share and all within the widths."""
  plan = _plan('hosmer_lemeshow', groups=2)
  linear = np.array([[30., 20, 10, -5], [8, 12, 25, 30]])
  counts = np.array([[29., 19, 8, 0], [7, 11, 23, 28]])
  monkeypatch.setattr(bands, 'widths', lambda tree, sums, miss: [
      np.full(sums(linear).shape, width)])
  groups = calibration.grouped(counts, (np.arange(4) + .5) / 4, 2)
  table = plan._table(groups, types.SimpleNamespace(
      tree=None, linear=linear, counts=counts))
  assert len(table) == 2
  start = 0
  for row, end in zip(table, groups.ends, strict=True):
    interval = row['interval']
    released = counts[:, start:end + 1].sum(1)
    assert row['observed'] == pytest.approx(released[1] / released.sum())
    sums = linear[:, start:end + 1].sum(1)
    for signs in itertools.product((-1, 1), repeat=2):
      rest, positive = np.maximum(sums + width * np.array(signs), 0)
      share = positive / (positive + rest) if positive + rest else .5
      assert interval['lower'] - 1e-12 <= share <= interval['upper'] + 1e-12
    assert interval['lower'] <= row['observed'] <= interval['upper']
    start = end + 1


@pytest.mark.parametrize('known', [True, False])
def test_simulated_labels_know_the_number_where_it_is_public(known):
  totals = []
  counts = np.array([[30., 20.6, 10], [8, 12.2, 25]])

  class Tree:
    """A tree that records the arguments of its calls."""

    def __init__(self):
      self.known = known

    def nodes(self, counts):
      """Returns one level."""
      return [np.asarray(counts)]

    def simulated(self, generator):
      """Returns no noise."""
      return [0]

    def nonnegative(self, nodes, total):
      """Returns the counts themselves."""
      totals.append(total)
      return nodes[0].reshape(2, 3)

  calibration.null_statistics(Tree(), counts, np.array([.2, .5, .8]), 2,
                       np.random.default_rng(0))
  assert set(totals) == {38 + 33 + 35 if known else None}


def test_thresholds_are_those_of_the_grid_to_15_digits():
  for lower, upper, number in ((0, 1, 7), (-3, 1000, 300), (18, 97, 1024)):
    grid = grids.of_query(Query(
        statistic='ecdf', adjacency=_AR, epsilon=Fraction(1), column='x',
        lower=Decimal(lower), upper=Decimal(upper), thresholds=number))
    for k, point in enumerate(grid.points):
      exact = lower + Fraction(upper - lower) * (k + 1) / number
      assert abs(Fraction(point) - exact) <= Fraction(
          max(abs(lower), upper), 10**14)
    assert grid.points[-1] == upper


@pytest.mark.parametrize('granularity', ['1', '.1', '.25', '3', '.07', '20'])
def test_small_numbers_go_to_the_nearest_multiple(granularity):
  """Values go to the nearest multiple, also if finer than the granularity."""
  points = lattice.Lattice(lower=Decimal(-100), upper=Decimal(100),
                           granularity=Decimal(granularity))
  for k in range(-60, 61):
    value = Decimal(k) * points.granularity / 20
    assert points.index(value) == math.floor(Fraction(k, 20) + Fraction(1, 2))


def test_a_null_is_no_category():
  plan = registry.plan(Query(
      statistic='histogram', adjacency=_AR, epsilon=Fraction(1), column='x',
      categories=('None', 'a')))
  assert plan.measure([None, 'None', ' a', 'b', None]) == [1, 1, 3]
