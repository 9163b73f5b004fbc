"""Tests that every statistic gives a finite, valid answer for any file."""

import decimal
import fractions
import json
import math
import random

import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import bands
from dpjax.release import calibration
from dpjax.release import density_bands
from dpjax.release import registry
from dpjax.release.query import Query
from tests.release import drawing

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency
_BOUNDS = {'column': 'x', 'lower': Decimal(1), 'upper': Decimal(3)}
_GRID = {**_BOUNDS, 'thresholds': 6}
_LABELS = {'column': 'x', 'label': 'y', 'positive': '1', 'upper': Decimal(1),
           'lower': Decimal(0), 'thresholds': 6}
# Queries for each statistic; a new one must be added here.
_CASES = {
  'count': [{}, _BOUNDS], 'sum': [_BOUNDS], 'mean': [_BOUNDS],
  'variance': [_BOUNDS],
  'histogram': [{'column': 'x', 'categories': ('1', 'a', 'None')},
                {'column': 'x', 'bins': (Decimal(0), Decimal(1), Decimal(9))}],
  'mode': [{'column': 'x', 'categories': ('1', 'a', 'None')}],
  'quantiles': [
      {**_BOUNDS, 'quantiles': (Fraction(1, 3), Fraction(1, 2)), **more}
      for more in ({'quantile_method': 'independent'},
                   {'quantile_method': 'recursive'}, {'value_interval': True})],
  'proportion': [{'column': 'x', 'positive': '1'}, _BOUNDS],
  'support_max': [_BOUNDS], 'normal_mean': [{**_BOUNDS, 'sigma': Decimal(2)}],
  'ecdf': [_GRID], 'density': [{**_BOUNDS, 'granularity': Decimal('.5')}],
  'classifier': [_LABELS], 'roc': [_LABELS], 'auc': [_LABELS],
  'hosmer_lemeshow': [_LABELS]}
_PURE = ('quantiles', 'support_max')
_NUMBERS = {
  'none': [], 'one': ['1'], 'no number': ['', 'a', None, 'nan', b'1', '1,5'] * 3,
  'equal': ['2'] * 30, 'outside': ['-99', '99'] * 9, 'floats': [2.5, .1, -0.0],
  'infinite': ['inf', '-inf', '1e999999999999', '-1e99999999999999999999',
               '1e-99999999999999999999', math.inf, 2**3000],
  'digits': ['9' * 50_000, '1.' + '5' * 50_000, '1e' + '9' * 50_000],
  'some missing': ['1', '', '2', None, '3'] * 5}
_CLASSES = {'no positive': ['0'], 'all positive': ['1'], 'both': ['1', '0'],
            'no label': ['', None, 'x', 'nan', 7]}


def _settings(name, *, all_rules=True):
  """Yields queries of a statistic under both adjacencies, pure and not."""
  for case in _CASES[name]:
    for adjacency in Adjacency:
      for delta in (None, Fraction(1, 10**6)):
        rules = ('absent', None) if 'missing' in registry.STATISTICS[
            name].takes and 'categories' not in case else (None,)
        if delta and (name in _PURE or adjacency is _AR or not all_rules) or (
            not case and adjacency is _RO):
          continue
        for missing in rules if delta is None and all_rules else rules[:1]:
          yield {'statistic': name, 'adjacency': adjacency, 'delta': delta,
                 'missing': missing, 'confidence': Fraction(9, 10), **case}


def _files(reads):
  """Yields (kind of hostility, hostile fields) in the
  form that a plan reads."""
  for name, numbers in _NUMBERS.items():
    if reads != 'labels':
      yield name, numbers
      continue
    for kind, labels in _CLASSES.items():
      if name == 'some missing' or kind == 'both' and name in (
          'none', 'infinite', 'no number'):
        yield f'{name}, {kind}', [(number, labels[k % len(labels)])
                                  for k, number in enumerate(numbers)]


def _answer(plan, fields, below):
  released = drawing.draw(plan, plan.measure(fields), below)
  # The answer is stored and read again, as the ledger does.
  released = json.loads(json.dumps(released, allow_nan=False))
  return {**plan.facts(), **released, **plan.view(released)}


