"""Tests the lines of a ledger: exact sums, refusals, damage, versions."""

import fractions
import json

import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import ledger
from dpjax.release import reservations
from dpjax.release.costs import Cost
from tests.release import spending

pytestmark = pytest.mark.every(1)

Fraction = fractions.Fraction
_TENTH = Cost(epsilon=Fraction(1, 10))


def test_fractions_add_exactly_and_not_beyond_the_budget(tmp_path):
  path = tmp_path / 'ledger'
  for number in range(1, 11):
    assert spending.spend(path).number == number
  before = path.read_bytes()
  assert ledger.read(path).spent() == 1
  with pytest.raises(ValueError, match='exceeded: epsilon 1 is spent, 1.1'):
    spending.spend(path)
  with pytest.raises(ValueError, match='exceeded'):
    spending.spend(path, Cost(epsilon=Fraction(1, 10**30)))
  assert path.read_bytes() == before


def test_gaussian_releases_are_composed_at_the_delta_of_the_ledger(tmp_path):
  path, cost = tmp_path / 'ledger', Cost(rho=Fraction(1, 100))
  budget = ledger.Budget(epsilon=Fraction(1), delta=Fraction(1, 10**5))
  spent = []
  while True:
    try:
      spending.spend(path, cost, budget=budget)
    except ValueError as error:
      assert 'exceeded' in str(error)
      break
    spent.append(float(ledger.read(path).spent()))
  # rho + 2 sqrt(rho ln(1/delta)) <= 1 allows only rho = 0.02; accounting admits
  # more, and adding up epsilons one or two.
  assert 2 <= len(spent) <= 4
  assert spent[1] < 2 * spent[0] and spent[-1] <= 1
  assert spent == sorted(spent)


@pytest.mark.parametrize('change, message', [
  ({'data': 'b'}, 'another file'),
  ({'dataset': 'x'}, "not 'x'"),
  ({'adjacency': Adjacency.REPLACE_ONE},
   'add_or_remove_one, not replace_one'),
  ({'budget': ledger.Budget(epsilon=Fraction(2), delta=Fraction(0))},
   'cannot be changed'),
  ({'cost': Cost(rho=Fraction(1, 100))}, 'only releases without --delta'),
])
def test_a_ledger_is_for_one_thing(tmp_path, change, message):
  path = tmp_path / 'ledger'
  spending.spend(path)
  before = path.read_bytes()
  with pytest.raises(ValueError, match=message):
    spending.spend(path, **change)
  assert path.read_bytes() == before
  spending.spend(path, budget=None)
  assert ledger.read(path).spent() == Fraction(1, 5)


def test_a_named_ledger_is_for_all_versions(tmp_path):
  path = tmp_path / 'ledger'
  for data in 'ab':
    spending.spend(path, data=data, dataset='survey')
  assert ledger.read(path).spent() == Fraction(1, 5)
  with pytest.raises(ValueError, match="'survey', not None"):
    spending.spend(path)


def test_no_ledger_without_a_budget(tmp_path):
  with pytest.raises(FileNotFoundError, match='no ledger'):
    spending.spend(tmp_path / 'ledger', budget=None)
  (tmp_path / 'empty').touch()
  with pytest.raises(ValueError, match='is empty'):
    spending.spend(tmp_path / 'empty', budget=None)
  with pytest.raises(ValueError, match='exceeded'):
    spending.spend(tmp_path / 'new', Cost(epsilon=Fraction(2)))
  assert not (tmp_path / 'new').exists()
  assert spending.spend(tmp_path / 'new').number == 1


@pytest.mark.parametrize('bad', [
  {'epsilon': Fraction(0), 'delta': Fraction(0)},
  {'epsilon': Fraction(1), 'delta': Fraction(1)}])
def test_budgets_are_checked(bad):
  with pytest.raises(ValueError, match='must'):
    ledger.Budget(**bad)


def _lines(path):
  return path.read_text().splitlines(keepends=True)


def _cheaper(line):
  return line.replace('1/10', '1/99')


