"""Tests trees of exact counts, distribution functions, and band coverage."""

import decimal
import fractions
import functools
import math
import random

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import exact
from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import bands
from dpjax.release import grids
from dpjax.release import noise
from dpjax.release import registry
from dpjax.release import trees
from dpjax.release.costs import Cost
from dpjax.release.query import Query
from dpjax.stats.ecdf_methods import hierarchy
from tests.release import drawing

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency
_HUGE = Fraction(10**9)
_UNIT = {'column': 'x', 'lower': Decimal(0), 'upper': Decimal(1),
         'thresholds': 5}
_FINE = {**_UNIT, 'thresholds': 60}
_LABELS = {**_UNIT, 'label': 'y', 'positive': '1'}


def _plan(adjacency, *, epsilon=Fraction(1), **fields):
  return registry.plan(Query(adjacency=adjacency, epsilon=epsilon, **fields))


def _nodes(plan, fields):
  return np.concatenate(plan.tree.nodes(plan.measure(fields)))


@pytest.mark.sound
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('case, domain, public', [
  ({'statistic': 'ecdf', **_UNIT, 'thresholds': 120},
   ('-1', '0.01', '0.4', '3', 'NA'), '1'),
  ({'statistic': 'ecdf', 'column': 'x', 'bins': tuple(map(Decimal, '0125'))},
   ('-1', '1', '3', '9', None), '1'),
  ({'statistic': 'ecdf', **_UNIT, 'thresholds': 120, 'missing': 'absent'},
   ('-1', '0.01', '0.4', '3', 'NA'), '1'),
  ({'statistic': 'roc', **_LABELS, 'thresholds': 120},
   (('.1', '1'), ('.1', '0'), ('NA', '1'), ('9', ''), ('.6', 'no')),
   ('.2', '1')),
])
def test_sensitivities_by_enumeration(case, domain, public, adjacency):
  """All nodes have the stated sensitivity, also if a label flips."""
  plan = _plan(adjacency, **case)
  assert len(plan.tree.shape) > 1 or not plan.query.thresholds
  for order in (1, 2):
    assert neighbours.sensitivity(
        lambda dataset: _nodes(plan, [*dataset, public]).tolist(), domain,
        range(3), adjacency, order=order
    )**order == pytest.approx(plan.tree.sensitivity)
  assert plan.cost == plan.query.cost() == Cost(
      epsilon=plan.tree.sensitivity / plan.tree.noise.scale)
  by_rho = _plan(adjacency, delta=Fraction(1, 10**6), **case)
  assert by_rho.cost == by_rho.query.cost() == Cost(
      rho=by_rho.tree.sensitivity / (2 * by_rho.tree.noise.variance))


@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
@pytest.mark.parametrize('case, fields', [
  ({'statistic': 'ecdf', **_UNIT}, ['.1', '.9', '.5']),
  ({'statistic': 'auc', **_LABELS}, [('.1', '1'), ('.9', '0'), ('.5', '1')])])
def test_every_node_with_bins_has_exact_noise(case, fields, delta):
  plan = _plan(_RO, delta=delta, **case)
  measured = plan.measure(fields)
  released = drawing.draw(plan, measured, random.Random(5).randrange)
  assert released['num_records'] == 3
  below = random.Random(5).randrange
  bin_noise = plan.tree.noise
  for level, counts, there in zip(
      released['noisy_counts'], plan.tree.nodes(measured),
      hierarchy.levels(plan.tree.alive, plan.tree.shape), strict=True):
    for noisy, count, used in zip(level, counts, there, strict=True):
      assert noisy == (int(count) + (
          exact.discrete_laplace(bin_noise.scale, below) if delta is None else
          exact.discrete_gaussian(bin_noise.variance, below)) if used else None)
  text = str(plan.facts()['noise'])
  assert str(bin_noise.scale if delta is None else bin_noise.variance) in text


@pytest.mark.parametrize('distribution', [
  noise.LaplaceNoise(scale=Fraction(7, 3)),
  noise.GaussianNoise(variance=Fraction(2)),
  noise.LaplaceNoise(scale=Fraction(1, 2))])
