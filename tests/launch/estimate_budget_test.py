"""These tests check when `launch.estimate`
spends budget and what it refuses."""

import fractions
import pathlib
import random
import subprocess
import sys

import pytest

from dpjax.cli import estimate
from dpjax.release import ledger
from dpjax.release import registry
from dpjax.tables import formats
from tests.launch.people import OTHERS
from tests.launch.people import run

Fraction = fractions.Fraction
_ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_budget_is_on_disk_before_noise_is_drawn(words, tmp_path):
  seen = []

  def below(n):
    seen.append(ledger.read(tmp_path / 'ledger').spent())
    return random.randrange(n)

  estimate.release(estimate.parse(words()), below)
  assert set(seen) == {Fraction(1, 2)}


def test_a_crash_at_the_draw_gives_nothing_and_is_made_good(words, tmp_path):
  def below(n):
    raise MemoryError(n)

  with pytest.raises(MemoryError):
    estimate.release(estimate.parse(words()), below)
  assert ledger.read(tmp_path / 'ledger').spent() == Fraction(1, 2)
  assert not (tmp_path / 'out.json').exists()
  answer = estimate.release(estimate.parse(words()))
  assert answer['ledger']['entry'] == 1
  assert ledger.read(tmp_path / 'ledger').spent() == Fraction(1, 2)


@pytest.mark.every(2)
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
  with pytest.raises(formats.FileError, match='another file') as error:
    estimate.release(estimate.parse(words()))
  assert error.value.reason == 'changed' and 'dataset' in str(error.value)
  named = {'dataset': 'people', 'ledger': tmp_path / 'named'}
  estimate.release(estimate.parse(words(**named)))
  with (tmp_path / 'people.csv').open('a') as file:
    file.write('34,a\n')
  estimate.release(estimate.parse(words(**named)))
  assert ledger.read(tmp_path / 'named').spent() == 1


