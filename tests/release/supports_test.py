"""Tests the upper end of a uniform distribution: scores, ranks, coverage."""

import decimal
import fractions
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


def _plan(adjacency, *, epsilon=Fraction(1), lower='0.1', upper='1', **fields):
  return registry.plan(Query(
      statistic='support_max', adjacency=adjacency, epsilon=epsilon, column='x',
      lower=Decimal(lower), upper=Decimal(upper), **fields))


def _probs_and_scores(plan, dataset, rank):
  runs, scores = plan.scores(plan.measure(dataset), rank)
  each = np.repeat(scores, [size for _, size in runs])
  weights = np.exp(-float(plan.rate) * each)
  return weights / weights.sum(), each


@pytest.mark.sound
@pytest.mark.parametrize('adjacency, missing', [
    (_AR, None), (_RO, None), (_RO, 'absent')])
@pytest.mark.parametrize('rank', [1, 2, 5])
def test_scores_and_privacy_by_enumeration(adjacency, missing, rank):
  """Scores move by one and probabilities by epsilon, for too high ranks too."""
  plan = _plan(adjacency, granularity=Decimal('0.01'), missing=missing)
  change, worst = 0, 0.0
  for one, other in neighbours.pairs(('-1', '0.2', '0.21', '1', 'NA'),
                                     range(1, 5), adjacency):
    if '0.2' not in one or '0.2' not in other:
      continue
    (p, scores), (q, others) = (
        _probs_and_scores(plan, data, rank) for data in (one, other))
    change = max(change, np.abs(scores - others).max())
    worst = max(worst, divergences.max_divergence(p, q))
  share = 1 if plan.query.knows_size else Fraction(19, 20)
  assert change == 1
  assert (.5 if rank < 5 else .1) * share < worst <= share
  assert plan.cost.pure == 1 and 2 * plan.rate == share


def test_scores_are_distances_of_ranks_from_the_top():
  plan = _plan(_RO, granularity=Decimal('0.1'))
  data = ['0.3', '0.3', '0.5', '0.9', '0.9', '1']
  _, scores = _probs_and_scores(plan, data, 2)
  values = np.array(data, float)
  for point, score in zip(np.arange(11) / 10, scores, strict=True):
    above, from_it = np.sum(values > point + 1e-9), np.sum(
        values >= point - 1e-9)
    assert score == max(0, above - 2, 2 - from_it)


def _ranks(plan, number, rank, runs, theta=1.0):
  """Returns rank offsets of gaps, and their mean probabilities of choice."""
  generator = np.random.default_rng(0)
  gaps = generator.standard_exponential((runs, number + 1))
  gaps *= theta / gaps.sum(1, keepdims=True)
  away = np.arange(number + 1) - (number - rank)
  weights = gaps * np.exp(-float(plan.rate) * np.abs(away))
  outside = (1 - theta) * np.exp(-float(plan.rate) * rank)
  total = weights.sum(1, keepdims=True) + outside
  return away, (weights / total).mean(0), np.mean(outside / total)


@pytest.mark.parametrize('theta', [1.0, .3])
def test_ranks_are_off_as_seldom_as_said_and_nearly_as_often(theta):
  """Ranks are off with nearly the stated chance, in 4000 sets of values."""
  plan, number, miss = _plan(_RO, lower='0.25'), 60, .05
  rank = plan.rank(number)
  away, chances, outside = _ranks(plan, number, rank, 4_000, theta)
  up, down = (plan.off(miss, (number, number), rank, above=above)
              for above in (True, False))
  assert 3 < down <= up < rank < 30
  high = chances[away >= up].sum() + outside
  assert high <= miss * 1.01 and high > .6 * miss
  low = chances[away <= -down].sum()
  assert .6 * miss < low <= miss * 1.01


