"""Sensitivities, laws, privacy and intervals of all statistics."""

import bisect
import collections
import decimal
import fractions
import functools
import math
import random

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import moments
from dpjax.release import noise
from dpjax.release import registry
from dpjax.release.query import Query

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency
# Inside, outside on either side, no number, between two points of the lattice.
_DOMAIN = ('-9', '0.6', '1.5', '40', 'NA')
_BOUNDS = {'column': 'x', 'lower': Decimal('-1'), 'upper': Decimal('2'),
           'granularity': Decimal('0.5')}
_CASES = [
  {'statistic': 'count', 'column': 'x', 'lower': Decimal(0),
   'upper': Decimal(2)},
  {'statistic': 'sum', **_BOUNDS}, {'statistic': 'mean', **_BOUNDS},
  {'statistic': 'variance', **_BOUNDS},
  {'statistic': 'sum', **_BOUNDS, 'lower': Decimal('0.5')},
  {'statistic': 'variance', **_BOUNDS, 'missing': 'lower'},
  {'statistic': 'histogram', 'column': 'x', 'categories': ('0.6', '40')},
  {'statistic': 'histogram', 'column': 'x',
   'bins': (Decimal(0), Decimal(1), Decimal(2))},
]
_NAMES = [f"{c['statistic']}{i}" for i, c in enumerate(_CASES)]


def _plan(adjacency, *, epsilon=Fraction(1), **fields):
  return registry.plan(Query(adjacency=adjacency, epsilon=epsilon, **fields))


def _vectors(plan, dataset):
  """The exact vector of each noise, of the records and a public one."""
  measured = plan.measure([*dataset, '1.5'])
  if isinstance(measured, list):
    return {'counts': measured}
  return {power: [value] for power, value in measured[1].items()}


def _laws(plan):
  if hasattr(plan, 'noises'):
    return {power: (law, plan.sensitivity(power), plan.sensitivity(power)**2)
            for power, law in plan.noises.items()}
  return {'counts': (plan.noise, plan.sensitivity, plan.sensitivity)}


@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('case', _CASES, ids=_NAMES)
def test_sensitivities_by_enumeration(case, adjacency):
  plan = _plan(adjacency, **case)
  for name, (_, l1, squared) in _laws(plan).items():
    def vector(dataset, name=name):
      return _vectors(plan, dataset)[name]
    for order, bound in ((1, l1), (2, math.sqrt(squared))):
      assert neighbours.sensitivity(
          vector, _DOMAIN, range(3), adjacency, order=order
      ) == pytest.approx(bound), (name, order)


def test_sensitivities_in_numbers():
  assert _plan(_AR, statistic='sum', **_BOUNDS).sensitivity(1) == 4
  assert _plan(_RO, statistic='sum', **_BOUNDS).sensitivity(1) == 6
  assert _plan(_AR, statistic='mean', **_BOUNDS).sensitivity(1) == 3
  assert _plan(_RO, statistic='variance', **_BOUNDS).sensitivity(2) == 9


def _pmf(law, z):
  if isinstance(law, noise.LaplaceNoise):
    weights = np.exp(-np.abs(z) / float(law.scale))
  else:
    weights = np.exp(-z**2.0 / (2 * float(law.variance)))
  return weights / weights.sum()


def _released(plan, dataset, outcomes):
  """The law of what is released, one factor for each number."""
  for name, vector in _vectors(plan, dataset).items():
    for value in vector:
      yield _pmf(_laws(plan)[name][0], outcomes - value)


@pytest.mark.parametrize('delta', [None, Fraction(1, 100)])
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('case', _CASES[:4] + _CASES[6:],
                         ids=_NAMES[:4] + _NAMES[6:])
def test_released_law_is_private_on_neighbouring_files(case, adjacency, delta):
  """Exact hockey-stick divergence; the worst pair uses the pure budget up."""
  plan = _plan(adjacency, delta=delta, **case)
  outcomes = np.arange(-600, 601)
  laws = functools.cache(lambda data: list(_released(plan, data, outcomes)))
  losses = collections.defaultdict(float)
  for one, other in neighbours.pairs(_DOMAIN, range(2), adjacency):
    moved = [(p, q) for p, q in zip(laws(one), laws(other), strict=True)
             if not np.array_equal(p, q)]
    if delta is None:
      losses[one, other] = sum(_log_ratio(p, q) for p, q in moved)
    elif moved:
      losses[one, other] = _joint_delta(moved)
  if delta is None:
    assert max(losses.values()) <= 1 + 1e-9
    assert max(losses.values()) > .7
  else:
    assert .02 * float(delta) < max(losses.values()) <= float(delta)