@pytest.mark.parametrize('change, message', [
  ({'column': 'size'}, "no column 'size'; there are age, kind"),
  ({'column': 'kind'}, "people.csv line 2, column 'kind': 'b' is not a number"),
  ({'column': None}, '--column must be given'),
  ({'lower': 100, 'upper': 0}, 'lower must be below upper'),
  ({'lower': 'low'}, "lower must be a number, got 'low'"),
  ({'upper': None}, '--upper must be given'),
  ({'epsilon': '0'}, 'epsilon must be positive'),
  ({'epsilon': '-1'}, 'epsilon must be positive'),
  ({'epsilon': 'inf'}, 'epsilon must be a number'),
  ({'epsilon': '1/0'}, 'epsilon must be a number'),
  ({'epsilon': '1e-999999999'}, 'epsilon must lie'),
  ({'epsilon': None}, '--epsilon must be given'),
  ({'delta': '1'}, 'delta must lie'),
  ({'delta': '0'}, 'delta must lie'),
  ({'delta': '1e-6'}, 'delta 0'),
  ({'statistic': 'quantiles', 'quantiles': '0.5', 'quantile_method': 'joint'},
   'quantile_method must be one of'),
  ({'adjacency': None}, '--adjacency must be given'),
  ({'adjacency': 'zero_out'}, 'adjacency must be one of add'),
  ({'statistic': 'moed'}, "statistic must be one of .* mean 'mode'"),
  ({'ledger': None}, '--ledger must be given'),
  ({'ledger_budget_epsilon': None, 'ledger_budget_delta': '0.1'},
   '--ledger_budget_epsilon .there is no ledger'),
  ({'ledger_budget_epsilon': None}, 'no ledger'),
  ({'ledger_budget_epsilon': '0.1'}, 'exceeded'),
  ({'output': '/nowhere/at/all.json'}, '--output must be a file'),
  ({'granularity': '1000'}, 'granularity must be'),
  ({'granularity': '0'}, 'granularity must be positive, got 0'),
  ({'statistic': 'roc', 'label': 'class', 'positive': 'a'},
   "no column 'class'; there are age, kind"),
  ({'statistic': 'roc', 'label': 'kind'}, '--positive must be given'),
  ({'statistic': 'roc', 'column': 'kind', 'label': 'age', 'positive': '30'},
   "column 'kind': 'b' is not a number"),
  ({'statistic': 'median'}, 'ask for quantiles with quantiles=0.5'),
  ({'lower': '1' * 100_000}, 'lower must lie between'),
  ({'statistic': 'ecdf', 'thresholds': '9' * 5_000}, 'at most 9 digits'),
  ({'encoding': 'utf-16'}, 'encoding must be one of cp1252, latin-1, utf-8'),
  ({'decimal': ',', 'thousands': ','}, 'must be different marks'),
  ({'unparsed': 'skip'}, 'unparsed must be one of missing, refuse'),
  ({'separator': 'ab'}, "separator must be one character or tab, got 'ab'"),
  ({'separator': '5'}, 'separator must not be a letter, digit'),
  ({'statistic': 'histogram', 'lower': None, 'upper': None, 'column': 'kind',
    'categories': '"a,b'}, 'categories must be separated by commas'),
  ({'statistic': 'ecdf', 'thresholds': '1e3'}, 'thresholds must be a whole'),
  ({'statistic': 'ecdf', 'thresholds': '20000'}, 'thresholds must be 2 to'),
  ({'statistic': 'ecdf', 'upper': None}, 'ecdf needs lower and upper, or bins'),
  ({'statistic': 'hosmer_lemeshow', 'label': 'kind', 'positive': 'a'},
   'hosmer_lemeshow needs probabilities'),
  ({'plot': 'a.svg'}, 'statistic of --plot must be one of'),
  ({'synthetic': '5'}, 'give both --synthetic and --synthetic_output'),
  ({'synthetic': '5', 'synthetic_output': 'a.csv'},
   '--synthetic needs density, got mean'),
  *(({'statistic': 'density', 'synthetic_output': name, 'synthetic': number},
     message) for name, number, message in (
         ('a.csv', '2.5', 'synthetic must be a whole number from 1 to 1000000'),
         ('a.csv', '0', 'synthetic must be a whole number from 1 to 1000000'),
         ('a.csv', '1000001', 'synthetic must be a whole number from 1 to'),
         ('a.txt', '5', '--synthetic_output must end in .csv, got a.txt'),
         ('/nowhere/a.csv', '5', '--synthetic_output must be a file'))),
  ({'statistic': 'density', 'granularity': '7'}, 'granularity must divide'),
  ({'statistic': 'density', 'boundary': 'ring'}, 'boundary must be one of'),
  ({'statistic': 'density', 'lower': None}, '--lower must be given'),
  ({'statistic': 'proportion', 'positive': 'a'},
   'either positive, or lower and upper'),
  ({'statistic': 'support_max', 'lower': '0'}, 'lower must be positive'),
  ({'statistic': 'normal_mean'}, '--sigma must be given'),
  ({'statistic': 'normal_mean', 'sigma': '-1'}, 'sigma must be positive'),
  ({'sigma': '1'}, 'mean takes no sigma'),
  ({'statistic': 'ecdf', 'plot': 'a.png'}, '--plot must end in .svg, got a.png'),
  ({'statistic': 'ecdf', 'plot': '/nowhere/a.svg'}, '--plot must be a file'),
])
def test_bad_input_spends_nothing(words, tmp_path, change, message):
  with pytest.raises((ValueError, OSError), match=message) as error:
    run(words(**change))
  assert '\n' not in str(error.value)
  path = tmp_path / 'ledger'
  assert not path.exists() or not path.read_bytes()
  assert not (tmp_path / 'out.json').exists()


def test_the_data_are_not_made_a_ledger(words, tmp_path):
  """An empty data file is not taken as the ledger.

  With --header it is a valid file without records.
  """
  empty = tmp_path / 'empty.csv'
  empty.touch()
  with pytest.raises(ValueError, match='--ledger must be another file than --input'):
    run(words(input=empty, ledger=tmp_path / '.' / 'empty.csv',
              header='age,kind'))
  assert not empty.read_bytes()


