"""Tests what a held ledger ensures by itself, whatever its caller checks."""

import dataclasses
import fcntl
import fractions
import os
import threading

import pytest

from dpjax.release import costs
from dpjax.release import ledger
from dpjax.release.costs import Cost
from dpjax.report import files
from tests.release import spending

pytestmark = pytest.mark.every(1)

Fraction = fractions.Fraction


def test_what_was_not_checked_before_is_checked_when_it_is_reserved(tmp_path):
  path = tmp_path / 'ledger'
  with spending.held(path) as lock:
    with pytest.raises(ValueError, match='exceeded'):
      lock.reserve({}, Cost(epsilon=Fraction(2)), spending.sha256('a'))
  assert not path.exists()
  spending.spend(path, Cost(epsilon=Fraction(19, 20)))
  before = path.read_bytes()
  with spending.held(path) as lock:
    with pytest.raises(ValueError, match='exceeded'):
      lock.reserve({}, spending.TENTH, spending.sha256('a'))
  assert path.read_bytes() == before
  assert not list(tmp_path.glob('ledger.secrets/*'))
  assert ledger.read(path).spent() == Fraction(19, 20)


def _is_locked(path):
  """Returns whether nobody else can get even a shared lock."""
  descriptor = os.open(path, os.O_RDWR)
  try:
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
  except BlockingIOError:
    return True
  finally:
    os.close(descriptor)
  return False


def test_a_ledger_is_locked_until_its_answer_is_on_disk(tmp_path):
  path = tmp_path / 'ledger'
  with spending.held(path) as lock:
    assert _is_locked(path)
    reservation = lock.reserve({}, spending.TENTH, spending.sha256('a'))
    assert _is_locked(path)
    with lock.drawing(reservation.entry):
      assert _is_locked(path)
    lock.commit(reservation.entry, {'value': 1})
    assert _is_locked(path)
  assert not _is_locked(path)


def test_who_waited_for_a_ledger_that_is_gone_makes_it_anew(
    tmp_path, monkeypatch):
  """A process that waited for a removed empty ledger creates it anew."""
  path, waits = tmp_path / 'ledger', threading.Event()
  lock = files.portalocker.lock

  def flock(*args):
    waits.set()
    lock(*args)

  thread = threading.Thread(target=spending.release, args=[path])
  with spending.held(path):
    monkeypatch.setattr(files.portalocker, 'lock', flock)
    thread.start()
    assert waits.wait(60)
  thread.join(60)
  assert ledger.read(path).spent() == Fraction(1, 10)


def test_noise_is_made_of_a_secret_that_no_file_tells(tmp_path, monkeypatch):
  """Noise comes from a secret in no ledger, even for equal ledgers."""
  monkeypatch.setattr(ledger.secrets, 'token_hex', lambda size: 'ab' * size)
  secrets, drawn = set(), set()
  for name in 'ab':
    path = tmp_path / name
    with spending.held(path) as lock:
      reservation = lock.reserve({}, spending.TENTH, spending.sha256('a'))
      secret = (tmp_path / f'{name}.secrets'
                / reservation.entry.seal).read_bytes()
      drawn.add(reservation.below(2**200))
    assert len(secret) == 32 and secret.hex() not in path.read_text()
    assert secret.hex() != reservation.entry.seal
    secrets.add(secret)
  assert len(secrets) == len(drawn) == 2


def test_lines_of_another_ledger_are_refused(tmp_path):
  """A valid line is refused if it does not follow the line before it."""
  small, large = (tmp_path / name for name in ('small', 'large'))
  budget = ledger.Budget(epsilon=Fraction(9), delta=Fraction(0))
  spending.spend(small)
  spending.spend(large, budget=budget)
  lines, others = (path.read_bytes().splitlines(keepends=True)
                   for path in (small, large))
  for mixed in ([others[0], *lines[1:]], [lines[0], *others[1:]],
                [*lines[:2], others[2]]):
    small.write_bytes(b''.join(mixed))
    with pytest.raises(ValueError, match='was changed after it was written'):
      ledger.read(small)


def test_a_ledger_charges_what_may_be_chosen_in_view_of_answers(tmp_path):
  """A ledger charges by fixed orders, since queries may depend on answers."""
  path = tmp_path / 'ledger'
  budget = ledger.Budget(epsilon=Fraction(3), delta=Fraction(1, 10**6))
  spent = [Cost(rho=Fraction(1, 100)), Cost(epsilon=Fraction(1, 2)),
           Cost(choices=(Fraction(1, 4),) * 3)]
  for cost in spent:
    spending.spend(path, cost, budget=budget)
  account = ledger.read(path)
  common = {'delta': budget.delta, 'adjacency': account.adjacency}
  charged = costs.charged(spent, budget=budget.epsilon, **common)
  assert account.spent() == charged > 1.01 * costs.epsilon(spent, **common)
  more = Cost(rho=Fraction(1, 50))
  assert account.spent(more) == costs.charged(
      [*spent, more], budget=budget.epsilon, **common)
  assert account.summary() == {
      'entry': 3, 'spent_epsilon': float(charged), 'budget_epsilon': 3.0,
      'budget_delta': 1e-6}
  asked = [dataclasses.replace(entry, query={'query': {
      'statistic': 'sum', 'column': 'x'}}) for entry in account.entries]
  lines = ledger.described(dataclasses.replace(
      account, entries=tuple(asked))).splitlines()
  assert lines[1:4] == [
      '1: sum of x, rho-zCDP, rho 1/100', '2: sum of x, epsilon-DP, epsilon 1/2',
      '3: sum of x, epsilon-DP, 3 x epsilon 1/4']
  assert f'spent: epsilon {float(charged):.6g} of 3, at delta 1e-06; ' in (
      lines[4]) and lines[4].endswith('chosen before the first answer')
