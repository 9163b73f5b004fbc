"""`launch.estimate`: files in, releases out, and when budget is spent."""

import fractions
import json
import pathlib
import random
import subprocess
import sys

import numpy as np
import pytest

from dpjax.release import ledger
from dpjax.release import registry
from launch import estimate

Fraction = fractions.Fraction
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_ROWS = [(20 + i % 50, 'ab'[i % 3 == 0]) for i in range(200)]


@pytest.fixture
def words(tmp_path):
  """Returns a function of flags that makes a command line on a small file."""
  (tmp_path / 'people.csv').write_text(
      'age,kind\n' + ''.join(f'{age},{kind}\n' for age, kind in _ROWS))

  def flags(**changed):
    given = {'input': tmp_path / 'people.csv', 'statistic': 'mean',
             'column': 'age', 'lower': 0, 'upper': 100, 'epsilon': '0.5',
             'adjacency': 'add_or_remove_one', 'output': tmp_path / 'out.json',
             'ledger': tmp_path / 'ledger', 'ledger_budget_epsilon': '2',
             **changed}
    return ['estimate', *(f'--{name}={value}' for name, value in given.items()
                          if value is not None)]
  return flags


def _main(words):
  return estimate.main(estimate.parse(words))


_OTHERS = {
  'count': {'lower': 30, 'upper': 39},
  'histogram': {'column': 'kind', 'lower': None, 'upper': None,
                'categories': 'a,b'},
  'sum': {}, 'mean': {}, 'variance': {},
  'quantiles': {'quantiles': '0.25,1/2'}, 'ecdf': {'thresholds': 8},
  'density': {'granularity': 1},
  'proportion': {'column': 'kind', 'lower': None, 'upper': None,
                 'positive': 'a'},
  'support_max': {'lower': 10}, 'normal_mean': {'sigma': 15},
  **{name: {'label': 'kind', 'positive': 'a', 'thresholds': 8, 'upper': 1}
     for name in ('classifier', 'roc', 'auc', 'hosmer_lemeshow')},
}
# These say more than a value, or no interval.
_LACKS = {'classifier': {'value', 'interval'}, 'hosmer_lemeshow': {'interval'}}


@pytest.mark.every(2)
@pytest.mark.parametrize('statistic, delta', [
  (name, delta) for name in registry.STATISTICS for delta in (None, '1e-6')
  if not delta or name not in ('quantiles', 'support_max')])
def test_every_statistic_is_released(words, tmp_path, capsys, statistic, delta):
  assert not _main(words(statistic=statistic, delta=delta,
                         ledger_budget_delta=delta, **_OTHERS[statistic]))
  text = (tmp_path / 'out.json').read_text()
  found = json.loads(text)
  assert capsys.readouterr().out == text
  assert found['guarantee']['epsilon'] == '1/2'
  assert found['guarantee']['adjacency'] == 'add_or_remove_one'
  assert found['guarantee'].get('delta') == ('1/1000000' if delta else None)
  assert 'num_records' not in text
  assert {'value', 'interval', 'noise', 'parameters'} - _LACKS.get(
      statistic, set()) <= set(found)
  spent = found['ledger']['spent_epsilon']
  assert found['ledger']['entry'] == 1 and .49 < spent <= .5
  # Nothing that hashes the data leaves.
  account = ledger.read(tmp_path / 'ledger')
  for secret in (account.data, account.salt, account.digest):
    assert secret not in text


def test_mean_is_near_the_truth(words, tmp_path):
  _main(words(epsilon='50', ledger_budget_epsilon=50))
  found = json.loads((tmp_path / 'out.json').read_text())
  assert found['value'] == pytest.approx(
      np.mean([age for age, _ in _ROWS]), abs=.3)
  assert 'clamped' in found['clamping']
  assert 'absent' in found['missing']
  low, high = (found['population_interval'][end] for end in ('lower', 'upper'))
  assert low < found['interval']['lower'] < found['interval']['upper'] < high


