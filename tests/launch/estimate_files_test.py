"""These tests give `launch.estimate` hostile
files and read what errors reveal."""

import gzip
import json

import numpy as np
import pytest

from dpjax.cli import estimate
from dpjax.release import ledger
from dpjax.release import parameters
from dpjax.tables import formats
from tests.launch.people import OTHERS
from tests.launch.people import ROWS
from tests.launch.people import run

pytestmark = pytest.mark.every(1)


def _outcome(words):
  """Returns what others than the owner may see: the kind of error, or none."""
  try:
    run(words)
    return None
  except ValueError as error:
    return str(error)


@pytest.mark.parametrize('asked', [
  {'statistic': 'roc', 'label': 'person', 'positive': 'John Smith',
   'thresholds': 4, 'upper': 1},
  {'statistic': 'proportion', 'column': 'person', 'positive': 'John Smith',
   'lower': None, 'upper': None},
  {'statistic': 'histogram', 'column': 'person', 'lower': None, 'upper': None,
   'categories': '"Smith, John",John Smith'},
  {'statistic': 'count', 'column': 'age', 'lower': 40, 'upper': 41},
])
def test_no_refusal_reveals_who_is_in_the_file(words, tmp_path, asked):
  """Refusals and releases do not depend on who is in the file."""
  outcomes = []
  for number, name in enumerate(('John Smith', 'Jane Doe')):
    path = tmp_path / f'{number}.csv'
    path.write_text(f'age,person\n40,{name}\n17,Al\n')
    for budget in ('0.1', '2'):
      outcomes.append(_outcome(words(
          input=path, ledger=tmp_path / f'{number}-{budget}',
          ledger_budget_epsilon=budget, **asked)))
  assert outcomes[:2] == outcomes[2:]
  assert 'exceeded' in outcomes[0] and outcomes[1] is None


@pytest.mark.parametrize('name', ['mean', 'quantiles', 'proportion', 'roc',
                                  'normal_mean', 'histogram'])
@pytest.mark.parametrize('text', ['age,kind\n', 'age,kind\n1,a\n'])
def test_files_of_hardly_any_record_are_released(words, tmp_path, text, name):
  (tmp_path / 'people.csv').write_text(text)
  for adjacency in ('add_or_remove_one', 'replace_one'):
    run(words(statistic=name, adjacency=adjacency,
              ledger=tmp_path / adjacency, **OTHERS[name]))
    answer = json.loads((tmp_path / 'out.json').read_text())
    assert answer['statistic'] == name
    assert answer.get('num_records') in (
        (None,) if adjacency == 'add_or_remove_one' else
        (None, text.count('\n') - 1))


def _incomes(path):
  """Writes incomes of which 30 % are missing, and returns the others."""
  generator = np.random.default_rng(0)
  incomes = np.round(generator.gamma(4, 9_000, 3_000))
  present = generator.random(3_000) > .3
  path.write_text('income,place\n' + ''.join(
      f'{"" if not here else int(x)},a\n' for x, here in zip(
          incomes, present, strict=True)))
  return incomes[present]


def test_missing_values_are_declared_or_refused(words, tmp_path):
  """Missing values must be declared; only on
  request do they become the middle."""
  incomes = _incomes(tmp_path / 'people.csv')
  asked = {'column': 'income', 'upper': 200_000, 'epsilon': 20,
           'ledger_budget_epsilon': 100}
  for adjacency in ('replace_one', 'add_or_remove_one'):
    flags = {**asked, 'adjacency': adjacency, 'ledger': tmp_path / adjacency}
    with pytest.raises(formats.FileError, match=r'line \d+, column .income.: '
                       r'a number is missing, .*\(or declare missing\)'):
      run(words(**flags))
    assert not (tmp_path / adjacency).exists()
    run(words(missing='absent', **flags))
    answer = json.loads((tmp_path / 'out.json').read_text())
    assert answer['value'] == pytest.approx(incomes.mean(), rel=.02)
    ends = answer['population_interval']
    assert 'missing completely at random' in ends['covers']
    assert 'num_records' not in answer
    run(words(missing='middle', **flags))
    answer = json.loads((tmp_path / 'out.json').read_text())
    assert answer['value'] > 1.4 * incomes.mean()
    assert 'in which a missing number is the middle of the bounds' in answer[
        'population_interval']['covers']
    # A count has a place for them: nothing has to be declared.
    run(words(statistic='count', **{**flags, 'epsilon': 1}))


def test_formats_are_declared_and_part_of_the_query(words, tmp_path):
  path = tmp_path / 'prices.csv.gz'
  path.write_bytes(gzip.compress(
      'caf\xe9;"1.234,50"\nbar;-99\nno;"2.000"\n'.encode('latin-1')))
  declared = {'input': path, 'header': 'name,price', 'separator': ';',
              'encoding': 'latin-1', 'decimal': ',', 'thousands': '.',
              'missing_tokens': '-99', 'missing': 'absent'}
  flags = {'column': 'price', 'upper': 10_000, 'epsilon': '1000',
           'ledger_budget_epsilon': 3_000, **declared}
  run(words(**flags))
  answer = json.loads((tmp_path / 'out.json').read_text())
  assert answer['value'] == pytest.approx(1617.25, rel=.1)
  assert answer['format'] == {
      'separator': ';', 'encoding': 'latin-1', 'header': ['name', 'price'],
      'decimal': ',', 'thousands': '.', 'missing_tokens': ['-99']}
  # With other missing tokens the same file is charged as another query.
  run(words(**{**flags, 'missing_tokens': 'NA'}, unparsed='missing'))
  assert len(ledger.read(tmp_path / 'ledger').entries) == 2
  run(words(**flags))
  assert len(ledger.read(tmp_path / 'ledger').entries) == 2


def test_lines_that_are_no_records_are_declared_or_refused(words, tmp_path):
  text = 'age,kind\n30,a\n31,"b\n' + '32,c\n' * 5
  (tmp_path / 'people.csv').write_text(text)
  count = {'statistic': 'count', 'column': None, 'lower': None, 'upper': None,
           'epsilon': '1000', 'ledger_budget_epsilon': 9_000}
  with pytest.raises(formats.FileError, match='quot|unexpected end'):
    run(words(**count))
  run(words(bad_lines='missing', **count))
  assert json.loads((tmp_path / 'out.json').read_text())['value'] == 7


def test_categories_hold_commas(words):
  args = estimate.parse(words(categories='"Smith, John", b ,"say ""hi"""'))
  assert estimate.query_of(args).categories == ('Smith, John', 'b', 'say "hi"')
  assert parameters.quoted('header', 'a, b') == ('a', 'b')
  assert len(ROWS) == 200


def test_every_refusal_is_documented_in_the_readme():
  """The README lists every refusal, because users read it there."""
  import pathlib
  readme = ' '.join((pathlib.Path(__file__).resolve().parents[2]
                     / 'README.md').read_text().split())
  for reason, refusal in formats.REFUSALS.items():
    assert refusal.when in readme, reason
