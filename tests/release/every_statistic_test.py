"""Tests every statistic: its cost, text, shared draws and defaults."""

import decimal
import fractions
import functools
import inspect
import itertools
import random

import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import costs
from dpjax.release import normal_means
from dpjax.release import query as queries
from dpjax.release import registry
from dpjax.release.query import Query
from dpjax.tables import formats
from tests.release import drawing

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency
_DELTA = Fraction(1, 10**6)
_BOUNDS = {'column': 'x', 'lower': Decimal(1), 'upper': Decimal(4)}
_FINE = {**_BOUNDS, 'granularity': Decimal('.5')}
_GRID = {**_BOUNDS, 'thresholds': 6}
_LABELS = {**_GRID, 'label': 'y', 'positive': '1'}
_SCORES = {**_LABELS, 'lower': Decimal(0), 'upper': Decimal(1)}
_TWO = (Fraction(1, 3), Fraction(1, 2))
# Queries for each statistic; a new one must be added here.
_CASES = {
  'count': [{}, _BOUNDS], 'sum': [_FINE], 'mean': [_FINE], 'variance': [_FINE],
  'histogram': [{'column': 'x', 'categories': ('2', '9')},
                {'column': 'x', 'bins': tuple(map(Decimal, '135'))}],
  'mode': [{'column': 'x', 'categories': ('2', '9')}],
  'quantiles': [{**_FINE, 'quantiles': _TWO, **more} for more in (
      {'quantile_method': 'independent'}, {'quantile_method': 'recursive'},
      {'value_interval': True})],
  'proportion': [{'column': 'x', 'positive': '2'}, _BOUNDS],
  'support_max': [_FINE], 'normal_mean': [
      {**_BOUNDS, 'sigma': Decimal('.1'), 'granularity': Decimal('.001')}],
  'ecdf': [_GRID], 'density': [_FINE], 'classifier': [_LABELS],
  'roc': [_LABELS], 'auc': [_LABELS], 'hosmer_lemeshow': [_SCORES]}
_RULES = ('lower', 'middle', 'upper', 'absent')


def _plans(name, *, deltas=(None, _DELTA), rules=(None, 'absent')):
  takes = registry.STATISTICS[name].takes
  for case, adjacency, delta, missing in itertools.product(
      _CASES[name], Adjacency, deltas, rules):
    if missing and ('missing' not in takes or 'categories' in case) or (
        not case and adjacency is _RO):
      continue
    yield registry.plan(Query(
        statistic=name, epsilon=Fraction(3, 2), adjacency=adjacency,
        delta=delta, missing=missing, **case))


# Calibrations take most of the time.
_CALIBRATED = {name: functools.cache(getattr(costs, name))
               for name in ('concentrated', 'choices')}
_epsilon = functools.cache(lambda cost, delta: costs.epsilon(
    [cost], delta=delta, adjacency=_AR))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
  """Calibrates once, whatever the adjacency is."""
  for name, function in _CALIBRATED.items():
    monkeypatch.setattr(costs, name, lambda function=function, **how: function(
        **{**how, 'adjacency': _AR}))
  monkeypatch.setattr(normal_means, '_CLAMPS', normal_means._CLAMPS[4:5])


def test_every_statistic_has_a_case():
  assert set(_CASES) == set(registry.STATISTICS)


@pytest.mark.sound
@pytest.mark.parametrize('name', registry.STATISTICS)
def test_a_plan_costs_what_is_asked(name):
  """A plan costs what is asked, also if a private count takes a part of it.

  Tests of mechanisms check that draws cost what the plan says.
  """
  for plan in _plans(name):
    query = plan.query
    spent = _epsilon(plan.cost, query.delta or Fraction(0))
    assert spent == query.epsilon if query.delta is None else (
        .998 * query.epsilon < spent <= query.epsilon), query


def test_each_statistic_reads_what_it_needs():
  """A statistic reads numbers, texts, labels or records, as its query needs."""
  for name in registry.STATISTICS:
    for plan in _plans(name, deltas=(None,)):
      query = plan.query
      assert plan.reads == (
          'labels' if query.label is not None else
          'numbers' if query.lower is not None or query.bins else
          'texts' if query.column is not None else 'records'), query


def _blocks(value):
  """Yields all parts of some facts that state a noise distribution."""
  if isinstance(value, dict):
    if {'scale', 'variance', 'rate'} & set(value):
      yield value
    for part in value.values():
      yield from _blocks(part)


@pytest.mark.parametrize('name', registry.STATISTICS)
def test_the_noise_that_is_stated_costs_what_is_stated(name):
  """The stated sensitivity, unit and noise give the stated cost."""
  stated = 0
  for plan in _plans(name):
    facts = plan.facts()
    for block in _blocks(facts):
      unit = Fraction(block.get('unit') or facts.get('unit') or 1)
      if 'rate' in block:
        width = 2 * Fraction(block['rate']) * Fraction(
            block['score_sensitivity'])
        assert width in plan.cost.choices
      elif 'scale' in block:
        assert Fraction(block['l1_sensitivity']) / (
            Fraction(block['scale']) * unit) == plan.cost.epsilon
      else:
        squared = Fraction(block.get('l2_sensitivity_squared') or Fraction(
            block['l1_sensitivity'])**2)
        assert squared / (2 * Fraction(block['variance']) * unit**2) == (
            plan.cost.rho)
      stated += 1
  # Statistics with several stages state the noise in their release.
  assert bool(stated) == (name not in ('normal_mean', 'density'))


