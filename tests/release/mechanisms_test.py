"""Tests that a statistic learns of records from charged mechanisms only.

A meter records the input of each mechanism and can answer in its place. For
every statistic, each vector of sums or scores moves between neighbours by the
stated sensitivity at most, and records with equal noisy answers have equal
releases.
"""

import decimal
import fractions
import functools
import random

import numpy as np
import pytest

from dpjax.privacy import neighbours
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import costs
from dpjax.release import meter as meters
from dpjax.release import noise
from dpjax.release import normal_means
from dpjax.release import registry
from dpjax.release.query import Query

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_BOUNDS = {'column': 'x', 'lower': Decimal(1), 'upper': Decimal(4)}
_FINE = {**_BOUNDS, 'granularity': Decimal('.5')}
_GRID = {**_BOUNDS, 'thresholds': 40}
_LABELS = {**_GRID, 'thresholds': 12, 'label': 'y', 'positive': '1'}
_SCORES = {**_LABELS, 'lower': Decimal(0), 'upper': Decimal(1), 'groups': 3}
_BINS = {'column': 'x', 'bins': tuple(map(Decimal, '135'))}
_LABELLED_BINS = {**_BINS, 'label': 'y', 'positive': '1'}
_GEOMETRIC = {'lower': Decimal('.1'), 'grid': 'geometric'}
# Queries for each statistic; a new one must be added here. Quantiles that split
# records are enumerated in splitting_test.
_CASES = {
  'count': [{}, _BOUNDS], 'sum': [_FINE, {**_FINE, 'lower': Decimal(-3)}],
  'mean': [_FINE], 'variance': [_FINE],
  'histogram': [{'column': 'x', 'categories': ('2', '9')},
                _BINS],
  'mode': [{'column': 'x', 'categories': ('2', '3.2', '9')}],
  'quantiles': [{**_FINE, 'quantiles': (Fraction(1, 3), Fraction(1, 2)),
                 'quantile_method': 'independent', **more}
                for more in ({}, {'value_interval': True})],
  'proportion': [{'column': 'x', 'positive': '2'}, _BOUNDS],
  'support_max': [_FINE], 'normal_mean': [
      {**_BOUNDS, 'sigma': Decimal('.1'), 'granularity': Decimal('.001')}],
  'ecdf': [_GRID, {**_GRID, **_GEOMETRIC}, _BINS],
  'density': [_FINE, {**_FINE, 'boundary': 'circle'}],
  'classifier': [{**_LABELS, 'groups': 3}, {**_LABELS, **_GEOMETRIC},
                 _LABELLED_BINS],
  **{name: [_LABELS, {**_LABELS, **_GEOMETRIC}, _LABELLED_BINS]
     for name in ('roc', 'auc')},
  'hosmer_lemeshow': [_SCORES, {**_SCORES, **_GEOMETRIC}, {
      **_LABELLED_BINS, 'bins': (Decimal(0), Decimal('.5'), Decimal(1))}]}
# Values are below, inside, above and no number; one is a category.
_NUMBERS = ('-7', '2', '3.2', '99', 'NA')
_PAIRS = (('-7', '1'), ('-7', '0'), ('.7', '1'), ('NA', '1'), ('.3', ''))
# Numbers of common records: enough for all stages of a normal mean, and for the
# rank of a support_max to depend on n.
_MANY = {'normal_mean': 300, 'support_max': 50}
_EPSILON = {'support_max': Fraction(1)}


class _Spent(Exception):
  """Ends a draw when its budget is spent; the rest is post-processing."""


class _Meter(meters.Meter):
  """A meter that records mechanisms' inputs and repeats an earlier draw.

  Uncharged randomness is not available from it.

  Attributes:
    given: (numbers, public description of the noise) of each mechanism.
    answers: the answer of each mechanism.
  """

  def __init__(self, plan, answers=(), *, whole=True):
    super().__init__(plan.cost, None)
    self.given, self.answers = [], list(answers)
    self._whole = whole
    self._random = random.Random(7).randrange

  def charged(self, cost):
    super().charged(cost)
    return self._random

  def _answer(self, given, public, mechanism, unseen):
    """Returns the mechanism's draw, or the answer of an earlier draw.

    For an earlier answer the mechanism still runs, on the empty input `unseen`,
    so that it is charged.
    """
    place = len(self.given)
    self.given.append((given, public))
    if place == len(self.answers):
      self.answers.append(mechanism(*given))
    else:
      mechanism(*unseen)
    if not self._whole and costs.total(self._charged) == self.reserved:
      raise _Spent
    return self.answers[place]

  def noisy(self, values, distribution, **sensitivities):
    values = list(values)
    return self._answer((values,), (distribution, sensitivities, len(values)),
                        lambda numbers: super(_Meter, self).noisy(
                            numbers, distribution, **sensitivities), ([],))

  def point(self, runs, scores, **public):
    return self._answer((runs, scores), public, lambda *given: super(
        _Meter, self).point(*given, **public), ([(0, 1)], [0]))


