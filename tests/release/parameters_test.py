"""Tests that one declaration of a release parameter gives
flag, JSON and text."""

import dataclasses
import decimal
import fractions
import inspect
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from dpjax.cli import estimate
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import registry
from dpjax.release import reservations
from dpjax.release import sessions
from dpjax.release.query import PARAMETERS
from dpjax.release.query import Query
from dpjax.release.registry import query_of

pytestmark = pytest.mark.every(1)

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Old ledgers contain this JSON of a query without parameters.
_PLAIN = {
    'statistic': 'count', 'adjacency': 'add_or_remove_one', 'epsilon': '1/10',
    'delta': None, 'confidence': '19/20', 'column': None, 'lower': None,
    'upper': None, 'granularity': None, 'missing': None, 'categories': [],
    'bins': [], 'quantiles': [], 'value_interval': None}

# This is the release of `test_the_json_of_a_release_...`, and its digests.
_RELEASED = (
    '{"statistic": "count", "value": 3, "interval": {"lower": 0.0, "upper":'
    ' 9.0, "level": 0.95, "covers": "the number of records; noise only"}, '
    '"guarantee": {"notion": "epsilon-DP", "epsilon": "1/2", "adjacency": '
    '"add_or_remove_one", "neighbours": "files of which one has one record '
    'more", "event": "PureDpEvent(epsilon=0.5, '
    'adjacency=<Adjacency.ADD_OR_REMOVE_ONE: \'add_or_remove_one\'>)"}, '
    '"parameters": {"confidence": "19/20", "column": "column", "lower": '
    '"0", "upper": "10"}, "format": {"separator": ","}, "unit": "1", '
    '"missing": "a record without a number is in no range", "noise": '
    '{"counts": {"l1_sensitivity": "1", "l2_sensitivity_squared": "1", '
    '"distribution": "discrete Laplace: integers z, probability proportional to '
    'exp(-|z| / scale), times the unit", "scale": "2"}}, "ledger": '
    '{"entry": 1, "spent_epsilon": 0.5, "budget_epsilon": 2.0, '
    '"budget_delta": 0.0}}')
_HEADER = (
    '6af593cdf66754868f07941df0123e1108577eab3a3332ab7fe2cc9ef4cbc559')
_RESERVED = (
    '1c13a88cbb1d1b6c2b4c1031ebc85af10efb60bb6ef7b5f4596e69f027849e79')


@pytest.mark.parametrize('values, changed', [
    ({}, {}),
    ({'statistic': 'mean', 'column': 'age', 'lower': 0.1, 'upper': '1e2',
      'granularity': '.50', 'missing': 'middle', 'delta': '1e-6',
      'confidence': 0.9, 'adjacency': 'replace_one'},
     {'statistic': 'mean', 'adjacency': 'replace_one', 'delta': '1/1000000',
      'confidence': '9/10', 'column': 'age', 'lower': '1/10', 'upper': '100',
      'granularity': '1/2', 'missing': 'middle'}),
    ({'column': 'k', 'categories': ['a,b', 'c']},
     {'column': 'k', 'categories': ['a,b', 'c']}),
    ({'lower': -1, 'quantiles': ['1/3', .5], 'value_interval': True,
      'quantile_method': 'independent'},
     {'lower': '-1', 'quantiles': ['1/3', '1/2'], 'value_interval': 'True',
      'quantile_method': 'independent'}),
    ({'label': 'y', 'positive': 1, 'thresholds': 12, 'grid': 'geometric',
      'bins': [1, 2.5], 'groups': 3},
     {'bins': ['1', '5/2'], 'thresholds': '12', 'grid': 'geometric',
      'label': 'y', 'positive': '1', 'groups': '3'}),
    ({'boundary': 'circle', 'sigma': '2.50'},
     {'boundary': 'circle', 'sigma': '5/2'})])
def test_the_json_of_a_query_is_that_of_old_ledgers(values, changed):
  """A query's JSON is that of old ledgers, to the byte;
  later keys are appended."""
  query = query_of(**{'statistic': 'count', 'epsilon': '0.10',
                      'adjacency': Adjacency.ADD_OR_REMOVE_ONE, **values})
  assert json.dumps(query.to_json()) == json.dumps({**_PLAIN, **changed})


def test_the_json_of_a_release_and_of_its_ledger_is_what_it_was(
    tmp_path, monkeypatch):
  """With a fixed secret, a release and its ledger have the recorded bytes."""
  monkeypatch.setattr(reservations.secrets, 'token_bytes',
                      lambda size: bytes(range(size)))
  monkeypatch.setattr(reservations.secrets, 'token_hex', lambda size: '0' * 32)
  path = tmp_path / 'x.ledger'
  ledger = sessions.Ledger(path, adjacency='add_or_remove_one', budget=2)
  released = ledger.count([3.5, 7, 12], lower=0, upper=10, epsilon=0.5)
  assert json.dumps(released) == _RELEASED
  header, reserved, _ = map(json.loads, path.read_text().splitlines())
  assert header['digest'] == _HEADER and reserved['digest'] == _RESERVED


