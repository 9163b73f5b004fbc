"""Tests releases from Python: same answers and ledger as the command line."""

import datetime
import fractions
import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.cli import estimate
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import registry
from dpjax.release import sessions
from dpjax.release import sources
from dpjax.release.registry import query_of
from dpjax.tables.formats import FileError
from dpjax.tables.formats import Format

pytestmark = pytest.mark.every(1)

Fraction = fractions.Fraction
_AGES = [31, 47, 18, 66, 52, 39, 25, 80, 44, 58]


def _ledger(tmp_path, **options):
  return sessions.Ledger(tmp_path / 'x.ledger', **{
      'adjacency': 'replace_one', 'budget': 4, **options})


def test_a_file_gives_what_the_command_line_gives(tmp_path):
  """The command line repeats the answer of a session at no cost."""
  file = tmp_path / 'x.csv'
  file.write_text('\n'.join(['age', *map(str, _AGES)]) + '\n')
  ledger = _ledger(tmp_path)
  released = ledger.mean(file, column='age', lower=18, upper=100, epsilon=0.5)
  words = ['estimate', f'--input={file}', '--statistic=mean', '--column=age',
           '--lower=18', '--upper=100', '--epsilon=0.5',
           '--adjacency=replace_one', f'--ledger={tmp_path / "x.ledger"}',
           f'--output={tmp_path / "x.json"}']
  assert estimate.main(estimate.parse(words)) == 0
  assert json.loads((tmp_path / 'x.json').read_text()) == released
  assert ledger.spent()['spent_epsilon'] == pytest.approx(0.5)


@pytest.mark.parametrize('kind', [
    'list', 'numpy', 'jax', 'pandas', 'polars', 'arrow'])
def test_columns_of_every_kind_are_the_same_records(kind, tmp_path):
  """Equal fields have one hash and measurement in every kind of column."""
  values = [float(age) for age in _AGES]
  if kind == 'numpy':
    column = np.array(values)
  elif kind == 'jax':
    column = jnp.array(values)
  elif kind == 'arrow':
    column = pytest.importorskip('pyarrow').array(values)
  elif kind == 'pandas':
    column = pytest.importorskip('pandas').Series(values, name='age')
  elif kind == 'polars':
    column = pytest.importorskip('polars').Series('age', values)
  else:
    column = values
  query = query_of(
      'mean', adjacency=Adjacency.REPLACE_ONE, epsilon=1, column='age',
      lower=18, upper=100)
  plan = registry.plan(query)
  with sources.Columns((column,)).opened() as (sha256, measure):
    with sources.Columns((values,)).opened() as (other, _):
      assert sha256 == other
    assert measure(query, plan) == plan.measure(values)
  released = _ledger(tmp_path).mean(column, lower=18, upper=100, epsilon=1)
  assert 18 <= released['value'] <= 100
  assert released['guarantee']['epsilon'] == '1'


@pytest.mark.parametrize('columns, sha256', [
    (([1, 'x'], (2.5, None)),
     '41cc165117b245aa2ba40955e805b9e97d41611b308ef60d395da486505e25e5'),
    (([1, 2.5, None, 'a', True],),
     '4d3d2f47e6dc43c191d4f4216914eeb455a3dff58df77ef837a1bd3de1605993'),
    ((np.array([1.5, 2]),),
     'ad2f31956dd66f7ac305f7bb8357c175460b2142a843f1d373951f2f55ee8106')])
def test_the_hash_of_columns_stays_what_ledgers_hold(columns, sha256):
  """Column hashes never change; a new hash would charge
  for old answers again."""
  with sources.Columns(columns).opened() as (digest, _):
    assert digest == sha256


def test_every_statistic_is_a_method(tmp_path):
  ledger = _ledger(tmp_path)
  assert set(registry.STATISTICS) <= set(dir(ledger))
  for name, statistic in registry.STATISTICS.items():
    assert statistic.help in getattr(ledger, name).__doc__
  with pytest.raises(AttributeError, match="no statistic 'meen'.*'mean'"):
    ledger.meen


