"""Tests sensitivity, distribution, privacy and intervals of all statistics."""

import collections
import decimal
import fractions
import functools
import math
import random
import re

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import moments
from dpjax.release import noise
from dpjax.release import registry
from dpjax.release import sample_means
from dpjax.release.query import Query
from tests.release import drawing

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency
# Values are inside, outside, no number, and between lattice points.
_DOMAIN = ('-9', '0.6', '1.1', '40', 'NA')
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
  {'statistic': 'histogram', 'column': 'x', 'missing': 'absent',
   'bins': (Decimal(0), Decimal(1), Decimal(2))},
  *({'statistic': name, **_BOUNDS, 'missing': 'absent', **more}
    for name, more in (('sum', {}), ('sum', {'lower': Decimal('0.5')}),
                       ('mean', {}), ('variance', {}))),
]
_NAMES = [f"{c['statistic']}{i}" for i, c in enumerate(_CASES)]


def _plan(adjacency, *, epsilon=Fraction(1), **fields):
  return registry.plan(Query(adjacency=adjacency, epsilon=epsilon, **fields))


def _vector(plan, dataset):
  """Returns the exact vector that noise is added to, plus a public record."""
  measured = plan.measure([*dataset, '1.5'])
  if isinstance(measured, tuple):
    return measured[1] if isinstance(measured[1], list) else [measured[1]]
  return measured


def _norms(plan):
  """Returns the plan's l1 sensitivity and squared l2 sensitivity."""
  if isinstance(plan, moments.Moments):
    return (plan.sensitivity['l1_sensitivity'],
            plan.sensitivity['l2_sensitivity_squared'])
  power = 2 if isinstance(plan, moments.Sum) else 1
  return plan.sensitivity, plan.sensitivity**power


@pytest.mark.sound
@pytest.mark.parametrize('delta', [None, Fraction(1, 100)])
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('case', _CASES, ids=_NAMES)
def test_sensitivities_by_enumeration(case, adjacency, delta):
  plan = _plan(adjacency, delta=delta, **case)
  l1, squared = _norms(plan)
  for order, bound in ((1, l1), (2, math.sqrt(squared)))[bool(delta):]:
    assert neighbours.sensitivity(
        functools.partial(_vector, plan), _DOMAIN, range(3), adjacency,
        order=order) == pytest.approx(bound), order


@pytest.mark.parametrize('delta', [None, Fraction(1, 100)])
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('statistic', ['mean', 'variance'])
@pytest.mark.parametrize('missing', [None, 'absent'])
@pytest.mark.parametrize('width', [1, 2, 3, 4, 5, 8, 31])
def test_sensitivities_of_moments_at_all_widths(width, missing, statistic,
                                                adjacency, delta):
  """Moments have exact sensitivities at all widths, odd ones included."""
  plan = _plan(adjacency, delta=delta, statistic=statistic, column='x',
               lower=Decimal(7), upper=Decimal(7 + width),
               granularity=Decimal(1), missing=missing)
  one = np.array([plan.measure([str(7 + i)])[1] for i in range(width + 1)])
  if missing:
    one = np.concatenate([one, np.zeros_like(one[:1])])
  changes = (one[:, None] - one).reshape(-1, one.shape[1]) if (
      adjacency is _RO) else one
  l1, squared = _norms(plan)
  assert squared == (changes**2).sum(1).max()
  # Gaussian noise does not use the l1 norm, which is then only a bound.
  if delta and missing:
    assert l1 >= np.abs(changes).sum(1).max()
  else:
    assert l1 == np.abs(changes).sum(1).max()


def test_sensitivities_in_numbers():
  assert _plan(_AR, statistic='sum', **_BOUNDS).sensitivity == 4
  assert _plan(_RO, statistic='sum', **_BOUNDS).sensitivity == 6
  for adjacency, statistic, l1 in ((_AR, 'mean', 36), (_RO, 'mean', 36),
                                   (_AR, 'variance', 36), (_RO, 'variance', 48)):
    plan = _plan(adjacency, statistic=statistic, **_BOUNDS)
    assert _norms(plan) == (l1, 36**2)
    # With Gaussian noise the sum of products costs nothing.
    plan = _plan(adjacency, statistic=statistic, delta=Fraction(1, 9), **_BOUNDS)
    assert _norms(plan)[1] == (25 if adjacency is _AR else 1) * 36**2


