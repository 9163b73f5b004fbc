"""Tests released quantiles: distribution, privacy, ranks and interval ends."""

import decimal
import fractions
import functools
import math
import random

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import divergences
from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import registry
from dpjax.release.query import Query
from tests.release import drawing

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency
_BOUNDS = {'column': 'x', 'lower': Decimal('-1'), 'upper': Decimal('2'),
           'granularity': Decimal('0.5')}
_DATA = np.round(np.random.default_rng(3).normal(1, 3, 101), 3)


def _plan(adjacency, *, epsilon=Fraction(1), **fields):
  return registry.plan(Query(adjacency=adjacency, epsilon=epsilon, **fields))


def _probs_and_scores(plan, dataset, level):
  measured = plan.measure(dataset)
  groups = plan.groups(measured)
  scores = plan.scores(groups, level, len(measured))
  low = plan.lattice.low
  probs = np.zeros(plan.lattice.high - low + 1)
  scores_at = np.full(len(probs), -1)
  for (start, size, _, _), score in zip(groups, scores, strict=True):
    probs[start - low:start - low + size] = math.exp(-plan.rate(level) * score)
    scores_at[start - low:start - low + size] = score
  return probs / probs.sum(), scores_at


@pytest.mark.sound
@pytest.mark.parametrize('adjacency, missing', [
    (_AR, None), (_RO, None), (_RO, 'absent')])
@pytest.mark.parametrize('level', [Fraction(1, 2), Fraction(1, 3),
                                   Fraction(9, 10)])
def test_quantiles_by_enumeration(adjacency, missing, level):
  # Points of a wide gap weigh most while they are near the quantile.
  plan = _plan(adjacency, statistic='quantiles', quantiles=(level,),
               missing=missing, **{**_BOUNDS, 'granularity': Decimal('0.01')})
  domain, worst, change = ('-1', '1.99', '2'), 0.0, 0
  domain += ('NA',) if missing else ()
  probs_of = functools.cache(lambda data: _probs_and_scores(plan, data, level))
  for one, other in neighbours.pairs(domain, range(1, 5), adjacency):
    (p, scores), (q, others) = probs_of(one), probs_of(other)
    worst = max(worst, divergences.max_divergence(p, q))
    change = max(change, np.abs(scores - others).max())
  assert worst <= 1 + 1e-9
  assert worst > .6
  assert change == plan.sensitivity(level)
  assert plan.cost.pure == 1


def test_scores_are_distances_of_ranks():
  plan = _plan(_RO, statistic='quantiles', quantiles=(Fraction(2, 5),),
               **_BOUNDS)
  for seed in range(20):
    draw = random.Random(seed)
    data = [str(draw.choice([-2, -1, -.5, 0, .5, 2])) for _ in range(7)]
    values = plan.measure(data)
    _, scores = _probs_and_scores(plan, data, Fraction(2, 5))
    for point, score in zip(range(plan.lattice.low, plan.lattice.high + 1),
                            scores, strict=True):
      upto = sum(v <= point for v in values)
      under = sum(v < point for v in values)
      assert score == max(0, 2 * 7 - 5 * upto, 5 * under - 2 * 7)


def test_quantiles_drawn_have_the_law():
  below = random.Random(7).randrange
  level = Fraction(1, 2)
  plan = _plan(_AR, statistic='quantiles', quantiles=(level,), **_BOUNDS)
  data = ['-1', '0.5', '0.5', '2', '1']
  measured = plan.measure(data)
  drawn = [round(drawing.draw(plan, measured, below)['value']['1/2'] / .5)
           for _ in range(600)]
  probs, _ = _probs_and_scores(plan, data, level)
  counts = [drawn.count(z) for z in range(-2, 5)]
  assert stats.chisquare(counts, 600 * probs).pvalue > 1e-5