def _words(tmp_path, **flags):
  (tmp_path / 'x.csv').write_text('x\n1\n')
  given = {'input': tmp_path / 'x.csv', 'output': tmp_path / 'out.json',
           'ledger': tmp_path / 'ledger', 'adjacency': 'replace_one', **flags}
  return ['estimate', *(f'--{name}' if value is True else f'--{name}={value}'
                        for name, value in given.items())]


# Each parameter's value as a flag, and as it may be given in Python.
_VALUES = {
    'statistic': ('mean', 'mean'), 'adjacency': ('replace_one',) * 2,
    'epsilon': ('0.5', 0.5), 'delta': ('1e-6', 1e-6),
    'confidence': ('9/10', 0.9), 'column': ('x', 'x'), 'lower': ('0', 0),
    'upper': ('1.5', np.float64(1.5)), 'granularity': ('.5', 0.5),
    'missing': ('absent', 'absent'), 'categories': ('"a,b", c', ['a,b', 'c']),
    'bins': ('0, 1', (0, 1.0)), 'quantiles': ('.25,1/2', np.array([.25, .5])),
    'value_interval': (True, True), 'quantile_method': ('auto', 'auto'),
    'thresholds': (' 12', np.int64(12)), 'grid': ('uniform', 'uniform'),
    'label': ('y', 'y'), 'positive': ('1', 1), 'groups': ('3', 3),
    'boundary': ('circle', 'circle'), 'sigma': ('2', 2)}


def test_flags_and_python_values_are_converted_alike(tmp_path):
  assert set(_VALUES) == set(PARAMETERS)
  texts, values = ({name: pair[place] for name, pair in _VALUES.items()}
                   for place in (0, 1))
  query = estimate.query_of(estimate.parse(
      _words(tmp_path, ledger_budget_epsilon=1, **texts)))
  assert query == query_of(**values)
  assert query.quantile_method is None and query.thresholds == 12
  assert query.categories == ('a,b', 'c')
  for name, parameter in PARAMETERS.items():
    if parameter.default is not None:
      assert type(getattr(query, name)) is type(parameter.default), name


def test_none_and_false_stand_for_the_default():
  query = query_of('mean', adjacency='replace_one', epsilon=1)
  assert query == query_of('mean', adjacency='replace_one', epsilon=1, **{
      name: None for name in list(PARAMETERS)[3:]})
  assert query == query_of('mean', adjacency='replace_one', epsilon=1,
                           value_interval=False)


@pytest.mark.parametrize('half', [.5, '1/2', fractions.Fraction(1, 2),
                                  decimal.Decimal('.5'), np.float64(.5),
                                  np.float32(.5)])
def test_one_part_stands_for_a_tuple_of_one(half):
  make = lambda **values: query_of('quantiles', adjacency='replace_one',
                                   epsilon=1, **values)
  assert make(quantiles=half) == make(quantiles=[half]) == make(
      quantiles=(fractions.Fraction(1, 2),))
  assert make(bins=np.int64(3)).bins == (3,)
  assert make(categories='a,b').categories == ('a,b',)


@pytest.mark.parametrize('name, value, message', [
    ('lower', 'x', "lower must be a number, got 'x'"),
    ('epsilon', 0, 'epsilon must be positive, got 0'),
    ('epsilon', '1e-13', 'epsilon must be at least 1e-12, got 1e-13'),
    ('epsilon', '1/2/3', "epsilon must be a number or a fraction, got '1/2/3'"),
    ('delta', 1, 'delta must lie in [1e-12, 1), got 1.0'),
    ('confidence', 1, 'confidence must lie strictly between 0 and 1, got 1.0'),
    ('missing', 'x', "missing must be one of absent, lower, middle, upper; got "
     "'x'"),
    ('quantile_method', 'x', 'quantile_method must be one of auto, '
     "independent, recursive; got 'x'"),
    ('grid', 'x', "grid must be one of geometric, uniform; got 'x'"),
    ('boundary', 'x', "boundary must be one of circle, interval; got 'x'"),
    ('thresholds', 12.5, 'thresholds must be a whole number of at most 9 '
     "digits, got '12.5'"),
    ('sigma', 0, 'sigma must be positive, got 0'),
    ('value_interval', 'no', "value_interval must be True or False, got 'no'"),
    ('adjacency', 'x', 'adjacency must be one of add_or_remove_one, '
     "replace_one; got 'x'"),
    ('lowr', 1, "there is no parameter 'lowr'; did you mean 'lower'?")])
def test_messages_name_the_parameter(name, value, message):
  with pytest.raises(ValueError) as refused:
    query_of(**{'statistic': 'mean', 'adjacency': 'replace_one', 'epsilon': 1,
                name: value})
  assert str(refused.value) == message