def test_statistics_of_populations_are_near_the_truth(words, tmp_path):
  """Ages rise from 20 to 69, a third is of kind b: each value, its interval."""
  for statistic, truth, adjacency in (
      ('proportion', .665, 'replace_one'), ('normal_mean', 44.5, 'replace_one'),
      ('support_max', 70, 'add_or_remove_one')):
    flags = {**_OTHERS[statistic], 'statistic': statistic, 'epsilon': '50',
             'ledger': tmp_path / statistic, 'ledger_budget_epsilon': 50,
             'adjacency': adjacency}
    _main(words(**flags))
    found = json.loads((tmp_path / 'out.json').read_text())
    ends = found['population_interval']
    assert found['value'] == pytest.approx(truth, rel=.05)
    assert ends['lower'] < truth < ends['upper'] < 1.3 * truth
    assert ('num_records' in found) == (adjacency == 'replace_one')
    assert len(ledger.read(tmp_path / statistic).entries) == 1


def test_parquet_and_csv_are_one(words, tmp_path):
  pyarrow = pytest.importorskip('pyarrow')
  from pyarrow import parquet
  path = tmp_path / 'people.parquet'
  parquet.write_table(pyarrow.table({
      'age': [float(age) for age, _ in _ROWS]}), path)
  answers = [estimate.release(estimate.parse(words(
      input=file, ledger=tmp_path / name)), random.Random(4).randrange)
             for file, name in ((path, 'l1'),
                                (tmp_path / 'people.csv', 'l2'))]
  assert answers[0] == answers[1]


def test_quantiles_by_either_method(words, tmp_path):
  asked = dict(statistic='quantiles', quantiles='0.25,0.5,0.75')
  for method in ('independent', 'recursive', 'auto'):
    _main(words(quantile_method=method, **asked))
    found = json.loads((tmp_path / 'out.json').read_text())
    assert found['method'] == method.replace('auto', 'independent')
    assert found['parameters'].get('quantile_method', 'auto') == method
  # Not given is auto, which was answered.
  _main(words(**asked))
  assert ledger.read(tmp_path / 'ledger').spent() == Fraction(3, 2)


def test_the_number_of_records_is_public_under_replace_one(words, tmp_path):
  _main(words(adjacency='replace_one'))
  found = json.loads((tmp_path / 'out.json').read_text())
  assert found['num_records'] == 200
  assert list(found['noise']) == ['sum']
  assert 'middle' in found['missing']


def test_a_query_is_answered_again_for_nothing(words, tmp_path, capsys):
  _main(words())
  first = capsys.readouterr().out
  _main(words(epsilon='1/2', lower='0.0', output=tmp_path / 'again.json'))
  out, err = capsys.readouterr()
  assert out == first and 'answered before' in err
  assert ledger.read(tmp_path / 'ledger').spent() == Fraction(1, 2)
  _main(words(upper=99))
  assert ledger.read(tmp_path / 'ledger').spent() == 1


def test_views_of_one_release_are_free(words, tmp_path, capsys):
  found = {}
  for name in ('hosmer_lemeshow', 'roc', 'auc', 'classifier', 'roc'):
    _main(words(statistic=name, **_OTHERS[name],
                confidence='.9' if name == 'auc' else None))
    out, err = capsys.readouterr()
    assert ('answered before' in err) == bool(found)
    again, found[name] = found.get(name), json.loads(out)
    assert found[name]['statistic'] == name
    assert again in (None, found[name])
  entry, = ledger.read(tmp_path / 'ledger').entries
  assert entry.query['query']['statistic'] == 'classifier'
  for name, answer in found.items():
    assert answer['noisy_counts'] == found['roc']['noisy_counts']
    assert answer['parameters']['confidence'] == (
        '9/10' if name == 'auc' else '19/20')
    assert answer['parameters'].get('positive') == 'a'
  assert found['classifier']['roc']['value'] == found['roc']['value']
  # Another grid, or another class, is another release.
  for change in ({'thresholds': 9}, {'positive': 'b'}):
    _main(words(**{**_OTHERS['roc'], **change, 'statistic': 'roc'}))
  assert len(ledger.read(tmp_path / 'ledger').entries) == 3