@pytest.mark.parametrize('delta', [None, Fraction(1, 100)])
@pytest.mark.parametrize('adjacency', Adjacency)
def test_a_record_adds_what_the_release_says(adjacency, delta):
  plan = _plan(adjacency, delta=delta, statistic='variance', **_BOUNDS)
  texts = plan.facts()['noise']['sums']['a_record_adds']
  for index in range(7):
    added = plan.measure([str(-1 + index / 2)])[1]
    for value, text in zip(added, texts.values(), strict=True):
      formula = re.sub(r'(?<=[\w)]) (?=[\w(])', '*', text.replace(
          '(upper - lower)', '6').replace('^', '**'))
      assert value == eval(formula, {'a': index, 'b': 6 - index})  # pylint: disable=eval-used


def _pmf(distribution, z):
  if isinstance(distribution, noise.LaplaceNoise):
    weights = np.exp(-np.abs(z) / float(distribution.scale))
  else:
    weights = np.exp(-z**2.0 / (2 * float(distribution.variance)))
  return weights / weights.sum()


def _released(plan, dataset, outcomes):
  """Yields the release's distribution, one factor for each number."""
  for value in _vector(plan, dataset):
    yield _pmf(plan.noise, outcomes - value)


@pytest.mark.sound
@pytest.mark.parametrize('delta', [None, Fraction(1, 100)])
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('case', _CASES[:4] + _CASES[6:8] + _CASES[11:12],
                         ids=_NAMES[:4] + _NAMES[6:8] + _NAMES[11:12])
def test_released_law_is_private_on_neighbouring_files(case, adjacency, delta):
  """Releases keep the budget by exact divergences; a pure one is used up."""
  moments_too = case['statistic'] in ('mean', 'variance')
  if moments_too:  # These use small integers.
    case = {**case, 'granularity': Decimal('1.5')}
  plan = _plan(adjacency, delta=delta, **case)
  outcomes = np.arange(-600, 601)
  probs_of = functools.cache(lambda data: list(_released(plan, data, outcomes)))
  losses = collections.defaultdict(float)
  for one, other in neighbours.pairs(_DOMAIN, range(2), adjacency):
    changed = [(p, q)
               for p, q in zip(probs_of(one), probs_of(other), strict=True)
               if not np.array_equal(p, q)]
    if delta is None:
      losses[one, other] = sum(_log_ratio(p, q) for p, q in changed)
    elif changed:
      losses[one, other] = _joint_delta(changed)
  if delta is None:
    assert max(losses.values()) <= 1 + 1e-9
    assert max(losses.values()) > (.999 if moments_too else .7)
  else:
    assert .02 * float(delta) < max(losses.values()) <= float(delta)


def _log_ratio(p, q):
  return float(np.max(np.abs(np.log(p) - np.log(q))[100:-100]))


def _joint_delta(changed):
  """Returns delta at epsilon 1 of independent factors,
  with losses rounded up."""
  step, half = 2e-3, 8_000
  total = None
  infinite = 0.0
  for p, q in changed:
    loss = np.full(len(p), -math.inf)
    both = (p > 1e-300) & (q > 1e-300)
    loss[both] = np.log(p[both]) - np.log(q[both])
    infinite += p[~both].sum()
    places = np.clip(np.ceil(loss[both] / step), -half, half).astype(int) + half
    loss_probs = np.bincount(places, weights=p[both], minlength=2 * half + 1)
    total = loss_probs if total is None else np.clip(
        _convolved(total, loss_probs), 0, None)
  losses = (np.arange(len(total)) - len(changed) * half) * step
  gain = np.where(losses > 1, -np.expm1(1 - losses), 0.0)
  return float(total @ gain) + infinite


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
  answer = drawing.draw(plan, plan.measure(data), random.Random(0).randrange)
  truth = wanted(np.clip(_DATA, -2, 4), _DATA)
  assert answer['value'] == pytest.approx(truth, abs=1e-4)
  assert answer['interval']['lower'] <= truth + 1e-9
  assert truth - 1e-9 <= answer['interval']['upper']