def _log_ratio(p, q):
  return float(np.max(np.abs(np.log(p) - np.log(q))[100:-100]))


def _joint_delta(moved):
  """Delta at epsilon 1 of independent factors, by binned losses rounded up."""
  step, half = 2e-3, 8_000
  total = None
  beyond = 0.0
  for p, q in moved:
    loss = np.full(len(p), -math.inf)
    both = (p > 1e-300) & (q > 1e-300)
    loss[both] = np.log(p[both]) - np.log(q[both])
    beyond += p[~both].sum()
    places = np.clip(np.ceil(loss[both] / step), -half, half).astype(int) + half
    law = np.bincount(places, weights=p[both], minlength=2 * half + 1)
    total = law if total is None else np.clip(
        _convolved(total, law), 0, None)
  losses = (np.arange(len(total)) - len(moved) * half) * step
  gain = np.where(losses > 1, -np.expm1(1 - losses), 0.0)
  return float(total @ gain) + beyond


def _convolved(a, b):
  size = len(a) + len(b) - 1
  return np.fft.irfft(np.fft.rfft(a, size) * np.fft.rfft(b, size), size)


_HUGE = Fraction(10**9)
_DATA = np.round(np.random.default_rng(3).normal(1, 3, 101), 3)


@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('statistic, wanted', [
  ('count', lambda x, raw: np.sum((raw >= -2) & (raw <= 4))),
  ('sum', lambda x, raw: x.sum()), ('mean', lambda x, raw: x.mean()),
  ('variance', lambda x, raw: x.var())])
def test_without_noise_the_statistic(statistic, wanted, adjacency):
  plan = _plan(adjacency, epsilon=_HUGE, statistic=statistic, column='x',
               lower=Decimal(-2), upper=Decimal(4))
  data = list(map(str, _DATA))
  answer = plan.draw(plan.measure(data), random.Random(0).randrange)
  truth = wanted(np.clip(_DATA, -2, 4), _DATA)
  assert answer['value'] == pytest.approx(truth, abs=1e-4)
  assert answer['interval']['lower'] <= truth + 1e-9
  assert truth - 1e-9 <= answer['interval']['upper']


def test_without_noise_histogram_and_quantiles():
  below = random.Random(0).randrange
  edges = [-2, 0, 1, 4]
  plan = _plan(_AR, epsilon=_HUGE, statistic='histogram', column='x',
               bins=tuple(map(Decimal, edges)))
  found = plan.draw(plan.measure(map(str, _DATA)), below)['value']
  assert list(found) == ['[-2, 0)', '[0, 1)', '[1, 4]']
  clipped = np.clip(_DATA, -2, 4)
  assert list(found.values()) == list(np.histogram(clipped, edges)[0])
  plan = _plan(_AR, epsilon=_HUGE, statistic='histogram', column='x',
               categories=('b', 'a'))
  found = plan.draw(plan.measure(['a', 'b', None, ' a', 'c', '']), below)
  assert found['value'] == {'b': 1, 'a': 2, '(other)': 3}
  orders = (Fraction(1, 4), Fraction(1, 2), Fraction(9, 10))
  plan = _plan(_RO, epsilon=_HUGE, statistic='quantiles', quantiles=orders,
               column='x', lower=Decimal(-2), upper=Decimal(4))
  found = plan.draw(plan.measure(map(str, _DATA)), below)
  truth = np.quantile(clipped, [.25, .5, .9], method='inverted_cdf')
  assert list(found['value'].values()) == pytest.approx(truth)
  assert found['num_records'] == 101


@pytest.mark.parametrize('missing, total', [
  ('lower', -1), ('middle', 2), ('upper', 5)])
def test_missing_records_count_under_replace_one(missing, total):
  plan = _plan(_RO, epsilon=_HUGE, statistic='mean', column='x',
               lower=Decimal(-1), upper=Decimal(5), missing=missing)
  answer = plan.draw(plan.measure(['1', 'NA', '']), random.Random(0).randrange)
  assert answer['num_records'] == 3
  assert answer['value'] == pytest.approx((1 + 2 * total) / 3, abs=1e-4)
  absent = _plan(_AR, epsilon=_HUGE, statistic='mean', column='x',
                 lower=Decimal(-1), upper=Decimal(5))
  answer = absent.draw(absent.measure(['1', 'NA', '']),
                       random.Random(0).randrange)
  assert answer['value'] == pytest.approx(1, abs=1e-4)
  assert 'num_records' not in answer


