"""Tests the most frequent category: scores, distribution, privacy, error."""

import fractions
import itertools
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

Fraction = fractions.Fraction
_AR, _RO = Adjacency


def _plan(adjacency, categories=('a', 'b', 'c'), *, epsilon=Fraction(1),
          **fields):
  return registry.plan(Query(
      statistic='mode', adjacency=adjacency, epsilon=epsilon, column='x',
      categories=categories, **fields))


def _distribution(plan, dataset):
  """Returns probabilities of all categories by their counts, and scores."""
  sizes = np.array([list(dataset).count(c) for c in plan.query.categories])
  rate = plan.query.epsilon / (2 if plan.query.replacing else 1)
  weights = np.exp(float(rate) * (sizes - sizes.max()))
  scores = np.array(plan.scores(plan.measure(dataset)))
  assert np.array_equal(scores, sizes.sum() - 2 * sizes)
  stated = np.exp(-float(plan.rate) * (scores - scores.min()))
  assert weights == pytest.approx(stated, rel=1e-12)
  return weights / weights.sum(), scores


@pytest.mark.sound
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('categories', [('a', 'b'), ('a', 'b', 'c')])
def test_scores_and_privacy_by_enumeration(adjacency, categories):
  """Sensitivity and epsilon hold, over all files of up to 5 records."""
  plan = _plan(adjacency, categories)
  change, worst = 0, 0.0
  for one, other in neighbours.pairs((*categories, 'none'), range(1, 6),
                                     adjacency):
    (p, scores), (q, others) = (_distribution(plan, each)
                                for each in (one, other))
    change = max(change, np.abs(scores - others).max())
    worst = max(worst, divergences.max_divergence(p, q))
  assert change == plan.sensitivity == (2 if adjacency is _RO else 1)
  assert .7 < worst <= 1 + 1e-9
  assert plan.cost.pure == 1
  # Among 30 records of a, one of b changes its probability by e^epsilon.
  p, q = (_distribution(plan, ['a'] * size + ['b'] * extra)[0]
          for size, extra in ((30, 0), (29 if adjacency is _RO else 30, 1)))
  assert 1 - 1e-4 < divergences.max_divergence(q, p) <= 1 + 1e-9


def test_the_range_of_log_ratios_is_what_is_charged():
  """Log-ratios range over epsilon at most, as
  composition at delta > 0 needs."""
  for adjacency in Adjacency:
    plan = _plan(adjacency)
    width, = plan.cost.choices
    widest = 0.0
    for one, other in neighbours.pairs('abcz', range(1, 5), adjacency):
      p, q = (_distribution(plan, each)[0] for each in (one, other))
      widest = max(widest, np.ptp(np.log(p) - np.log(q)))
    assert widest == pytest.approx(float(width))


def test_categories_are_drawn_with_their_probabilities():
  below, plan = random.Random(5).randrange, _plan(_RO)
  dataset = ['a'] * 3 + ['b', 'b', 'x', None]
  measured = plan.measure(dataset)
  assert measured == [3, 2, 0]
  drawn = [drawing.draw(plan, measured, below)['value'] for _ in range(900)]
  chances, _ = _distribution(plan, dataset)
  assert stats.chisquare([drawn.count(c) for c in 'abc'],
                         900 * chances).pvalue > 1e-5


@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('confidence', [Fraction(1, 2), Fraction(19, 20)])
def test_fewer_records_than_stated_are_as_rare_as_stated(adjacency, confidence):
  """The chosen category falls short of the largest count
  as rarely as stated."""
  plan = _plan(adjacency, epsilon=Fraction(1, 2), confidence=confidence)
  error, worst = plan.count_error(), 0.0
  top = error + 4
  for sizes in itertools.product((0, top - error - 1, top - 1, top), repeat=3):
    dataset = [c for c, size in zip('abc', sizes, strict=True)
               for _ in range(size)]
    chances, _ = _distribution(plan, dataset)
    far = max(sizes) - np.array(sizes) > error
    worst = max(worst, chances[far].sum())
  miss = 1 - float(confidence)
  assert .6 * miss < worst <= miss


def test_ties_and_files_without_categories_are_drawn_evenly():
  plan = _plan(_AR)
  for dataset in ([], ['z'] * 9, ['a', 'b', 'c']):
    assert np.ptp(_distribution(plan, dataset)[0]) == 0


def test_one_category_too_many_costs_logarithmically():
  few, many = (_plan(_RO, tuple(map(str, range(size)))).count_error()
               for size in (2, 1025))
  assert few == 5 and 18 < many < 21


@pytest.mark.parametrize('categories', [('a',), ('a', 'b', 'a')])
def test_categories_must_differ(categories):
  with pytest.raises(ValueError, match='mode needs two categories or more'):
    _plan(_AR, categories)