def test_without_noise_histogram_and_quantiles():
  below = random.Random(0).randrange
  edges = [-2, 0, 1, 4]
  plan = _plan(_AR, epsilon=_HUGE, statistic='histogram', column='x',
               bins=tuple(map(Decimal, edges)))
  answer = drawing.draw(plan, plan.measure(map(str, _DATA)), below)['value']
  assert list(answer) == ['[-2, 0)', '[0, 1)', '[1, 4]']
  clipped = np.clip(_DATA, -2, 4)
  assert list(answer.values()) == list(np.histogram(clipped, edges)[0])
  plan = _plan(_AR, epsilon=_HUGE, statistic='histogram', column='x',
               categories=('b', 'a'))
  answer = drawing.draw(plan, plan.measure(['a', 'b', None, ' a', 'c', '']),
                        below)
  assert answer['value'] == {'b': 1, 'a': 2, '(other)': 3}
  levels = (Fraction(1, 4), Fraction(1, 2), Fraction(9, 10))
  plan = _plan(_RO, epsilon=_HUGE, statistic='quantiles', quantiles=levels,
               column='x', lower=Decimal(-2), upper=Decimal(4))
  answer = drawing.draw(plan, plan.measure(map(str, _DATA)), below)
  truth = np.quantile(clipped, [.25, .5, .9], method='inverted_cdf')
  assert list(answer['value'].values()) == pytest.approx(truth)
  assert answer['num_records'] == 101


@pytest.mark.parametrize('missing, total', [
  ('lower', -1), ('middle', 2), ('upper', 5)])
def test_missing_records_count_under_replace_one(missing, total):
  plan = _plan(_RO, epsilon=_HUGE, statistic='mean', column='x',
               lower=Decimal(-1), upper=Decimal(5), missing=missing)
  answer = drawing.draw(plan, plan.measure(['1', 'NA', '']), random.Random(0).randrange)
  assert answer['num_records'] == 3
  assert answer['value'] == pytest.approx((1 + 2 * total) / 3, abs=1e-4)
  for adjacency in Adjacency:
    absent = _plan(adjacency, epsilon=_HUGE, statistic='mean', column='x',
                   lower=Decimal(-1), upper=Decimal(5), missing='absent')
    answer = drawing.draw(absent, absent.measure(['1', 'NA', '']),
                          random.Random(0).randrange)
    assert answer['value'] == pytest.approx(1, abs=1e-4)
    # The number of numeric records is private under either adjacency.
    assert 'num_records' not in answer


def test_what_is_drawn_has_the_law():
  below = random.Random(6).randrange
  plan = _plan(_AR, statistic='sum', **_BOUNDS)
  measured = plan.measure(['0.5', '2'])
  drawn = [round(drawing.draw(plan, measured, below)['value'] / .5)
           for _ in range(1_500)]
  edges = np.arange(-10, 21)
  probs = _pmf(plan.noise, np.arange(-600, 601) - 5)
  wanted = probs[600 + edges] * 1_500
  counts = np.array([drawn.count(z) for z in edges])
  rest = 1_500 - wanted.sum()
  assert stats.chisquare(np.append(counts, 1_500 - counts.sum()),
                         np.append(wanted, rest)).pvalue > 1e-5


@pytest.mark.slow
@pytest.mark.every(3)
@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('statistic', ['sum', 'mean', 'variance'])
def test_intervals_cover(statistic, adjacency, delta, monkeypatch):
  """Intervals cover at nominal 0.9; the test fails once in 10^6."""
  # Population intervals are slow, and tested elsewhere.
  monkeypatch.setattr(sample_means, 'population_mean', lambda *_: (0, 1))
  runs, below = 150 if statistic == 'sum' else 50, random.Random(8).randrange
  plan = _plan(adjacency, delta=delta, statistic=statistic, column='x',
               lower=Decimal(-2), upper=Decimal(4), confidence=Fraction(9, 10))
  measured = plan.measure(map(str, _DATA))
  clipped = np.clip(_DATA, -2, 4)
  truth = {'sum': clipped.sum(), 'mean': clipped.mean(),
           'variance': clipped.var()}[statistic]
  covered = 0
  for _ in range(runs):
    answer = drawing.draw(plan, measured, below)['interval']
    covered += answer['lower'] <= truth <= answer['upper']
  assert covered >= stats.binom.ppf(1e-6, runs, .9)
  if statistic != 'variance':
    assert covered <= stats.binom.isf(1e-6, runs, .9)