def test_what_is_drawn_has_the_law():
  below = random.Random(6).randrange
  plan = _plan(_AR, statistic='sum', **_BOUNDS)
  measured = plan.measure(['0.5', '2'])
  drawn = [round(plan.draw(measured, below)['value'] / .5)
           for _ in range(1_500)]
  edges = np.arange(-10, 21)
  law = _pmf(plan.noises[1], np.arange(-600, 601) - 5)
  wanted = law[600 + edges] * 1_500
  counts = np.array([drawn.count(z) for z in edges])
  rest = 1_500 - wanted.sum()
  assert stats.chisquare(np.append(counts, 1_500 - counts.sum()),
                         np.append(wanted, rest)).pvalue > 1e-5


@pytest.mark.slow
@pytest.mark.every(3)
@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('statistic', ['sum', 'mean', 'variance'])
def test_intervals_cover(statistic, adjacency, delta):
  """Nominal 0.9; fails by chance once in 10^5."""
  runs, below = 150, random.Random(8).randrange
  plan = _plan(adjacency, delta=delta, statistic=statistic, column='x',
               lower=Decimal(-2), upper=Decimal(4), confidence=Fraction(9, 10))
  measured = plan.measure(map(str, _DATA))
  clipped = np.clip(_DATA, -2, 4)
  truth = {'sum': clipped.sum(), 'mean': clipped.mean(),
           'variance': clipped.var()}[statistic]
  covered = 0
  for _ in range(runs):
    found = plan.draw(measured, below)['interval']
    covered += found['lower'] <= truth <= found['upper']
  assert covered >= stats.binom.ppf(1e-5, runs, .9)
  if statistic == 'sum':
    assert covered <= stats.binom.isf(1e-5, runs, .9)


@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('statistic', ['sum', 'mean', 'variance'])
def test_intervals_are_what_noise_within_its_widths_allows(statistic, adjacency):
  """All ends of all noisy sums, each missed with an equal share of 1/10."""
  plan = _plan(adjacency, statistic=statistic, column='x', lower=Decimal(-2),
               upper=Decimal(4), granularity=Decimal('0.1'),
               confidence=Fraction(9, 10))
  found = plan.draw(plan.measure(map(str, _DATA)), random.Random(2).randrange)
  ends = {}
  for power, name in enumerate(('count', 'sum', 'squares')):
    if power in plan.powers:
      unit = plan.lattice.unit**power
      width = plan.noises[power].half_width(.1 / len(plan.powers))
      value = Fraction(found['noisy_sums'][name])
      ends[power] = [value - width * unit, value + width * unit]
  if statistic == 'sum':
    values = ends[1]
  else:
    centre = plan.centre * plan.lattice.unit
    means = [s / n for s in ends[1] for n in ends.get(0, [101])]
    values = [m + centre for m in means]
  if statistic == 'variance':
    squares = [s / n for s in ends[2] for n in ends.get(0, [101])]
    crosses = min(means) <= 0 <= max(means)
    values = [max(0, min(squares) - max(m * m for m in means)),
              min(9, max(squares) - (0 if crosses else min(
                  m * m for m in means)))]
  if statistic == 'mean':
    values = [min(max(value, -2), 4) for value in values]
  assert found['interval']['lower'] == pytest.approx(float(min(values)))
  assert found['interval']['upper'] == pytest.approx(float(max(values)))


@pytest.mark.slow
@pytest.mark.parametrize('adjacency', Adjacency)
def test_population_intervals_cover(adjacency):
  generator, below = np.random.default_rng(9), random.Random(9).randrange
  plan = _plan(adjacency, epsilon=Fraction(20), statistic='mean', column='x',
               lower=Decimal(0), upper=Decimal(1), granularity=Decimal(1),
               confidence=Fraction(8, 10))
  covered, inner = 0, 0
  for _ in range(150):
    data = list((generator.random(60) < .15).astype(int))
    found = plan.draw(plan.measure(map(int, data)), below)
    outer = found['population_interval']
    covered += outer['lower'] <= .15 <= outer['upper']
    inner += found['interval']['lower'] <= .15 <= found['interval']['upper']
  assert covered >= stats.binom.ppf(1e-5, 150, .8)
  assert inner < covered