@pytest.mark.every(3)
@pytest.mark.parametrize('name', ['ledger', 'people.csv'])
def test_the_output_replaces_neither_ledger_nor_data(words, tmp_path, name):
  run(words())
  before = (tmp_path / name).read_bytes()
  other = {'ledger': '--ledger', 'people.csv': '--input'}[name]
  with pytest.raises(ValueError, match=f'^--output must be another .*{other},'):
    run(words(output=tmp_path / '.' / name, upper=50))
  with pytest.raises(ValueError, match=f'^--synthetic_out.* another .*{other}'):
    run(words(statistic='density', synthetic=5,
              synthetic_output=tmp_path / '.' / name))
  assert (tmp_path / name).read_bytes() == before


@pytest.mark.every(1)
@pytest.mark.parametrize('changed', [
  {'output': 'ledger.answers/1.json'}, {'output': 'ledger.answers/new.json'},
  {'output': 'ledger.secrets'}, {'output': 'ledger.secrets/a'},
  {'statistic': 'ecdf', 'thresholds': 4, 'plot': 'ledger.answers/1.svg'},
  {'statistic': 'density', 'synthetic': 5, 'granularity': 1,
   'synthetic_output': 'ledger.answers/a.csv'},
  {'output': '/dev/null'}])
def test_what_belongs_to_the_ledger_is_not_written_over(words, tmp_path,
                                                        changed):
  """Outputs never overwrite the ledger's files, whether or not they exist yet.

  The refusal spends no budget.
  """
  changed = {name: tmp_path / str(value) if name.endswith(('output', 'plot'))
             else value for name, value in changed.items()}
  for spent in (0, 1):
    if spent:
      run(words())
      (tmp_path / 'ledger.secrets').mkdir(exist_ok=True, mode=0o700)
    before = {path: path.read_bytes() for path in tmp_path.rglob('*')
              if path.is_file()}
    with pytest.raises(ValueError, match='must be outside of ledger.(answers|'
                       'secrets), which belongs|is not a regular file'):
      run(words(upper=50, **changed))
    assert {path: path.read_bytes() for path in tmp_path.rglob('*')
            if path.is_file()} == before


@pytest.mark.every(2)
@pytest.mark.parametrize('text, message', [
  ('', 'is empty: there is no header'), ('age,kind\n1\n', 'line 2 has 1'),
  ('age,kind\n1,a\n,a\n', "line 3, column 'age': a number is missing")])
def test_bad_files_spend_nothing(words, tmp_path, text, message):
  (tmp_path / 'people.csv').write_text(text)
  with pytest.raises(ValueError, match=message):
    run(words())
  assert not (tmp_path / 'ledger').exists()


def test_the_ledger_is_shown(words, tmp_path, capsys):
  run(words())
  run(words(statistic='count', **OTHERS['count']))
  capsys.readouterr()
  run(['estimate', f'--ledger={tmp_path / "ledger"}', '--show_ledger'])
  assert capsys.readouterr().out.splitlines() == [
      'data set without a name: one file, add_or_remove_one',
      '1: mean of age, epsilon-DP, epsilon 1/2',
      '2: count of age, epsilon-DP, epsilon 1/2',
      'spent: epsilon 1 of 2, at delta 0']
  with pytest.raises(ValueError, match='--ledger must'):
    run(['estimate', '--show_ledger'])


def test_help_names_every_statistic(capsys):
  with pytest.raises(SystemExit) as stop:
    estimate.parse(['estimate', '--help'])
  assert not stop.value.code
  shown = capsys.readouterr().out
  for name in registry.STATISTICS:
    assert f'\n  {name}: ' in shown


@pytest.mark.slow
def test_bad_input_is_one_line_on_the_command_line(words):
  bad = subprocess.run(
      [sys.executable, '-m', 'launch.estimate', *words(epsilon='0')[1:]],
      cwd=_ROOT, text=True, capture_output=True)
  assert bad.returncode == 2
  assert bad.stderr == 'error: epsilon must be positive, got 0\n'
