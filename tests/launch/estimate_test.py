"""These tests check what `launch.estimate` reads and releases."""

import fractions
import json
import random

import numpy as np
import pytest

from dpjax.cli import estimate
from dpjax.release import ledger
from dpjax.release import registry
from tests.launch.people import OTHERS
from tests.launch.people import ROWS
from tests.launch.people import run

Fraction = fractions.Fraction
# These statistics release more than a value, or no interval.
_LACKS = {'classifier': {'value', 'interval'}, 'hosmer_lemeshow': {'interval'}}


@pytest.mark.slow
@pytest.mark.every(2)
@pytest.mark.parametrize('statistic, delta', [
  (name, delta) for name in registry.STATISTICS for delta in (None, '1e-6')])
def test_every_statistic_is_released(words, tmp_path, capsys, statistic, delta):
  assert not run(words(statistic=statistic, delta=delta,
                       ledger_budget_delta=delta, **OTHERS[statistic]))
  text = (tmp_path / 'out.json').read_text()
  answer = json.loads(text)
  assert capsys.readouterr().out == text
  assert answer['guarantee']['epsilon'] == '1/2'
  assert answer['guarantee']['adjacency'] == 'add_or_remove_one'
  assert answer['guarantee'].get('delta') == ('1/1000000' if delta else None)
  assert 'num_records' not in text
  assert {'value', 'interval', 'noise', 'parameters'} - _LACKS.get(
      statistic, set()) <= set(answer)
  spent = answer['ledger']['spent_epsilon']
  assert answer['ledger']['entry'] == 1 and .49 < spent <= .5
  # Nothing that hashes the data leaves.
  account = ledger.read(tmp_path / 'ledger')
  for secret in (account.data, account.salt, account.digest):
    assert secret not in text


def test_mean_is_near_the_truth(words, tmp_path):
  run(words(epsilon='50', ledger_budget_epsilon=50, missing='absent'))
  answer = json.loads((tmp_path / 'out.json').read_text())
  assert answer['value'] == pytest.approx(
      np.mean([age for age, _ in ROWS]), abs=.3)
  assert 'clamped' in answer['clamping']
  assert 'absent' in answer['missing']
  low, high = (answer['population_interval'][end] for end in ('lower', 'upper'))
  assert low < answer['interval']['lower'] < answer['interval']['upper'] < high


def test_statistics_of_populations_are_near_the_truth(words, tmp_path):
  """Each statistic lies near its population value, inside its interval.

  Ages rise from 20 to 69, and a third of the records are of kind b.
  """
  for statistic, truth, adjacency in (
      ('proportion', .665, 'replace_one'), ('normal_mean', 44.5, 'replace_one'),
      ('support_max', 70, 'add_or_remove_one')):
    flags = {**OTHERS[statistic], 'statistic': statistic, 'epsilon': '50',
             'ledger': tmp_path / statistic, 'ledger_budget_epsilon': 50,
             'adjacency': adjacency}
    run(words(**flags))
    answer = json.loads((tmp_path / 'out.json').read_text())
    ends = answer['population_interval']
    assert answer['value'] == pytest.approx(truth, rel=.05)
    assert ends['lower'] < truth < ends['upper'] < 1.3 * truth
    assert ('num_records' in answer) == (adjacency == 'replace_one')
    assert len(ledger.read(tmp_path / statistic).entries) == 1


def test_the_mode_is_the_most_frequent_kind(words, tmp_path):
  """The mode is the most frequent kind: 133 of 200 records are of kind a.

  Another answer has probability e^-3000 or less.
  """
  run(words(statistic='mode', epsilon='50', ledger_budget_epsilon=50,
            **OTHERS['mode']))
  answer = json.loads((tmp_path / 'out.json').read_text())
  assert answer['value'] == 'a' and answer['interval']['count_error'] == 0
  assert answer['parameters']['categories'] == ['a', 'b', 'c']


@pytest.mark.every(2)
def test_parquet_and_csv_are_one(words, tmp_path):
  pyarrow = pytest.importorskip('pyarrow')
  from pyarrow import parquet
  path = tmp_path / 'people.parquet'
  parquet.write_table(pyarrow.table({
      'age': [float(age) for age, _ in ROWS]}), path)
  answers = [estimate.release(estimate.parse(words(
      input=file, ledger=tmp_path / name)), random.Random(4).randrange)
             for file, name in ((path, 'l1'),
                                (tmp_path / 'people.csv', 'l2'))]
  assert answers[0] == answers[1]


def test_quantiles_by_either_method(words, tmp_path):
  asked = dict(statistic='quantiles', quantiles='0.25,0.5,0.75')
  for method in ('independent', 'recursive', 'auto'):
    run(words(quantile_method=method, **asked))
    answer = json.loads((tmp_path / 'out.json').read_text())
    assert answer['method'] == method.replace('auto', 'independent')
    assert answer['parameters'].get('quantile_method', 'auto') == method
  # An argument left out is auto, which was answered already.
  run(words(**asked))
  assert ledger.read(tmp_path / 'ledger').spent() == Fraction(3, 2)