@pytest.mark.parametrize('law', [noise.LaplaceNoise(scale=Fraction(1)),
                                 noise.GaussianNoise(variance=Fraction(1))])
def test_population_intervals_of_sure_coins_end_at_one_and_zero(law):
  """All ones of n have a mean with m^n >= miss / 2; noise adds a little."""
  size = 200
  for total, swapped in ((size, False), (0, True)):
    low, high = moments._ends(float(total), size, 1.0, law, .1)
    low, high = (1 - high, 1 - low) if swapped else (low, high)
    assert .05**(1 / size) - 4 / size <= low <= .05**(1 / size)
    assert high == pytest.approx(1, abs=1e-9)


@pytest.mark.slow
@pytest.mark.every(2)
@pytest.mark.parametrize('law', [noise.LaplaceNoise(scale=Fraction(6)),
                                 noise.GaussianNoise(variance=Fraction(9))])
@pytest.mark.parametrize('number, p', [(5, .3), (60, .5), (60, .02), (200, .9)])
def test_population_intervals_of_means_cover_exactly(law, number, p):
  """Sums over coins and noise: no side misses too often, and either would if
  it ended half a standard deviation of both further in."""
  miss, reach = .1, 200
  z = np.arange(-reach, reach + 1)
  pmf = np.convolve(_pmf(law, z), stats.binom.pmf(np.arange(number + 1), number,
                                                  p))
  outcomes = range(-reach, number + reach + 1)

  def ends(total):
    return moments._ends(float(total), number, 1.0, law, miss)

  low = bisect.bisect_left(outcomes, True, key=lambda s: ends(s)[1] >= p)
  high = bisect.bisect_left(outcomes, True, key=lambda s: ends(s)[0] > p)
  assert pmf[:low].sum() <= miss / 2 and pmf[high:].sum() <= miss / 2
  spare = math.ceil(.5 * math.hypot(law.deviation, math.sqrt(
      number * p * (1 - p)))) + 1
  assert min(pmf[:low + spare].sum(), pmf[high - spare:].sum()) > miss / 2


@pytest.mark.parametrize('fields, message', [
  ({'statistic': 'mode'}, 'statistic must be one of'),
  ({'statistic': 'sum'}, 'sum needs column'),
  ({'statistic': 'sum', **_BOUNDS, 'bins': (Decimal(0),)}, 'takes no bins'),
  ({'statistic': 'sum', **_BOUNDS, 'epsilon': Fraction(0)}, 'epsilon must be'),
  ({'statistic': 'sum', **_BOUNDS, 'delta': Fraction(1)}, 'delta must lie'),
  ({'statistic': 'sum', **_BOUNDS, 'upper': Decimal(-1)}, 'lower must be below'),
  ({'statistic': 'sum', **_BOUNDS, 'confidence': Fraction(1)}, 'confidence'),
  ({'statistic': 'sum', **_BOUNDS, 'missing': 'mean'}, 'missing must be'),
  ({'statistic': 'sum', **_BOUNDS, 'missing': 'absent'}, 'public number'),
  ({'statistic': 'count'}, 'nothing to release'),
  ({'statistic': 'count', 'column': 'x'}, 'count needs column, lower'),
  ({'statistic': 'histogram', 'column': 'x'}, 'either categories or bins'),
  ({'statistic': 'histogram', 'column': 'x', 'categories': ('a', 'a')},
   'must differ'),
  ({'statistic': 'histogram', 'column': 'x', 'categories': ('a',),
    'missing': 'lower'}, 'missing is for bins'),
  ({'statistic': 'histogram', 'column': 'x',
    'bins': (Decimal(1), Decimal(0))}, 'increasing'),
  ({'statistic': 'quantiles', 'quantiles': (Fraction(1, 2),), **_BOUNDS,
    'delta': Fraction(1, 9)}, 'leave delta out'),
  ({'statistic': 'quantiles', 'quantiles': (Fraction(1),), **_BOUNDS},
   'strictly between'),
])
def test_refusals(fields, message):
  with pytest.raises(ValueError, match=message):
    _plan(_RO, **fields)


def test_a_column_without_numbers_is_refused():
  plan = _plan(_AR, statistic='sum', **_BOUNDS)
  with pytest.raises(ValueError, match="column 'x' has no number"):
    plan.measure(['a', 'b', ''])