def test_quantiles_are_as_near_as_they_say():
  below = random.Random(10).randrange
  levels = (Fraction(1, 3), Fraction(1, 2))
  plan = _plan(_AR, statistic='quantiles', quantiles=levels, column='x',
               lower=Decimal(-2), upper=Decimal(4), granularity=Decimal('.1'),
               confidence=Fraction(1, 2))
  measured, clipped = plan.measure(map(str, _DATA)), np.clip(_DATA, -2, 4)
  indices = np.sort(measured) * .1
  covered = 0
  for _ in range(100):
    answer = drawing.draw(plan, measured, below)
    error = answer['interval']['rank_error']
    points = list(answer['value'].values())
    assert points == sorted(points)
    covered += all(
        np.sum(indices <= point + 1e-9) >= level * 101 - error and
        np.sum(indices < point - 1e-9) <= level * 101 + error
        for point, level in zip(points, levels, strict=True))
  assert covered >= stats.binom.ppf(1e-5, 100, .5)
  assert clipped.size == 101


@pytest.mark.slow
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('number', [3, 101])
def test_ends_lie_around_the_quantiles(adjacency, number):
  """Ends enclose the quantiles at nominal 0.5; the test fails once in 10^5."""
  below = random.Random(11).randrange
  levels = (Fraction(1, 10), Fraction(1, 2))
  plan = _plan(adjacency, statistic='quantiles', quantiles=levels, column='x',
               lower=Decimal(-2), upper=Decimal(4), granularity=Decimal('.1'),
               confidence=Fraction(1, 2), value_interval=True,
               epsilon=Fraction(6))
  assert plan.cost.pure == 6
  measured = plan.measure(map(str, _DATA[:number]))
  indices = np.sort(measured) * .1
  covered, widths = 0, []
  for _ in range(60):
    ends = drawing.draw(plan, measured, below)['value_interval']['ends']
    widths.append(ends['1/2'][1] - ends['1/2'][0])
    covered += all(
        np.sum(indices < ends[str(level)][0] - 1e-9) <= level * number and
        np.sum(indices <= ends[str(level)][1] + 1e-9) >= level * number
        for level in levels)
  assert covered >= stats.binom.ppf(1e-5, 60, .5)
  assert (np.mean(widths) < 2) == (number == 101)


@pytest.mark.sound
@pytest.mark.parametrize('adjacency', Adjacency)
def test_ends_by_enumeration(adjacency):
  """Public padding and shifted ranks do not change the sensitivity."""
  level = Fraction(1, 3)
  plan = _plan(adjacency, statistic='quantiles', quantiles=(level,),
               value_interval=True, **_BOUNDS)
  spare = 2

  def scores(data, shift):
    values = plan.measure(data)
    groups = plan.groups([plan.lattice.low] * spare + values
                         + [plan.lattice.high] * spare)
    each = plan.scores(groups, level, len(values), shift)
    return np.repeat(each, [size for _, size, _, _ in groups])

  for shift in (0, 2 * spare):
    change = max(np.abs(scores(one, shift) - scores(other, shift)).max()
                 for one, other in neighbours.pairs(('-1', '1', '2'),
                                                    range(1, 5), adjacency))
    assert change == plan.sensitivity(level)
    assert scores(('1',), shift).min() == 0
  assert 3 * 2 * plan.sensitivity(level) * plan.rate(level) == plan.cost.pure


def test_rank_errors_are_nearly_attained():
  """The rank error is nearly attained by records at one end."""
  plan = _plan(_AR, statistic='quantiles', quantiles=(Fraction(1, 2),),
               epsilon=Fraction(1, 5),
               **{**_BOUNDS, 'granularity': Decimal('0.01')})
  answer = drawing.draw(plan, plan.measure(['-1']), random.Random(0).randrange)
  number = math.floor(2 * answer['interval']['rank_error']) + 1
  probs, scores = _probs_and_scores(plan, ['-1'] * number, Fraction(1, 2))
  far = scores > 2 * answer['interval']['rank_error']
  assert far.sum() == 300
  assert .03 < probs[far].sum() <= .05