def test_simulated_noise_has_the_law(distribution):
  """Simulated noise has the distribution; the test fails once in 10^5."""
  drawn = distribution.simulated(np.random.default_rng(1),
                                 (4_000, 5)).reshape(-1)
  z = np.arange(-60, 61)
  if hasattr(distribution, 'scale'):
    weights = np.exp(-np.abs(z) / float(distribution.scale))
  else:
    weights = np.exp(-z**2 / (2 * float(distribution.variance)))
  weights /= weights.sum()
  assert distribution.deviation == pytest.approx(math.sqrt(weights @ z**2))
  kept = weights * drawn.size > 5
  counts = np.array([np.sum(drawn == place) for place in z[kept]])
  wanted = weights[kept] * drawn.size
  assert stats.chisquare(
      np.append(counts, drawn.size - counts.sum()),
      np.append(wanted, drawn.size - wanted.sum())).pvalue > 1e-5


def test_large_gaussian_noise_is_simulated_by_rounding():
  distribution = noise.GaussianNoise(variance=Fraction(4 * 10**6))
  drawn = distribution.simulated(np.random.default_rng(2), (20_000,))
  assert distribution.deviation == 2000 and np.all(drawn == np.rint(drawn))
  assert np.std(drawn) == pytest.approx(2000, rel=.03)


def test_thresholds():
  grid = grids.of_query(Query(
      statistic='ecdf', adjacency=_AR, epsilon=Fraction(1), column='x',
      lower=Decimal('0'), upper=Decimal('1'), thresholds=10))
  assert grid.floats == [.1, .2, .3, .4, .5, .6, .7, .8, .9, 1]
  # A value on a threshold is at or below it, to the last digit.
  assert [grid.bin(Decimal(text)) for text in (
      '-5', '0.1', '0.3', '0.30000000000000000001', '1', 'Infinity')] == [
          0, 0, 2, 3, 9, 9]
  grid = grids.of_query(Query(
      statistic='ecdf', adjacency=_AR, epsilon=Fraction(1), column='x',
      lower=Decimal('1'), upper=Decimal('1000'), thresholds=3,
      grid='geometric'))
  assert grid.floats == pytest.approx([10, 100, 1000], rel=1e-14)
  # The stored query states the default grid.
  asked = _plan(_AR, statistic='ecdf', **{
      **_UNIT, 'thresholds': None}, confidence=Fraction(1, 2)).asked
  assert (asked.thresholds, asked.grid, asked.missing) == (
      1024, 'uniform', None)
  assert asked.confidence == Fraction(19, 20)


_DATA = np.round(np.random.default_rng(3).normal(.5, .4, 101), 3)
_EDGES = np.arange(1, 6) / 5


@pytest.mark.parametrize('adjacency', Adjacency)
def test_without_noise_the_distribution_function(adjacency):
  plan = _plan(adjacency, epsilon=_HUGE, statistic='ecdf', **_UNIT)
  released = drawing.draw(plan, plan.measure(map(str, _DATA)), random.Random(0).randrange)
  assert ('num_records' in released) == (adjacency is _RO)
  answer = plan.view(released)
  ranks = np.searchsorted(np.sort(np.clip(_DATA, 0, 1)), _EDGES, 'right')
  assert answer['thresholds'] == _EDGES.tolist()
  assert answer['value'] == pytest.approx(ranks / 101)
  assert answer['ranks']['value'] == pytest.approx(ranks)
  for interval, truth in ((answer['ranks']['interval'], ranks),
                          (answer['interval'], ranks / 101)):
    assert interval['lower'] == pytest.approx(truth)
    assert interval['upper'] == pytest.approx(truth)
  assert answer['ranks']['standard_errors'] == pytest.approx([0] * 5)
  far = math.sqrt(math.log(4 / .05) / 202)
  assert answer['population_interval']['lower'] == pytest.approx(
      np.clip(ranks / 101 - far, 0, 1))
  assert answer['population_interval']['upper'] == pytest.approx(
      np.clip(ranks / 101 + far, 0, 1))


