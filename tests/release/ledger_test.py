"""The ledger: exact sums, refusals, damage, crashes, two processes."""

import fractions
import json
import os
import pathlib
import subprocess
import sys

import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import ledger
from dpjax.release.costs import Cost

pytestmark = pytest.mark.every(1)

Fraction = fractions.Fraction
_AR, _RO = Adjacency
_DATA = ledger.Dataset(sha256='a' * 64)
_TENTH = Cost(epsilon=Fraction(1, 10))
_ONE = ledger.Budget(epsilon=Fraction(1), delta=Fraction(0))
_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _spend(path, cost=_TENTH, *, dataset=_DATA, adjacency=_AR, budget=_ONE,
           query=None):
  account = ledger.spend(path, cost, dataset=dataset, adjacency=adjacency,
                         budget=budget, query=query or {'statistic': 'count'})
  assert account == ledger.read(path)
  return account.entries[-1]


def test_fractions_add_exactly_and_not_beyond_the_budget(tmp_path):
  path = tmp_path / 'ledger'
  for number in range(1, 11):
    assert _spend(path).number == number
  before = path.read_bytes()
  assert ledger.read(path).spent() == 1
  with pytest.raises(ValueError, match='exceeded: epsilon 1 is spent, 1.1'):
    _spend(path)
  with pytest.raises(ValueError, match='exceeded'):
    _spend(path, Cost(epsilon=Fraction(1, 10**30)))
  assert path.read_bytes() == before


def test_gaussian_releases_are_composed_at_the_delta_of_the_ledger(tmp_path):
  path, cost = tmp_path / 'ledger', Cost(rho=Fraction(1, 100))
  budget = ledger.Budget(epsilon=Fraction(1), delta=Fraction(1, 10**5))
  spent = []
  while True:
    try:
      _spend(path, cost, budget=budget)
    except ValueError as error:
      assert 'exceeded' in str(error)
      break
    spent.append(float(ledger.read(path).spent()))
  # rho + 2 sqrt(rho ln(1/delta)) <= 1 for rho = 0.02 only; accounting does
  # better, and adding the epsilons up admits one or two.
  assert 2 <= len(spent) <= 4
  assert spent[1] < 2 * spent[0] and spent[-1] <= 1
  assert spent == sorted(spent)


@pytest.mark.parametrize('change, message', [
  ({'dataset': ledger.Dataset(sha256='b' * 64)}, 'another file'),
  ({'dataset': ledger.Dataset(sha256='a' * 64, name='x')}, "not 'x'"),
  ({'adjacency': _RO}, 'add_or_remove_one, not replace_one'),
  ({'budget': ledger.Budget(epsilon=Fraction(2), delta=Fraction(0))},
   'cannot be changed'),
  ({'cost': Cost(rho=Fraction(1, 100))}, 'only releases without --delta'),
])
def test_a_ledger_is_for_one_thing(tmp_path, change, message):
  path = tmp_path / 'ledger'
  _spend(path)
  before = path.read_bytes()
  with pytest.raises(ValueError, match=message):
    _spend(path, **change)
  assert path.read_bytes() == before
  _spend(path, budget=None)
  assert ledger.read(path).spent() == Fraction(1, 5)


def test_a_named_ledger_is_for_all_versions(tmp_path):
  path = tmp_path / 'ledger'
  one, other = (ledger.Dataset(sha256=c * 64, name='survey') for c in 'ab')
  entry = _spend(path, dataset=one)
  _spend(path, dataset=other)
  assert ledger.read(path).spent() == Fraction(1, 5)
  with pytest.raises(ValueError, match="'survey', not None"):
    _spend(path, dataset=_DATA)
  # An answer given again would tell that nothing has changed.
  ledger.record(path, entry, {'value': 1})
  assert ledger.recorded(path, dataset=one, adjacency=_AR,
                         query={'statistic': 'count'}) is None


def test_no_ledger_without_a_budget(tmp_path):
  with pytest.raises(FileNotFoundError, match='no ledger'):
    _spend(tmp_path / 'ledger', budget=None)
  (tmp_path / 'empty').touch()
  with pytest.raises(ValueError, match='is empty'):
    _spend(tmp_path / 'empty', budget=None)
  with pytest.raises(ValueError, match='exceeded'):
    _spend(tmp_path / 'new', Cost(epsilon=Fraction(2)))
  assert not (tmp_path / 'new').read_bytes()
  assert _spend(tmp_path / 'new').number == 1


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


@pytest.mark.parametrize('tamper', [
  lambda lines: [lines[0].replace('"1"', '"9"'), *lines[1:]],
  lambda lines: [*lines[:2], _cheaper(lines[2]), *lines[3:]],
  lambda lines: [*lines[:3], _cheaper(lines[3])],
  lambda lines: [lines[0], *lines[2:]],
  lambda lines: [lines[0], lines[2], lines[1], lines[3]],
  lambda lines: lines[1:],
  lambda lines: [*lines[:3], '\n', lines[3]],
  lambda lines: [*lines, lines[3]],
  lambda lines: ['[]\n', *lines[1:]],
])
def test_a_tampered_line_is_refused(tmp_path, tamper):
  path = tmp_path / 'ledger'
  for _ in range(3):
    _spend(path)
  changed = tamper(_lines(path))
  assert changed != _lines(path)
  path.write_text(''.join(changed))
  with pytest.raises(ValueError, match='is not what was written'):
    _spend(path)
  with pytest.raises(ValueError, match='is not what was written'):
    ledger.read(path)