def test_ends_are_those_of_the_outermost_ranks():
  """Each end errs in a quarter of `miss` at the outermost ranks, in 20000
  runs within four standard errors."""
  plan, number, miss = _plan(_RO), 80, .2
  rank = plan.rank(number)
  up, down = (plan.off(miss / 4, (number, number), rank, above=above)
              for above in (True, False))
  low, high = plan.interval(.5, rank, (number, number), miss)
  values = np.sort(np.random.default_rng(4).random((20_000, number)), 1)
  for far, end in ((up, low), (1 - down, high)):
    farthest = values[:, number - rank + far - 1] / .5 * end
    wrong = np.mean(farthest > 1 if far > 0 else farthest < 1)
    assert abs(wrong - miss / 4) < .0065
  # The number of records may be off by four.
  wide = plan.interval(.5, rank, (number - 4, number + 4), miss)
  assert wide[0] < low < high < wide[1]


@pytest.mark.slow
@pytest.mark.parametrize('adjacency', Adjacency)
def test_population_intervals_cover(adjacency):
  """Population intervals cover at nominal 0.5; the test fails once in 10^5."""
  generator, below = np.random.default_rng(9), random.Random(9).randrange
  plan = _plan(adjacency, epsilon=Fraction(2), confidence=Fraction(1, 2))
  covered, errors = 0, []
  for _ in range(60):
    measured = plan.measure((.6 * generator.random(150)).tolist())
    answer = drawing.draw(plan, measured, below)
    interval = answer['population_interval']
    covered += interval['lower'] <= .6 <= interval['upper']
    errors.append(answer['value'] - .6)
    ranks = answer['interval']
    point = answer['point'] / float(plan.lattice.unit)
    assert np.sum(np.array(measured) >= point - 1) >= ranks['lower']
  assert covered >= stats.binom.ppf(1e-5, 60, .5)
  assert np.sqrt(np.mean(np.square(errors))) < .05
  assert abs(np.mean(errors)) < 4.5 * np.std(errors) / np.sqrt(60) + .004


def test_few_records_say_nothing_and_many_a_lot():
  below = random.Random(1).randrange
  ends = []
  for number in (2, 300, 3_000):
    plan = _plan(_RO, lower='0.2')
    values = np.linspace(0, .5, number + 2)[1:-1]
    answer = drawing.draw(plan, plan.measure(values.tolist()), below)
    ends.append([answer['population_interval'][e] for e in ('lower', 'upper')])
  assert ends[0] == [.2, 1]
  assert .4 < ends[1][0] < .5 < ends[1][1] < .65
  assert .49 < ends[2][0] < .5 < ends[2][1] < .51


@pytest.mark.parametrize('fields, message', [
  ({'lower': '0'}, 'lower must be positive'),
  ({'granularity': Decimal(2)}, 'granularity must be')])
def test_refusals(fields, message):
  with pytest.raises(ValueError, match=message):
    _plan(_RO, **fields)


def test_released_points_have_the_law():
  plan = _plan(_RO, granularity=Decimal('0.1'), epsilon=Fraction(2))
  data = ['0.3', '0.3', '0.5', '0.6', '0.7', '0.7', '0.8', '0.9']
  measured, below = plan.measure(data), random.Random(0).randrange
  runs = [drawing.draw(plan, measured, below) for _ in range(3000)]
  probs, _ = _probs_and_scores(plan, data, runs[0]['rank_below_top'])
  places = [round(run['point'] * 10) - round(10 * float(plan.lattice.low * (
      plan.lattice.unit))) for run in runs]
  seen = np.bincount(places, minlength=len(probs))
  kept = probs * len(runs) > 5
  expected = np.append(probs[kept], probs[~kept].sum() + 1e-12) * len(runs)
  counts = np.append(seen[kept], seen[~kept].sum())
  assert stats.chi2.sf(np.sum((counts - expected)**2 / expected), kept.sum()
                       ) > 1e-6
  # Twice the rate gives a different distribution.
  other = probs**2 / np.sum(probs**2)
  assert np.sum((seen - other * len(runs))[kept]**2 / (
      other * len(runs))[kept]) > 200