def test_thresholds_of_ones_own():
  plan = _plan(_AR, epsilon=_HUGE, statistic='ecdf', column='x',
               bins=tuple(map(Decimal, ('0.1', '0.5', '0.75'))))
  answer = plan.view(drawing.draw(plan, plan.measure(
      ['-3', '0.1', '0.10001', '0.5', '0.6', '9', 'NA', '2']),
                              random.Random(0).randrange))
  assert answer['thresholds'] == [.1, .5, .75]
  assert answer['ranks']['value'] == pytest.approx([2, 4, 7])
  assert 'bins' in plan.asked.to_json() and plan.asked.thresholds is None


@pytest.mark.parametrize('adjacency', Adjacency)
def test_bands_reach_the_whole_width_to_either_side(adjacency):
  """A noiseless band holds all whole numbers within its
  width, and no others."""
  counts = np.array([[5000, 300, 0, 4000, 700]])
  measured = ['0.1'] * 5000 + ['0.3'] * 300 + ['0.7'] * 4000 + ['0.9'] * 700
  fine = _plan(adjacency, epsilon=_HUGE, statistic='ecdf', **_UNIT)
  released = drawing.draw(fine, fine.measure(measured),
                          random.Random(0).randrange)
  tree = _plan(adjacency, epsilon=Fraction(1, 20), statistic='ecdf',
               **_UNIT).tree
  width, = bands.widths(tree, bands._both, .1)
  band, = bands.Fit(tree, released).bands(.1)
  ranks = np.stack([np.cumsum(counts, -1),
                    10000 - np.cumsum(counts, -1)]).astype(float)
  most = 10000 if adjacency is _RO else math.inf
  for side, step in ((0, 1), (1, -1)):
    low = np.clip(np.ceil(ranks - width - 1e-6)[side, 0], 0, most)
    high = np.clip(np.floor(ranks + width + 1e-6)[side, 0], 0, most)
    for k in range(5):
      before, after = ((low[:k + 1], high[k:]) if step == 1 else
                       (low[k:], high[:k + 1]))
      assert band.lower[side, 0, k] == before.max()
      assert band.upper[side, 0, k] == after.min()


@pytest.mark.slow
@pytest.mark.every(2)
@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
@pytest.mark.parametrize('adjacency', Adjacency)
def test_bands_cover(monkeypatch, adjacency, delta):
  """Bands cover all thresholds at nominal 0.8; the test fails once in 10^5."""
  # Widths are public, so one release's widths are those of all.
  monkeypatch.setattr(bands, 'widths', functools.cache(bands.widths))
  runs, below = 80, random.Random(8).randrange
  plan = _plan(adjacency, delta=delta, statistic='ecdf',
               confidence=Fraction(8, 10), **_FINE)
  measured = plan.measure(map(str, _DATA))
  ranks = np.cumsum(measured)
  covered = dict.fromkeys(('interval', 'ranks', 'raw'), 0)
  width, = bands.widths(plan.tree, bands._both, .2)
  for _ in range(runs):
    released = drawing.draw(plan, measured, below)
    answer = plan.view(released)
    for name, part, truth in (
        ('interval', answer['interval'], ranks / 101),
        ('ranks', answer['ranks']['interval'], ranks)):
      covered[name] += np.all((np.array(part['lower']) <= truth + 1e-12)
                              & (truth - 1e-12 <= np.array(part['upper'])))
      assert np.all(np.diff(part['lower']) >= 0)
      assert np.all(np.diff(part['upper']) >= 0)
    values = np.array(answer['value'])
    assert np.all(np.diff(values) >= -1e-12)
    assert np.all(np.array(answer['interval']['lower']) <= values + 1e-12)
    assert np.all(values - 1e-12 <= np.array(answer['interval']['upper']))
    errors = bands._both(bands.Fit(plan.tree, released).linear) - bands._both(
        np.array([measured]))
    covered['raw'] += np.all(np.abs(errors) <= width + 1e-9)
  assert min(covered.values()) >= stats.binom.ppf(1e-5, runs, .8)
  # Raw bands, before known facts are used, are no wider than necessary.
  assert covered['raw'] <= stats.binom.isf(1e-5, runs, .8)