def test_statistics_of_columns(tmp_path):
  """Column statistics work for scores with labels, categories and ranges."""
  ledger = _ledger(tmp_path, budget=100, adjacency='add_or_remove_one')
  scores = np.linspace(0, 1, 400)
  labels = (scores > 0.5).astype(int)
  roc = ledger.roc(scores, labels, positive=1, lower=0, upper=1, epsilon=5)
  assert roc['parameters']['label'] == 'label'
  auc = ledger.auc(scores, labels, positive=1, lower=0, upper=1, epsilon=5)
  assert auc['value'] > 0.9
  histogram = ledger.histogram(['a', 'b', 'a'], categories=['a', 'b'],
                               epsilon=9)
  assert [round(histogram['value'][name]) for name in ('a', 'b')] == [2, 1]
  mode = ledger.mode(['a', 'b', 'a'] * 9, categories=['a', 'b'], epsilon=9)
  assert mode['value'] == 'a'
  assert round(ledger.count(scores, epsilon=9)['value']) == 400
  inside = ledger.count(scores, lower=0.25, upper=0.75, epsilon=9)
  assert round(inside['value']) == 200
  quantiles = ledger.quantiles(scores, quantiles=[0.25, 0.5], lower=0, upper=1,
                               epsilon=9)
  assert quantiles['value']['1/2'] == pytest.approx(0.5, abs=0.1)


def test_numbers_are_exact_as_they_are_written():
  make = lambda **more: query_of(
      'mean', adjacency=Adjacency.REPLACE_ONE, **{'epsilon': 1, **more})
  for value in (0.1, '0.1', '1/10', Fraction(1, 10), np.float64(0.1)):
    assert make(epsilon=value).epsilon == Fraction(1, 10)
  assert make(quantiles=0.5).quantiles == (Fraction(1, 2),)
  for name, value in (('epsilon', 'x'), ('epsilon', '1/0'), ('lower', math.nan),
                      ('upper', math.inf), ('epsilon', '1/2/3')):
    with pytest.raises(ValueError, match=f'{name} must be a number'):
      make(**{name: value})
  with pytest.raises(ValueError, match="no parameter 'lowr'.*'lower'"):
    make(lowr=1)


@pytest.mark.parametrize('columns, parameters, message', [
    (([1, 2],), {'lower': 0}, 'mean needs upper'),
    (([1, 2], [0, 1]), {'lower': 0, 'upper': 1}, '1 columns in memory'),
    ((), {'lower': 0, 'upper': 1}, 'got 0 columns'),
    (([1, None],), {'lower': 0, 'upper': 1}, 'missing'),
    (([1, 'x'],), {'lower': 0, 'upper': 1}, "'x' is not a number"),
    (([1, 2],), {'lower': 0, 'upper': 1, 'epsilon': 9}, 'budget')])
def test_refusals_spend_nothing(columns, parameters, message, tmp_path):
  ledger = _ledger(tmp_path)
  with pytest.raises(ValueError, match=message):
    ledger.mean(*columns, **{'epsilon': 1, **parameters})
  assert not ledger.spent()


def test_declared_formats_hold_for_columns_too(tmp_path):
  ledger = _ledger(tmp_path)
  form = Format(decimal=',', missing_tokens=('-',))
  released = ledger.mean(['1,5', '2,5', '-'], lower=0, upper=4, epsilon=1,
                         missing='middle', form=form)
  assert released['format']['decimal'] == ','
  with pytest.raises(FileError, match='record 1'):
    ledger.mean(['1,5'], lower=0, upper=4, epsilon=1)