def test_one_text_is_that_of_flag_and_reference(capsys):
  with pytest.raises(SystemExit):
    estimate.parse(['estimate', '--helpfull'])
  shown = ' '.join(capsys.readouterr().out.split())
  reference = ' '.join(Query.__doc__.split())
  for name, parameter in PARAMETERS.items():
    assert f'--{name}' in shown and parameter.help in shown
    assert f' {name}: {parameter.help}' in reference
  places = [shown.index(f' {group.capitalize()}: --') for group in (
      'what to release', 'the column and its public bounds', 'privacy',
      'the file', 'the ledger', 'output')]
  assert places == sorted(places)
  for statistic in registry.STATISTICS.values():
    assert f'{statistic.name}: {statistic.help} needs' in shown


@pytest.mark.parametrize('name', registry.STATISTICS)
def test_methods_show_their_parameters(name, tmp_path):
  """Methods show their parameters; only needed ones lack a default."""
  method = getattr(sessions.Ledger(tmp_path / 'x', adjacency='replace_one'),
                   name)
  statistic, (columns, *others) = registry.STATISTICS[name], inspect.signature(
      method).parameters.values()
  assert columns.kind is inspect.Parameter.VAR_POSITIONAL
  assert {other.kind for other in others} == {inspect.Parameter.KEYWORD_ONLY}
  assert {other.name for other in others} == {
      *statistic.needs, *statistic.takes, 'epsilon', 'delta', 'confidence',
      'form'}
  assert {other.name for other in others if other.default is other.empty} == {
      *statistic.needs, 'epsilon'} - {'column', 'label'}
  text = ' '.join(inspect.getdoc(method).split())
  for other in others[:-1]:
    assert f' {other.name}: {PARAMETERS[other.name].help}' in text


def test_values_are_given_or_refused():
  query = query_of('mean', adjacency='replace_one', epsilon=1, lower=1, upper=2)
  assert query.bounds == (1, 2)
  with pytest.raises(ValueError, match='upper must be given'):
    assert dataclasses.replace(query, upper=None).bounds


_FIELD = """
  cutoff: Decimal | None = field(default=None, metadata=declared(
      'Public least value of a record that is counted.', number, group=COLUMN,
      later=True))
"""
_MODULE = '''"""The number of records from a public value on."""

from dpjax.release import counts
from dpjax.release import query as queries


class _From(counts.Counts):

  def _cells(self, fields):
    return (0 for value in map(counts.lattice.number, fields)
            if value is not None and value >= self.query.cutoff)


def count_from(query):
  """Returns the plan of the number of records from `cutoff` on."""
  return _From(query=query, cells=('records',), reads='numbers')


STATISTICS = (queries.Statistic(
    name='count_from', help='records whose number is at least the cutoff',
    needs=('column', 'cutoff'), takes=(), plan=count_from),)
'''
_USE = """
import inspect, json
from dpjax.release import query, sessions
assert 'Public least value of a record' in query.Query.__doc__
ledger = sessions.Ledger('python.ledger', adjacency='replace_one', budget=99)
method = ledger.count_from
assert inspect.signature(method).parameters['cutoff'].default is inspect._empty
assert 'cutoff: Public least value' in method.__doc__
released = method([1, 2, 3.5, 7], cutoff=2, epsilon=50)
assert released['value']['records'] == 3, released
assert released['parameters']['cutoff'] == '2'
"""


def test_a_parameter_and_a_statistic_are_one_declaration_each(tmp_path):
  """One declaration each gives flag, method, JSON and text, tried in a copy."""
  shutil.copytree(_ROOT / 'dpjax', tmp_path / 'dpjax',
                  ignore=shutil.ignore_patterns('__pycache__'))
  package = tmp_path / 'dpjax' / 'release'
  _insert(package / 'query.py', '\n  def __post_init__', _FIELD)
  (package / 'counts_from.py').write_text(_MODULE)
  _insert(package / 'registry.py', 'from dpjax.release import curves\n',
          'from dpjax.release import counts_from\n')
  _insert(package / 'registry.py', 'counts, ', 'counts_from, ')
  (tmp_path / 'x.csv').write_text('x\n1\n2\n3.5\n7\n')
  _python(tmp_path, '-c', _USE)
  shown = _python(tmp_path, '-m', 'dpjax.cli', 'estimate', '--helpfull')
  assert '--cutoff: ' in shown and 'needs column, cutoff;' in shown
  _python(tmp_path, '-m', 'dpjax.cli', 'estimate', '--input=x.csv',
          '--statistic=count_from', '--column=x', '--cutoff=2', '--epsilon=50',
          '--adjacency=replace_one', '--ledger=x.ledger',
          '--ledger_budget_epsilon=99', '--output=out.json')
  released = json.loads((tmp_path / 'out.json').read_text())
  assert released['value'] == {'records': 3}
  entry = json.loads((tmp_path / 'x.ledger').read_text().splitlines()[1])
  assert entry['query']['query']['cutoff'] == '2'


def _insert(path, before, text):
  whole = path.read_text()
  assert whole.count(before) == 1, before
  path.write_text(whole.replace(before, text + before))


def _python(folder, *words):
  done = subprocess.run(
      [sys.executable, *words], cwd=folder, capture_output=True, text=True,
      check=False, env={**os.environ, 'PYTHONPATH': str(folder)})
  assert not done.returncode, done.stderr
  return done.stdout