def test_a_sum_is_within_the_width_of_its_noise():
  plan = _plan(_AR, statistic='sum', **_BOUNDS, confidence=Fraction(9, 10))
  answer = drawing.draw(plan, (7, 12), random.Random(2).randrange)
  width = plan.noise.half_width(.1) / 2
  assert answer['interval']['lower'] == answer['value'] - width
  assert answer['interval']['upper'] == answer['value'] + width


@pytest.mark.slow
@pytest.mark.parametrize('delta', [None, Fraction(1, 10**6)])
@pytest.mark.parametrize('adjacency', Adjacency)
def test_population_intervals_cover(adjacency, delta):
  """Population intervals cover at nominal 0.8; the test fails once in 10^6."""
  generator, below = np.random.default_rng(9), random.Random(9).randrange
  plan = _plan(adjacency, epsilon=Fraction(20), statistic='mean', column='x',
               lower=Decimal(0), upper=Decimal(1), granularity=Decimal('.5'),
               confidence=Fraction(8, 10), delta=delta)
  covered, inner = 0, 0
  for _ in range(50):
    data = generator.choice(3, 60, p=[.85, .05, .1]) / 2
    answer = drawing.draw(plan, plan.measure(data.tolist()), below)
    outer = answer['population_interval']
    covered += outer['lower'] <= .125 <= outer['upper']
    inner += answer['interval']['lower'] <= .125 <= answer['interval']['upper']
  assert covered >= stats.binom.ppf(1e-6, 50, .8)
  assert inner < covered


@pytest.mark.parametrize('fields, message', [
  ({'statistic': 'midrange'}, 'statistic must be one of'),
  ({'statistic': 'sum'}, 'sum needs column, lower, upper$'),
  ({'statistic': 'sum', **_BOUNDS, 'bins': (Decimal(0),)}, 'takes no bins'),
  ({'statistic': 'sum', **_BOUNDS, 'epsilon': Fraction(0)}, 'epsilon must be'),
  ({'statistic': 'sum', **_BOUNDS, 'delta': Fraction(1)}, 'delta must lie'),
  ({'statistic': 'sum', **_BOUNDS, 'upper': Decimal(-1)}, 'lower must be below'),
  ({'statistic': 'sum', **_BOUNDS, 'confidence': Fraction(1)}, 'confidence'),
  ({'statistic': 'sum', **_BOUNDS, 'missing': 'mean'}, 'missing must be'),
  ({'statistic': 'sum', **_BOUNDS, 'granularity': Decimal(0)},
   'granularity must be positive, got 0'),
  ({'statistic': 'support_max', 'column': 'x', 'lower': Decimal(1),
    'upper': Decimal(2), 'granularity': Decimal(0)}, 'granularity must be'),
  ({'statistic': 'normal_mean', **_BOUNDS, 'sigma': Decimal(1),
    'granularity': Decimal(0)}, 'granularity must be positive, got 0'),
  ({'statistic': 'median', **_BOUNDS},
   "no statistic 'median': ask for quantiles with quantiles=0.5"),
  ({'statistic': 'count'}, 'nothing to release'),
  ({'statistic': 'count', 'column': 'x'}, 'count needs column, lower'),
  ({'statistic': 'histogram', 'column': 'x'}, 'either categories or bins'),
  ({'statistic': 'histogram', 'column': 'x', 'categories': ('a', 'a')},
   'must differ'),
  ({'statistic': 'histogram', 'column': 'x', 'categories': ('a',),
    'missing': 'lower'}, 'missing is for bins'),
  ({'statistic': 'histogram', 'column': 'x',
    'bins': (Decimal(1), Decimal(0))}, 'increasing'),
  ({'statistic': 'quantiles', 'quantiles': (Fraction(1),), **_BOUNDS},
   'strictly between'),
])
def test_refusals(fields, message):
  with pytest.raises(ValueError, match=message):
    _plan(_RO, **fields)