@pytest.mark.parametrize('kept', [0, 1, 40, -1])
def test_a_torn_last_line_was_never_spent_and_is_repaired(tmp_path, kept):
  path = tmp_path / 'ledger'
  _spend(path)
  whole = path.read_bytes()
  _spend(path)
  torn = path.read_bytes()[len(whole):][:kept]
  path.write_bytes(whole + torn)
  assert ledger.read(path).spent() == Fraction(1, 10)
  assert _spend(path).number == 2
  assert ledger.read(path).spent() == Fraction(1, 5)
  assert len(_lines(path)) == 3


def test_a_torn_header_is_written_again(tmp_path):
  path = tmp_path / 'ledger'
  path.write_bytes(b'{"version": 1, "da')
  assert _spend(path).number == 1
  assert ledger.read(path).spent() == Fraction(1, 10)


def test_a_write_that_fails_spends_nothing(tmp_path, monkeypatch):
  path = tmp_path / 'ledger'
  _spend(path)
  real = os.write
  with monkeypatch.context() as patch:
    patch.setattr(os, 'fsync', lambda d: None)

    def write(descriptor, data):
      real(descriptor, data[:25])
      raise OSError('disk full')
    patch.setattr(os, 'write', write)
    with pytest.raises(OSError, match='disk full'):
      _spend(path)
  assert ledger.read(path).spent() == Fraction(1, 10)
  assert _spend(path).number == 2


def test_the_entry_is_on_disk_when_spending_returns(tmp_path, monkeypatch):
  path, order = tmp_path / 'ledger', []
  real = os.fsync
  monkeypatch.setattr(os, 'fsync', lambda descriptor: (
      order.append(path.read_bytes().count(b'\n')), real(descriptor)))
  _spend(path)
  _spend(path)
  assert order == [2, 2, 3]  # header and entry, the folder, an entry


def test_answers_are_given_again(tmp_path):
  path, query = tmp_path / 'ledger', {'statistic': 'sum', 'bins': []}
  ask = dict(dataset=_DATA, adjacency=_AR)
  assert ledger.recorded(path, query=query, **ask) is None
  entry = _spend(path, query=query)
  assert ledger.recorded(path, query=query, **ask) is None
  ledger.record(path, entry, {'value': 7})
  assert ledger.recorded(path, query=query, **ask) == {'value': 7}
  assert ledger.recorded(path, query={'statistic': 'sum'}, **ask) is None
  with pytest.raises(ValueError, match='another file'):
    ledger.recorded(path, query=query, adjacency=_AR,
                    dataset=ledger.Dataset(sha256='c' * 64))


def test_the_hash_of_the_data_is_salted(tmp_path):
  for name in 'ab':
    _spend(tmp_path / name)
  headers = [json.loads(_lines(tmp_path / name)[0]) for name in 'ab']
  assert headers[0]['data'] != headers[1]['data']
  assert _DATA.sha256 not in (tmp_path / 'a').read_text()


_PROCESS = '''
import fractions, sys, time
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import costs, ledger
spent, done = costs.spent, 0
def slow(*args, **named):  # so that the other process would come between
  time.sleep(0.005)
  return spent(*args, **named)
costs.spent = slow
print('ready', flush=True)
sys.stdin.readline()
for _ in range(25):
  try:
    ledger.spend(
        sys.argv[1], costs.Cost(epsilon=fractions.Fraction(1, 30)),
        dataset=ledger.Dataset(sha256='a' * 64),
        adjacency=Adjacency.ADD_OR_REMOVE_ONE, query={},
        budget=ledger.Budget(epsilon=fractions.Fraction(1),
                             delta=fractions.Fraction(0)))
    done += 1
  except ValueError as error:
    if 'exceeded' not in str(error):
      raise
print(done)
'''


def test_two_processes_neither_lose_nor_spend_twice(tmp_path):
  path = tmp_path / 'ledger'
  processes = [subprocess.Popen(
      [sys.executable, '-c', _PROCESS, str(path)], cwd=_ROOT, text=True,
      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
               for _ in range(2)]
  try:
    for process in processes:
      assert process.stdout.readline() == 'ready\n'
    for process in processes:
      process.stdin.write('\n')
      process.stdin.flush()
    outputs = [process.communicate(timeout=60) for process in processes]
  finally:
    for process in processes:
      process.kill()
      process.wait()
  assert [error for _, error in outputs] == ['', '']
  done = [int(out) for out, _ in outputs]
  assert sum(done) == 30 and min(done) >= 5
  account = ledger.read(path)
  assert account.spent() == 1
  assert [entry.number for entry in account.entries] == list(range(1, 31))