def _intervals(value):
  """Yields all intervals within an answer, with the values beside them."""
  if isinstance(value, dict):
    if {'lower', 'upper', 'level'} <= set(value):
      yield value
    for part in value.values():
      yield from _intervals(part)
  elif isinstance(value, list):
    for part in value:
      yield from _intervals(part)


def _check(answer):
  json.dumps(answer, allow_nan=False)
  for interval in _intervals(answer):
    assert np.all(np.array(interval['lower']) <= interval['upper']), interval
  value, interval = answer.get('value'), answer.get('interval', {})
  # For other statistics the value and the first interval differ in meaning.
  if isinstance(value, float) and 'lower' in interval and not (
      {'rank_below_top', 'stages'} & set(answer)):
    assert interval['lower'] <= value <= interval['upper'], answer


def test_every_statistic_has_a_case():
  assert set(_CASES) == set(registry.STATISTICS)


@pytest.fixture
def few_simulations(monkeypatch):
  """Makes bands of few simulations; other tests check their coverage."""
  monkeypatch.setattr(bands, 'num_runs', lambda miss: 39)
  monkeypatch.setattr(calibration, 'RUNS', 9)


@pytest.mark.every(2)
@pytest.mark.parametrize('name', registry.STATISTICS)
def test_every_statistic_answers_for_every_file(name, few_simulations):
  """Every file gives a valid answer, whose keys do not depend on the file."""
  below = random.Random(0).randrange
  for setting in _settings(name):
    plan = registry.plan(Query(epsilon=Fraction(1), **setting))
    keys = set()
    for kind, fields in _files(plan.reads):
      try:
        answer = _answer(plan, fields, below)
        _check(answer)
        # The number of records is stated only where it is public.
        assert plan.query.knows_size or 'num_records' not in str(answer)
      except Exception as error:
        raise AssertionError(f'{setting}, {kind}: {error!r}') from error
      keys.add(tuple(sorted(answer)))
    assert len(keys) == 1, (setting, keys)


@pytest.mark.every(4)
@pytest.mark.parametrize('epsilon', [Fraction(1, 10**12), Fraction(10**6)])
def test_budgets_far_from_1_have_answers(epsilon, few_simulations):
  """Budgets of 1e-12 and 1e6 give valid answers, with and without records."""
  below = random.Random(0).randrange
  for name in sorted({*_CASES} - {'roc', 'auc', 'hosmer_lemeshow'}):
    for setting in _settings(name, all_rules=False):
      plan = registry.plan(Query(epsilon=epsilon, **setting))
      for fields in ([], ['2', '1', 'inf', '-3'] * 4):
        if plan.reads == 'labels':
          fields = [(field, field) for field in fields]
        try:
          _check(_answer(plan, fields, below))
        except Exception as error:
          raise AssertionError(f'{setting}, {fields}: {error!r}') from error


@pytest.mark.parametrize('adjacency', Adjacency)
def test_of_no_record_nothing_follows_for_a_population(
    adjacency, few_simulations):
  """Without records a population interval holds everything possible."""
  below = random.Random(0).randrange
  checked = set()
  for name in registry.STATISTICS:
    for setting in _settings(name):
      if setting['adjacency'] is not adjacency or setting['delta']:
        continue
      plan = registry.plan(Query(epsilon=Fraction(10**4), **setting))
      answer = _answer(plan, [], below)
      if 'population_interval' not in answer:
        continue
      checked.add(name)
      interval = answer['population_interval']
      widest = {'proportion': (0, 1), 'ecdf': (0, 1), 'auc': (0, 1),
                'density': (0, density_bands.POINTS / 2)}.get(name, (1, 3))
      assert np.all(np.array(interval['lower']) == widest[0]), (setting, answer)
      assert np.all(np.array(interval['upper']) == widest[1]), (setting, answer)
  assert {'mean', 'ecdf', 'auc'} <= checked


def test_epsilons_whose_noise_has_no_intervals_are_refused():
  """Epsilons whose noise has no intervals are refused before any is spent."""
  with pytest.raises(ValueError, match='epsilon must be at least 1e-12, got'):
    Query(statistic='sum', epsilon=Fraction(1, 10**24), adjacency=_RO)