def test_columns_are_paid_again_and_files_are_not(tmp_path):
  ledger = _ledger(tmp_path)
  for spent in (0.5, 1):
    ledger.mean(_AGES, lower=0, upper=100, epsilon=0.5)
    assert ledger.spent()['spent_epsilon'] == pytest.approx(spent)
  file = tmp_path / 'x.csv'
  file.write_text('\n'.join(['age', *map(str, _AGES)]) + '\n')
  ledger = sessions.Ledger(tmp_path / 'y.ledger', adjacency='replace_one',
                           budget=4)
  for _ in range(2):
    ledger.mean(file, column='age', lower=0, upper=100, epsilon=0.5)
    assert ledger.spent()['spent_epsilon'] == pytest.approx(0.5)


def test_other_records_of_one_name_share_the_budget(tmp_path):
  """All versions of a named column share the budget of its ledger."""
  ledger = _ledger(tmp_path, budget=1)
  ledger.mean(_AGES, lower=0, upper=100, epsilon=0.6)
  with pytest.raises(ValueError, match='budget'):
    ledger.mean(_AGES[:5], lower=0, upper=100, epsilon=0.6)
  with pytest.raises(ValueError, match='must be one of|adjacency'):
    sessions.Ledger(tmp_path / 'y.ledger', adjacency='none', budget=1)


@pytest.mark.parametrize('column', [
    [datetime.date(2020, 1, 1)] * 9, np.array(['2020-01-01'] * 9, 'M8[D]'),
    [(0, (1, 5), 0)] * 9, [[1, 2]] * 9, [{}] * 9])
def test_what_is_no_number_is_not_taken_for_a_missing_one(column, tmp_path):
  """Non-numbers are refused, not missing; dates would give the middle value."""
  ledger = _ledger(tmp_path)
  with pytest.raises(FileError, match='record 1: .* is not a number'):
    ledger.mean(column, lower=0, upper=100, epsilon=1, missing='middle')
  assert not ledger.spent()
  released = ledger.mean(column, lower=0, upper=100, epsilon=1,
                         missing='middle', form=Format(unparsed='missing'))
  assert 'value' in released


@pytest.mark.parametrize('kind', ['int64', 'uint8', 'float32', 'float64'])
def test_a_list_of_numpy_scalars_is_a_list_of_numbers(kind, tmp_path):
  scalars = list(np.array([1, 2, 3], kind))
  released = _ledger(tmp_path).sum(scalars, lower=0, upper=9, epsilon=1)
  assert released['num_records'] == 3
  for unit in ('D', 'ns'):
    with pytest.raises(FileError, match='is not a number'):
      _ledger(tmp_path).sum([np.timedelta64(1, unit)], lower=0, upper=9,
                            epsilon=1)


def test_a_table_is_no_column(tmp_path):
  with pytest.raises(ValueError, match='one dimension, got 2'):
    _ledger(tmp_path).mean(np.ones([20, 3]), lower=0, upper=9, epsilon=1,
                           missing='middle')


def test_missing_values_of_data_frames_are_missing(tmp_path):
  pandas = pytest.importorskip('pandas')
  for column in (pandas.Series([1, 2, None], dtype='Int64'), [1.0, math.nan],
                 [1, None], [1, pandas.NaT]):
    with pytest.raises(FileError, match='a number is missing'):
      _ledger(tmp_path).mean(column, lower=0, upper=9, epsilon=1)


@pytest.mark.sound
def test_an_answer_that_is_not_json_is_not_drawn_for_again(tmp_path,
                                                            monkeypatch):
  """A failed JSON answer is paid and not redrawn, as failure may show noise."""
  ledger = _ledger(tmp_path)
  mean = lambda: ledger.mean(_AGES, lower=18, upper=100, epsilon=0.5)
  with monkeypatch.context() as patch:
    patch.setattr(sessions, '_public', lambda query: {'value': math.nan})
    with pytest.raises(ValueError, match='JSON'):
      mean()
  assert not list((tmp_path / 'x.ledger.secrets').iterdir())
  mean()
  assert ledger.spent()['spent_epsilon'] == pytest.approx(1.0)