def test_standard_errors_are_those_of_released_ranks():
  """Standard errors match 400 releases, within 5 of their own errors."""
  plan = _plan(_AR, statistic='ecdf', **_FINE)
  errors = np.cumsum(list(plan.tree.errors(400, np.random.default_rng(4))),
                     -1)[:, 0]
  ratio = np.mean(errors**2, 0) / plan.tree.rank_deviations()**2
  assert len(plan.tree.shape) > 1
  assert np.all(np.abs(ratio - 1) < 5 * math.sqrt(2 / 400))


def test_population_bands_cover(monkeypatch):
  monkeypatch.setattr(bands, 'widths', functools.cache(bands.widths))
  generator, below = np.random.default_rng(9), random.Random(9).randrange
  plan = _plan(_AR, statistic='ecdf', confidence=Fraction(6, 10), **_UNIT)
  covered = inner = 0
  for _ in range(60):
    answer = plan.view(drawing.draw(plan, plan.measure(map(
        str, generator.random(400))), below))
    outer, near = (tuple(np.array(answer[name][end]) for end in (
        'lower', 'upper')) for name in ('population_interval', 'interval'))
    covered += np.all((outer[0] <= _EDGES) & (_EDGES <= outer[1] + 1e-12))
    inner += np.all((near[0] <= _EDGES) & (_EDGES <= near[1]))
  assert covered >= stats.binom.ppf(1e-5, 60, .6)
  assert inner < covered


def test_classes_fill_nodes_of_their_own():
  for adjacency, size in ((_AR, 100), (_RO, 33), (_RO, 7)):
    tree = trees.Tree(num_bins=size, num_classes=2, cost=Cost(
        epsilon=Fraction(1)), replacing=adjacency is _RO,
        known=adjacency is _RO)
    assert tree.alive.sum() == 2 * size and tree.shape[0] % 2 == 0
    top = tree.nodes([0] * size + [1] * size)[0]
    assert not top[:len(top) // 2].any() and top.sum() == size


@pytest.mark.parametrize('fields, message', [
  ({}, 'ecdf needs lower and upper, or bins'),
  ({'lower': Decimal(0)}, 'needs lower and upper'),
  ({'bins': (Decimal(0), Decimal(1)), 'lower': Decimal(0)}, 'takes bins, or'),
  ({'bins': (Decimal(0), Decimal(1)), 'grid': 'uniform'}, 'takes bins, or'),
  ({'bins': (Decimal(0),)}, 'there must be 2 to 16384 thresholds, got 1'),
  ({'bins': (Decimal(1), Decimal(0))}, 'thresholds must increase'),
  ({**_UNIT, 'thresholds': 1}, 'thresholds must be 2 to 16384, got 1'),
  ({**_UNIT, 'thresholds': 10**6}, 'thresholds must be 2 to 16384, got 1000000'),
  ({**_UNIT, 'upper': Decimal('1e-40'), 'lower': Decimal('-1e40')}, None),
  ({**_UNIT, 'lower': Decimal('1e15') - 1, 'upper': Decimal('1e15')},
   'thresholds must increase'),
  ({**_UNIT, 'grid': 'geometric'}, 'lower must be a positive number'),
  ({**_UNIT, 'grid': 'cubic'}, 'grid must be one of geometric, uniform'),
  ({**_UNIT, 'confidence': Fraction(9999, 10000)}, 'at most 0.999 for ecdf'),
  ({**_UNIT, 'label': 'y'}, 'ecdf takes no label'),
  ({**_UNIT, 'granularity': Decimal(1)}, 'ecdf takes no granularity'),
])
def test_refusals(fields, message):
  query = {'statistic': 'ecdf', 'column': 'x', **fields}
  if message is None:
    assert _plan(_RO, **query)
    return
  with pytest.raises(ValueError, match=message):
    _plan(_RO, **query)