def _plans(name, *, deltas=(None, Fraction(1, 10**6))):
  for case in _CASES[name]:
    takes = registry.STATISTICS[name].takes
    for adjacency in Adjacency:
      if not case and adjacency is Adjacency.REPLACE_ONE:
        continue
      for missing in (None, 'absent') if 'missing' in takes and (
          'categories' not in case) else (None,):
        for delta in deltas:
          yield registry.plan(Query(
              statistic=name, epsilon=_EPSILON.get(name, Fraction(20)),
              adjacency=adjacency, delta=delta, missing=missing, **case))


def test_every_statistic_has_a_case():
  assert set(_CASES) == set(registry.STATISTICS)


def test_every_parameter_of_a_statistic_is_in_a_case():
  for name, statistic in registry.STATISTICS.items():
    given = {key for case in _CASES[name] for key in case}
    # `_plans` adds the rules for missing numbers.
    assert {*statistic.needs, *statistic.takes} - {'missing'} <= given, name


# Calibrations take most of the time.
_CALIBRATED = {name: functools.cache(getattr(costs, name))
               for name in ('concentrated', 'choices')}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
  """Calibrates once, and tries few clamps of a normal mean."""
  for name, function in _CALIBRATED.items():
    monkeypatch.setattr(costs, name, function)
  monkeypatch.setattr(normal_means, '_CLAMPS', np.array([3., 4.]))


def _given(plan, dataset, answers):
  meter = _Meter(plan, answers, whole=False)
  with pytest.raises(_Spent):
    plan.draw(plan.measure(dataset), meter)
  return meter


def _domain(plan):
  return _PAIRS if plan.reads == 'labels' else _NUMBERS


def _check_moves(one, other):
  """Checks a mechanism's inputs for two neighbouring data sets."""
  (given, public), (others, same) = one, other
  assert public == same
  if isinstance(public, dict):
    difference = _each(*given) - _each(*others)
    assert np.abs(difference).max() <= public['sensitivity']
    return
  distribution, stated, _ = public
  difference = np.array(given[0], float) - np.array(others[0], float)
  if isinstance(distribution, noise.LaplaceNoise):
    assert np.abs(difference).sum() <= stated['l1_sensitivity']
  else:
    assert (difference**2).sum() <= stated['l2_sensitivity_squared']


def _each(runs, scores):
  """Returns the score of each candidate, in increasing order."""
  return np.array([score for (_, count), score in sorted(
      zip(runs, scores, strict=True)) for _ in range(count)], float)


@pytest.mark.sound
@pytest.mark.parametrize('name', registry.STATISTICS)
def test_neighbours_move_what_is_noised_by_the_sensitivity_at_most(name):
  for plan in _plans(name):
    domain = _domain(plan)
    pairs = list(neighbours.pairs(domain, range(2), plan.query.adjacency))
    for public in ([], [domain[1]] * _MANY.get(name, 10)):
      answers = _given(plan, public, ()).answers
      given = {dataset: _given(plan, [*dataset, *public], answers).given
               for pair in pairs for dataset in pair}
      for pair in pairs:
        for one, other in zip(*map(given.get, pair), strict=True):
          _check_moves(one, other)


@pytest.mark.parametrize('name', registry.STATISTICS)
def test_a_release_is_made_of_noisy_answers_alone(name):
  """A release depends on noisy answers and a public number of records only."""
  for plan in _plans(name, deltas=(None,)):
    domain = _domain(plan)
    first = _Meter(plan)
    number = _MANY.get(name, 10)
    released = plan.draw(plan.measure([domain[1]] * number), first)
    first.check_spent()
    others = domain * (number // 5) if plan.query.knows_size else ()
    meter = _Meter(plan, first.answers)
    assert plan.draw(plan.measure(others), meter) == released
    meter.check_spent()
    assert [public for _, public in meter.given] == [
        public for _, public in first.given]