@pytest.mark.sound
@pytest.mark.parametrize('name', [name for name, each in (
    registry.STATISTICS.items()) if 'missing' in each.takes])
def test_a_missing_number_counts_as_the_rule_says(name):
  for plan in _plans(name, deltas=(None,), rules=_RULES):
    query = plan.query
    low, high = query.lower, query.upper
    if query.bins:
      low, high = query.bins[0], query.bins[-1]
    texts = {'lower': low, 'middle': (low + high) / 2, 'upper': high}
    instead = [] if query.missing == 'absent' else [str(texts[query.missing])]
    kept = ['-9', '2', '3', '0.3', '99']
    for text in ('', 'NA', None, float('nan')):
      given, wanted = [text, *kept], instead + kept
      if plan.reads == 'labels':
        given, wanted = ([(each, '1') for each in fields]
                         for fields in (given, wanted))
      assert plan.measure(given) == plan.measure(wanted), (query, text)


# Another value of each parameter, for the statistics that take it.
_OTHERS = {
  'confidence': [Fraction(1, 2)], 'epsilon': [Fraction(1)], 'delta': [_DELTA],
  'adjacency': [_AR], 'column': ['z'], 'missing': [*_RULES], 'label': ['u'],
  'lower': [Decimal('.5')], 'upper': [Decimal(1), Decimal(5)],
  'granularity': [Decimal('.25')], 'thresholds': [7], 'grid': ['geometric'],
  'positive': ['2'], 'groups': [3], 'boundary': ['circle', 'interval'],
  'bins': [tuple(map(Decimal, '135'))], 'statistic': ['roc', 'auc'],
  'sigma': [Decimal(1)], 'value_interval': [True], 'quantiles': [_TWO[:1]],
  'quantile_method': ['recursive'], 'categories': [('2',)]}
# A view of one release may choose these freely.
_FREE = {'confidence', 'groups', 'boundary', 'statistic'}


def test_every_parameter_has_another_value():
  assert set(_OTHERS) == set(queries.PARAMETERS)


def _variants(name):
  case = dict(statistic=name, epsilon=Fraction(3, 2), adjacency=_RO,
              **_CASES[name][-1])
  yield '', case
  for parameter, values in _OTHERS.items():
    for value in values:
      changed = {**case, parameter: value}
      if parameter == 'bins':
        changed = {key: part for key, part in changed.items()
                   if key not in ('lower', 'upper', 'thresholds')}
      if changed != case:
        yield parameter, changed


@pytest.mark.sound
@pytest.mark.parametrize('name', registry.STATISTICS)
def test_one_answer_is_of_one_release(name):
  """Queries that the ledger treats as one have equal cost, counts and noise."""
  (_, first), *others = _variants(name)
  plan = registry.plan(Query(**first))
  fields = ['', '0.7', '2', '3.9', '9'] * 3
  if plan.reads == 'labels':
    fields = [(field, label) for field in fields for label in '12']

  def drawn(of):
    return drawing.draw(of, of.measure(fields), random.Random(3).randrange)

  shared = set()
  for parameter, variant in others:
    try:
      other = registry.plan(Query(**variant))
    except ValueError:  # The statistic takes no such parameter.
      continue
    if other.asked != plan.asked:
      continue
    shared.add(parameter)
    assert other.cost == plan.cost and other.reads == plan.reads
    assert drawn(other) == drawn(plan)
  assert shared <= _FREE
  asked = plan.asked.to_json()
  assert all(asked.get(key) == plan.query.to_json().get(key) for key in (
      'epsilon', 'delta', 'adjacency', 'column', 'label', 'missing'))


def test_defaults_are_those_that_are_documented():
  """The defaults of queries and files are the documented ones."""
  defaults = {name: parameter.default for name, parameter in inspect.signature(
      Query).parameters.items() if parameter.default is not inspect._empty}
  assert defaults.pop('confidence') == Fraction(95, 100)
  assert set(defaults.values()) == {None, ()}
  assert (queries.THRESHOLDS, queries.GROUPS) == (1024, 10)
  assert vars(formats.Format()) == {
      'separator': ',', 'encoding': 'utf-8', 'header': (), 'decimal': '.',
      'thousands': '', 'dates': '', 'unparsed': 'refuse', 'bad_lines': 'refuse',
      'missing_tokens': ('NA', 'N/A', 'NaN', 'nan', 'null', 'NULL', '?')}
  query = Query(statistic='ecdf', epsilon=Fraction(1), adjacency=_RO,
                column='x', lower=Decimal(0), upper=Decimal(1))
  asked = registry.plan(query).asked
  assert (asked.thresholds, asked.grid) == (1024, 'uniform')