# The lines are the header, then entries and answers in turn.
@pytest.mark.parametrize('tamper', [
  lambda lines: [lines[0].replace('"1"', '"9"'), *lines[1:]],
  lambda lines: [*lines[:3], _cheaper(lines[3]), *lines[4:]],
  lambda lines: [*lines[:5], _cheaper(lines[5]), *lines[6:]],
  lambda lines: [*lines[:5], _cheaper(lines[5])],
  lambda lines: [lines[0], *lines[2:]],
  lambda lines: [*lines[:2], *lines[3:]],
  lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
  lambda lines: lines[1:],
  lambda lines: [*lines[:3], '\n', *lines[3:]],
  lambda lines: [*lines, lines[-1]],
  lambda lines: ['[]\n', *lines[1:]],
  lambda lines: [*lines[:6], lines[6].replace('answer": "', 'answer": "0')],
])
def test_a_tampered_line_is_refused(tmp_path, tamper):
  path = tmp_path / 'ledger'
  for _ in range(3):
    spending.spend(path)
  changed = tamper(_lines(path))
  assert changed != _lines(path)
  path.write_text(''.join(changed))
  for look in (spending.spend, ledger.read):
    with pytest.raises(ValueError, match='was changed after it was written'):
      look(path)


def _rechained(lines):
  """Returns lines with new digests, as anyone with write access could."""
  previous, chained = '', []
  for line in lines:
    body = json.loads(line)
    del body['digest']
    previous, line_chained = ledger._chained(body, previous)
    chained.append(line_chained)
  return b''.join(chained)


@pytest.mark.parametrize('order', [(0, 2, 1), (0, 1, 2, 2), (0, 1, 1)])
def test_lines_that_do_not_follow_are_refused(tmp_path, order):
  """A ledger is refused if answers or entries are repeated or out of order."""
  path = tmp_path / 'ledger'
  spending.spend(path)
  lines = _lines(path)
  path.write_bytes(_rechained([lines[place] for place in order]))
  with pytest.raises(ValueError, match='was changed after it was written'):
    ledger.read(path)


def test_another_format_is_named(tmp_path):
  path = tmp_path / 'ledger'
  spending.spend(path)
  path.write_bytes(_rechained([_lines(path)[0].replace(
      '"version": 2', '"version": 1')]))
  with pytest.raises(ValueError, match='is a ledger of format 1, this'):
    ledger.read(path)


@pytest.mark.parametrize('kept', [0, 1, 40, -1])
def test_a_torn_last_line_was_never_spent_and_is_repaired(tmp_path, kept):
  path = tmp_path / 'ledger'
  spending.spend(path)
  whole = path.read_bytes()
  spending.spend(path)
  torn = path.read_bytes()[len(whole):].split(b'\n')[0][:kept]
  path.write_bytes(whole + torn)
  assert ledger.read(path).spent() == Fraction(1, 10)
  assert spending.spend(path).number == 2
  assert ledger.read(path).spent() == Fraction(1, 5)
  assert len(_lines(path)) == 5


@pytest.mark.parametrize('kept', [1, 40, -1])
def test_a_torn_header_is_written_again_and_explained(tmp_path, kept):
  path = tmp_path / 'ledger'
  spending.spend(path)
  path.write_text(_lines(path)[0][:kept])
  with pytest.raises(ValueError, match='incomplete header: nothing was'):
    ledger.read(path)
  with pytest.raises(ValueError, match='is empty: give its budget'):
    spending.spend(path, budget=None)
  assert spending.spend(path).number == 1
  assert ledger.read(path).spent() == Fraction(1, 10)


@pytest.mark.parametrize('content', [b'age', b'{"a": 1}', b'age\n1\n'])
def test_a_file_that_is_no_ledger_is_left_alone(tmp_path, content):
  path = tmp_path / 'people.csv'
  path.write_bytes(content)
  with pytest.raises(ValueError, match='not a ledger|was changed after'):
    spending.spend(path)
  assert path.read_bytes() == content


def test_the_hash_of_the_data_is_salted(tmp_path):
  for name in 'ab':
    spending.spend(tmp_path / name)
  headers = [json.loads(_lines(tmp_path / name)[0]) for name in 'ab']
  assert headers[0]['data'] != headers[1]['data']
  assert spending.sha256('a') not in (tmp_path / 'a').read_text()


def test_nobody_else_reads_what_lies_beside_the_data(tmp_path):
  path = tmp_path / 'ledger'
  spending.spend(path)
  with spending.held(path) as held:
    held.reserve({'open': 1}, _TENTH, spending.sha256('a'))
  entries = {str(each.relative_to(tmp_path)).split('/')[0]: each
             for each in tmp_path.rglob('*')}
  assert set(entries) == {'ledger', 'ledger.answers', 'ledger.secrets'}
  for each in tmp_path.rglob('*'):
    assert not each.stat().st_mode & 0o077
  # An older ledger that others may read gets closed.
  path.chmod(0o644)
  with reservations.held(path, dataset=None, budget=None,
                         adjacency=Adjacency.ADD_OR_REMOVE_ONE):
    pass
  assert path.stat().st_mode & 0o777 == 0o600