def test_views_are_not_free_where_files_may_differ(words, tmp_path):
  for name in ('roc', 'auc'):
    _main(words(statistic=name, dataset='people', **_OTHERS[name]))
  assert ledger.read(tmp_path / 'ledger').spent() == 1


def test_curves_of_any_confidence_are_one_release(words, tmp_path):
  bands = []
  for level in ('0.9', '0.99'):
    _main(words(statistic='ecdf', thresholds=8, confidence=level))
    text = (tmp_path / 'out.json').read_text()
    bands.append(json.loads(text)['interval'])
    # A list of numbers is one line.
    assert '"thresholds": [12.5, 25.0, 37.5, 50.0,' in text
  assert len(ledger.read(tmp_path / 'ledger').entries) == 1
  assert [band['level'] for band in bands] == [.9, .99]
  assert np.all(np.array(bands[0]['lower']) >= bands[1]['lower'])
  assert bands[0] != bands[1]


def test_synthetic_records_of_a_density_are_free(words, tmp_path, capsys):
  asked = {'statistic': 'density', 'granularity': 1,
           'synthetic_output': tmp_path / 'drawn.csv'}
  drawn = []
  for change in ({'synthetic': 50}, {'synthetic': 50, 'confidence': '.9'},
                 {'synthetic': 70, 'boundary': 'circle'}):
    _main(words(**asked, **change))
    assert ('answered before' in capsys.readouterr().err) == bool(drawn)
    name, *records = (tmp_path / 'drawn.csv').read_text().splitlines()
    assert name == 'age' and {int(record) for record in records} <= {
        *range(100)}
    drawn.append(records)
  assert drawn[0] == drawn[1] and len(drawn[0]) == 50 and len(drawn[2]) == 70
  found = json.loads((tmp_path / 'out.json').read_text())
  assert found['parameters']['boundary'] == 'circle'
  assert len(ledger.read(tmp_path / 'ledger').entries) == 1


def test_queries_of_old_ledgers_are_what_they_were(words):
  query = estimate.query_of(estimate.parse(words()))
  assert list(query.to_json()) == [
      'statistic', 'adjacency', 'epsilon', 'delta', 'confidence', 'column',
      'lower', 'upper', 'granularity', 'missing', 'categories', 'bins',
      'quantiles', 'value_interval']
  assert registry.plan(query).asked is query


@pytest.mark.every(3)
@pytest.mark.parametrize('name', ['density', 'ecdf', 'roc', 'hosmer_lemeshow',
                                  'classifier'])
def test_figures(words, tmp_path, name):
  pytest.importorskip('matplotlib')
  flags = words(statistic=name, plot=tmp_path / 'a.svg', **_OTHERS[name])
  _main(flags)
  drawn = (tmp_path / 'a.svg').read_text()
  assert drawn.count('<g id="axes_') == (2 if name == 'classifier' else 1)
  assert '<path' in drawn and '<?xml' in drawn
  _main(flags)
  assert (tmp_path / 'a.svg').read_text() == drawn


def test_budget_is_on_disk_before_noise_is_drawn(words, tmp_path):
  seen = []

  def below(n):
    seen.append(ledger.read(tmp_path / 'ledger').spent())
    return random.randrange(n)

  estimate.release(estimate.parse(words()), below)
  assert set(seen) == {Fraction(1, 2)}


def test_a_crash_at_the_draw_wastes_budget_and_gives_nothing(words, tmp_path):
  def below(n):
    raise MemoryError(n)

  with pytest.raises(MemoryError):
    estimate.release(estimate.parse(words()), below)
  assert ledger.read(tmp_path / 'ledger').spent() == Fraction(1, 2)
  assert not (tmp_path / 'out.json').exists()
  answer = estimate.release(estimate.parse(words()))
  assert answer['ledger']['entry'] == 2
  assert ledger.read(tmp_path / 'ledger').spent() == 1


def test_nothing_is_drawn_beyond_the_budget(words, tmp_path):
  for upper in (50, 60, 70, 80):
    estimate.release(estimate.parse(words(upper=upper)))

  def below(n):
    raise AssertionError('noise was drawn')

  with pytest.raises(ValueError, match='exceeded'):
    estimate.release(estimate.parse(words(upper=90)), below)
  assert ledger.read(tmp_path / 'ledger').spent() == 2