@pytest.mark.every(2)
def test_the_number_of_records_is_public_under_replace_one(words, tmp_path):
  run(words(adjacency='replace_one'))
  answer = json.loads((tmp_path / 'out.json').read_text())
  assert answer['num_records'] == 200
  assert list(answer['noisy_sums']) == ['from_lower', 'products']
  assert answer['missing'] == 'declared: no number is missing'


def test_a_query_is_answered_again_for_nothing(words, tmp_path, capsys):
  run(words())
  first = capsys.readouterr().out
  run(words(epsilon='1/2', lower='0.0', output=tmp_path / 'again.json'))
  out, err = capsys.readouterr()
  assert out == first and 'answered before' in err
  assert ledger.read(tmp_path / 'ledger').spent() == Fraction(1, 2)
  run(words(upper=99))
  assert ledger.read(tmp_path / 'ledger').spent() == 1


@pytest.mark.slow
def test_views_of_one_release_are_free(words, tmp_path, capsys):
  answers = {}
  for name in ('hosmer_lemeshow', 'roc', 'auc', 'classifier', 'roc'):
    run(words(statistic=name, **OTHERS[name],
              confidence='.9' if name == 'auc' else None))
    out, err = capsys.readouterr()
    assert ('answered before' in err) == bool(answers)
    again, answers[name] = answers.get(name), json.loads(out)
    assert answers[name]['statistic'] == name
    assert again in (None, answers[name])
  entry, = ledger.read(tmp_path / 'ledger').entries
  assert entry.query['query']['statistic'] == 'classifier'
  for name, answer in answers.items():
    assert answer['noisy_counts'] == answers['roc']['noisy_counts']
    assert answer['parameters']['confidence'] == (
        '9/10' if name == 'auc' else '19/20')
    assert answer['parameters'].get('positive') == 'a'
  assert answers['classifier']['roc']['value'] == answers['roc']['value']
  # Another grid or another class is another release.
  for change in ({'thresholds': 9}, {'positive': 'b'}):
    run(words(**{**OTHERS['roc'], **change, 'statistic': 'roc'}))
  assert len(ledger.read(tmp_path / 'ledger').entries) == 3


def test_views_are_not_free_where_files_may_differ(words, tmp_path):
  for name in ('roc', 'auc'):
    run(words(statistic=name, dataset='people', **OTHERS[name]))
  assert ledger.read(tmp_path / 'ledger').spent() == 1


def test_curves_of_any_confidence_are_one_release(words, tmp_path):
  bands = []
  for level in ('0.9', '0.99'):
    run(words(statistic='ecdf', thresholds=8, confidence=level))
    text = (tmp_path / 'out.json').read_text()
    bands.append(json.loads(text)['interval'])
    # A list of numbers is one line.
    assert '"thresholds": [12.5, 25.0, 37.5, 50.0,' in text
  assert len(ledger.read(tmp_path / 'ledger').entries) == 1
  assert [band['level'] for band in bands] == [.9, .99]
  assert np.all(np.array(bands[0]['lower']) >= bands[1]['lower'])
  assert bands[0] != bands[1]


@pytest.mark.every(2)
def test_synthetic_records_of_a_density_are_free(words, tmp_path, capsys):
  asked = {'statistic': 'density', 'granularity': 1,
           'synthetic_output': tmp_path / 'drawn.csv'}
  drawn = []
  for change in ({'synthetic': 50}, {'synthetic': 50, 'confidence': '.9'},
                 {'synthetic': 70, 'boundary': 'circle'}):
    run(words(**asked, **change))
    assert ('answered before' in capsys.readouterr().err) == bool(drawn)
    name, *records = (tmp_path / 'drawn.csv').read_text().splitlines()
    assert name == 'age' and {int(record) for record in records} <= {
        *range(100)}
    drawn.append(records)
  assert drawn[0] == drawn[1] and len(drawn[0]) == 50 and len(drawn[2]) == 70
  answer = json.loads((tmp_path / 'out.json').read_text())
  assert answer['parameters']['boundary'] == 'circle'
  assert len(ledger.read(tmp_path / 'ledger').entries) == 1


def test_queries_of_old_ledgers_are_what_they_were(words):
  query = estimate.query_of(estimate.parse(words()))
  assert list(query.to_json()) == [
      'statistic', 'adjacency', 'epsilon', 'delta', 'confidence', 'column',
      'lower', 'upper', 'granularity', 'missing', 'categories', 'bins',
      'quantiles', 'value_interval']
  assert registry.plan(query).asked is query


@pytest.mark.slow
@pytest.mark.every(3)
@pytest.mark.parametrize('name', ['density', 'ecdf', 'roc', 'hosmer_lemeshow',
                                  'classifier'])
def test_figures(words, tmp_path, name):
  pytest.importorskip('matplotlib')
  flags = words(statistic=name, plot=tmp_path / 'a.svg', **OTHERS[name])
  run(flags)
  drawn = (tmp_path / 'a.svg').read_text()
  assert drawn.count('<g id="axes_') == (2 if name == 'classifier' else 1)
  assert '<path' in drawn and '<?xml' in drawn
  run(flags)
  assert (tmp_path / 'a.svg').read_text() == drawn