def test_another_file_needs_another_ledger_or_a_name(words, tmp_path):
  estimate.release(estimate.parse(words()))
  with (tmp_path / 'people.csv').open('a') as file:
    file.write('33,a\n')
  with pytest.raises(ValueError, match='another file'):
    estimate.release(estimate.parse(words()))
  named = {'dataset': 'people', 'ledger': tmp_path / 'named'}
  estimate.release(estimate.parse(words(**named)))
  with (tmp_path / 'people.csv').open('a') as file:
    file.write('34,a\n')
  estimate.release(estimate.parse(words(**named)))
  assert ledger.read(tmp_path / 'named').spent() == 1


@pytest.mark.parametrize('change, message', [
  ({'column': 'size'}, "no column 'size'; there are age, kind"),
  ({'column': 'kind'}, "column 'kind' has no number"),
  ({'column': None}, 'mean needs column'),
  ({'lower': 100, 'upper': 0}, 'lower must be below upper'),
  ({'lower': 'low'}, "lower must be a number, got 'low'"),
  ({'upper': None}, 'mean needs upper'),
  ({'epsilon': '0'}, 'epsilon must be positive'),
  ({'epsilon': '-1'}, 'epsilon must be positive'),
  ({'epsilon': 'inf'}, 'epsilon must be a number'),
  ({'epsilon': '1/0'}, 'epsilon must be a number'),
  ({'epsilon': '1e-999999999'}, 'epsilon must lie'),
  ({'epsilon': None}, '--epsilon must be given'),
  ({'delta': '1'}, 'delta must lie'),
  ({'delta': '0'}, 'delta must lie'),
  ({'delta': '1e-6'}, 'delta 0'),
  ({'statistic': 'quantiles', 'quantiles': '0.5', 'delta': '1e-6'},
   'pure mechanism'),
  ({'statistic': 'quantiles', 'quantiles': '0.5', 'quantile_method': 'joint'},
   'quantile_method must be one of'),
  ({'adjacency': None}, '--adjacency must be given'),
  ({'adjacency': 'zero_out'}, '--adjacency must be'),
  ({'statistic': 'mode'}, 'statistic must be one of auc, classifier'),
  ({'ledger': None}, '--ledger must be given'),
  ({'ledger_budget_epsilon': None, 'ledger_budget_delta': '0.1'}, 'needs'),
  ({'ledger_budget_epsilon': None}, 'no ledger'),
  ({'ledger_budget_epsilon': '0.1'}, 'exceeded'),
  ({'output': '/nowhere/at/all.json'}, '--output must be a file'),
  ({'granularity': '1000'}, 'granularity must be'),
  ({'statistic': 'roc', 'label': 'class', 'positive': 'a'},
   "no column 'class'; there are age, kind"),
  ({'statistic': 'roc', 'label': 'kind', 'positive': 'A'},
   "no record with a score has 'A' in column 'kind'"),
  ({'statistic': 'roc', 'label': 'kind'}, 'roc needs positive'),
  ({'statistic': 'roc', 'column': 'kind', 'label': 'age', 'positive': '30'},
   "column 'kind' has no number"),
  ({'statistic': 'ecdf', 'thresholds': '1e3'}, 'thresholds must be a whole'),
  ({'statistic': 'ecdf', 'thresholds': '20000'}, 'thresholds must be 2 to'),
  ({'statistic': 'ecdf', 'upper': None}, 'ecdf needs lower and upper, or bins'),
  ({'statistic': 'hosmer_lemeshow', 'label': 'kind', 'positive': 'a'},
   'hosmer_lemeshow is of probabilities'),
  ({'plot': 'a.svg'}, 'statistic of --plot must be one of'),
  ({'synthetic': '5'}, '--synthetic and --synthetic_output need each other'),
  ({'synthetic': '5', 'synthetic_output': 'a.csv'},
   '--synthetic is of density, got mean'),
  *(({'statistic': 'density', 'synthetic_output': name, 'synthetic': number},
     message) for name, number, message in (
         ('a.csv', '2.5', 'synthetic must be a whole number from 1 to 1000000'),
         ('a.csv', '0', 'synthetic must be a whole number from 1 to 1000000'),
         ('a.csv', '1000001', 'synthetic must be a whole number from 1 to'),
         ('a.txt', '5', '--synthetic_output must end in .csv, got a.txt'),
         ('/nowhere/a.csv', '5', '--synthetic_output must be a file'))),
  ({'statistic': 'density', 'granularity': '7'}, 'granularity must go into'),
  ({'statistic': 'density', 'boundary': 'ring'}, 'boundary must be one of'),
  ({'statistic': 'density', 'lower': None}, 'density needs lower'),
  ({'statistic': 'proportion', 'positive': 'a'},
   'either positive, or lower and upper'),
  ({'statistic': 'support_max', 'lower': '0'}, 'lower must be positive'),
  ({'statistic': 'normal_mean'}, 'normal_mean needs sigma'),
  ({'statistic': 'normal_mean', 'sigma': '-1'}, 'sigma must be positive'),
  ({'sigma': '1'}, 'mean takes no sigma'),
  ({'statistic': 'ecdf', 'plot': 'a.png'}, '--plot must end in .svg, got a.png'),
  ({'statistic': 'ecdf', 'plot': '/nowhere/a.svg'}, '--plot must be a file'),
])
def test_bad_input_spends_nothing(words, tmp_path, change, message):
  with pytest.raises((ValueError, OSError), match=message) as error:
    _main(words(**change))
  assert '\n' not in str(error.value)
  path = tmp_path / 'ledger'
  assert not path.exists() or not path.read_bytes()
  assert not (tmp_path / 'out.json').exists()


@pytest.mark.parametrize('name', ['ledger', 'people.csv'])
def test_the_output_replaces_neither_ledger_nor_data(words, tmp_path, name):
  _main(words())
  before = (tmp_path / name).read_bytes()
  with pytest.raises(ValueError, match='neither --ledger nor --input'):
    _main(words(output=tmp_path / '.' / name, upper=50))
  with pytest.raises(ValueError, match='neither --ledger nor --input'):
    _main(words(statistic='density', synthetic=5,
                synthetic_output=tmp_path / '.' / name))
  assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize('text, message', [
  ('age,kind\n', 'no records'), ('', 'no column'),
  ('age,kind\n,a\n', 'has no number'), ('age,kind\n1\n', 'line 2 has 1')])
def test_bad_files_spend_nothing(words, tmp_path, text, message):
  (tmp_path / 'people.csv').write_text(text)
  with pytest.raises(ValueError, match=message):
    _main(words())
  assert not (tmp_path / 'ledger').exists()


def test_the_ledger_is_shown(words, tmp_path, capsys):
  _main(words())
  _main(words(statistic='count', **_OTHERS['count']))
  capsys.readouterr()
  _main(['estimate', f'--ledger={tmp_path / "ledger"}', '--show_ledger'])
  assert capsys.readouterr().out.splitlines() == [
      'data set without a name: one file, add_or_remove_one',
      '1: mean of age, epsilon-DP, epsilon 1/2',
      '2: count of age, epsilon-DP, epsilon 1/2',
      'spent: epsilon 1 of 2, at delta 0']
  with pytest.raises(ValueError, match='--ledger must'):
    _main(['estimate', '--show_ledger'])


def test_help_names_every_statistic(capsys):
  with pytest.raises(SystemExit) as stop:
    estimate.parse(['estimate', '--help'])
  assert not stop.value.code
  shown = capsys.readouterr().out
  for name in registry.STATISTICS:
    assert f'\n  {name} ' in shown


@pytest.mark.slow
def test_bad_input_is_one_line_on_the_command_line(words):
  bad = subprocess.run(
      [sys.executable, '-m', 'launch.estimate', *words(epsilon='0')[1:]],
      cwd=_ROOT, text=True, capture_output=True)
  assert bad.returncode == 2
  assert bad.stderr == 'error: epsilon must be positive, got 0\n'
