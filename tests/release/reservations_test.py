"""Tests releases on a ledger: paid once, answered once, at any kill."""

import fractions
import json
import os
import pathlib
import subprocess
import sys

import pytest

from dpjax.release import ledger
from dpjax.release import reservations
from dpjax.release.costs import Cost
from dpjax.report import files
from tests.release import spending

pytestmark = pytest.mark.every(1)

Fraction = fractions.Fraction
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_QUERY = {'statistic': 'sum', 'bins': []}


class _Killed(BaseException):
  """Ends a process, for these tests."""


def _interrupted(path, **how):
  """Interrupts a release after it was paid and before it draws noise."""
  def draw(_, entry):
    raise _Killed(entry)

  drawing = reservations.Held.drawing
  reservations.Held.drawing = draw
  try:
    spending.release(path, query=_QUERY, size=10**12, **how)
  except _Killed:
    pass
  finally:
    reservations.Held.drawing = drawing


def _release(path, **how):
  return spending.release(path, query=_QUERY, size=10**12, **how)


def test_answers_are_given_again(tmp_path):
  path = tmp_path / 'ledger'
  first = _release(path)
  before = path.read_bytes()
  assert _release(path) == first and path.read_bytes() == before
  with pytest.raises(ValueError, match='another file'):
    _release(path, data='c')
  assert spending.release(path) != first
  assert len(ledger.read(path).entries) == 2
  # Versions get new answers, as an old one would show that nothing changed.
  named = tmp_path / 'named'
  first = _release(named, dataset='survey')
  assert _release(named, dataset='survey') != first
  assert len(ledger.read(named).entries) == 2


def test_an_edited_answer_is_noticed_and_a_lost_one_is_paid_again(tmp_path):
  path = tmp_path / 'ledger'
  first = _release(path)
  answer = tmp_path / 'ledger.answers' / '1.json'
  answer.write_text(answer.read_text().replace(str(first['value']), '7'))
  with pytest.raises(ValueError, match='1.json was changed: restore it'):
    _release(path)
  assert len(ledger.read(path).entries) == 1
  answer.unlink()
  assert _release(path) != first
  assert len(ledger.read(path).entries) == 2


@pytest.mark.parametrize('dataset', [None, 'survey'])
def test_what_was_interrupted_is_finished_with_the_same_noise(
    tmp_path, dataset):
  path = tmp_path / 'ledger'
  _interrupted(path, dataset=dataset)
  entry, = ledger.read(path).entries
  secret = (tmp_path / 'ledger.secrets' / entry.seal).read_bytes()
  context = json.dumps([_QUERY, ledger.read(path).salted(
      spending.sha256('a'))], sort_keys=True).encode()
  expected = reservations.streams.SecretStream(secret, context)(10**12)
  spending.release(path, dataset=dataset)  # Another query comes in between.
  assert _release(path, dataset=dataset) == {'value': expected}
  entries = ledger.read(path).entries
  assert len(entries) == 2 and all(each.answer for each in entries)
  assert not list((tmp_path / 'ledger.secrets').iterdir())
  assert secret not in b''.join(
      each.read_bytes() for each in tmp_path.rglob('*') if each.is_file())


def test_no_noise_is_shared_by_two_versions_and_no_budget_tells_them(tmp_path):
  """Resuming shows no public sign of changed data, and
  new data get new noise."""
  seen = []
  for data in 'ab':
    path = tmp_path / data
    _interrupted(path, dataset='survey')
    account = ledger.read(path)
    entry, = account.entries
    secret = (tmp_path / f'{data}.secrets' / entry.seal).read_bytes()
    with spending.held(path, dataset='survey') as lock:
      # A spent budget does not matter, since both are paid.
      lock.check(_QUERY, spending.TENTH)
      reservation = lock.reserve(_QUERY, spending.TENTH, spending.sha256(data))
      seen.append((reservation.entry.number, reservation.resumed,
                   reservation.account.spent(), path.stat().st_size))
      again = reservations.streams.SecretStream(secret, json.dumps(
          [_QUERY, account.salted(spending.sha256('a'))],
          sort_keys=True).encode())
      assert (reservation.below(10**12) == again(10**12)) == (data == 'a')
      lock.commit(reservation.entry, {})
    assert not list((tmp_path / f'{data}.secrets').iterdir())
    assert ledger.read(path).spent() == Fraction(1, 10)
  assert seen[0] == seen[1]


def test_a_secret_that_is_lost_or_changed_is_paid_again(tmp_path):
  for change in (pathlib.Path.unlink, lambda path: path.write_bytes(bytes(32))):
    path = tmp_path / f'{change}'[-9:-1]
    _interrupted(path)
    secret, = pathlib.Path(f'{path}.secrets').iterdir()
    change(secret)
    _release(path)
    one, other = ledger.read(path).entries
    assert one.answer is None and other.answer
    assert not list(pathlib.Path(f'{path}.secrets').iterdir())


def test_a_release_that_fails_at_its_noise_is_not_drawn_for_again(tmp_path):
  path = tmp_path / 'ledger'
  for kind, number in ((ValueError, 2), (MemoryError, 1)):
    path = tmp_path / kind.__name__
    with pytest.raises(kind), spending.held(path) as lock:
      reservation = lock.reserve(_QUERY, spending.TENTH, spending.sha256('a'))
      with lock.drawing(reservation.entry):
        raise kind
    _release(path)
    assert len(ledger.read(path).entries) == number


def test_another_cost_is_another_release(tmp_path):
  path = tmp_path / 'ledger'
  _interrupted(path)
  fifth = Cost(epsilon=Fraction(1, 5))
  _release(path, cost=fifth)
  assert [entry.cost for entry in ledger.read(path).entries] == [
      spending.TENTH, fifth]


def test_the_budget_is_refused_before_the_data_matter(tmp_path):
  path = tmp_path / 'ledger'
  _release(path, cost=Cost(epsilon=Fraction(1)))
  with spending.held(path) as lock:
    with pytest.raises(ValueError, match='exceeded'):
      lock.check({'statistic': 'count'}, spending.TENTH)
    lock.check(_QUERY, spending.TENTH)  # This query is answered.


@pytest.mark.parametrize('every', [3, pytest.param(1, marks=pytest.mark.slow)])
def test_kills_at_every_step_lose_no_budget_and_change_no_answer(every):
  """Kills at every system call and half-write lose no budget or answer."""
  done = subprocess.run(
      [sys.executable, '-m', 'tests.release.kills', 'steps', str(every)],
      cwd=_ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  report = json.loads(done.stdout)
  assert not report['wrong']
  # Kills hit before payment, after it, and after the answer.
  assert min(report['seen'].values()) >= 3
  assert set(report['seen']) == {'unpaid', 'paid', 'answered'}


@pytest.mark.parametrize('races, processes', [
  (2, 3), pytest.param(20, 6, marks=pytest.mark.slow)])
def test_equal_queries_at_once_are_paid_once(races, processes):
  _run('races', races, processes)


@pytest.mark.parametrize('kills', [
  3, pytest.param(30, marks=pytest.mark.slow)])
def test_kills_at_any_time_lose_no_budget_and_change_no_answer(kills):
  _run('kills', kills)


def _run(*words):
  done = subprocess.run(
      [sys.executable, '-m', 'tests.release.kills', *map(str, words)],
      cwd=_ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert json.loads(done.stdout) == {'wrong': [], 'done': words[1]}


def test_files_of_others_in_the_folders_stay(tmp_path):
  """Foreign files in the folders stay; what a killed
  release left is removed."""
  path = tmp_path / 'ledger'
  folders = {name: tmp_path / f'ledger.{name}' for name in (
      'answers', 'secrets')}
  foreign = [folders['answers'] / '.gitkeep', folders['answers'] / 'a.json',
             folders['secrets'] / 'id_rsa', folders['secrets'] / '.netrc']
  left = [folders['answers'] / '.1.json.77', folders['secrets'] / ('0' * 64),
          folders['secrets'] / f'.{"f" * 64}.77']
  for folder in folders.values():
    folder.mkdir()
  (folders['secrets'] / 'folder').mkdir()
  for file in foreign + left:
    file.write_text('kept')
  _release(path)
  _release(path)
  assert [file.read_text() for file in foreign] == ['kept'] * len(foreign)
  assert not any(file.exists() for file in left)


def test_folders_are_on_disk_before_lines_that_rely_on_them(
    tmp_path, monkeypatch):
  """Folders are synced before ledger lines that need their secret or answer."""
  path, seen = tmp_path / 'ledger', set()
  sync = files.sync_folder

  def noted(folder):
    sync(folder)
    if pathlib.Path(folder) == tmp_path:
      seen.update((name, kind) for name, kind in (
          ('secrets', b'"reserved"'), ('answers', b'"answered"'))
                  if (tmp_path / f'ledger.{name}').is_dir()
                  and kind not in path.read_bytes())

  monkeypatch.setattr(files, 'sync_folder', noted)
  _release(path)
  assert {name for name, _ in seen} == {'secrets', 'answers'}


def _linked(path):
  path.rename(path.with_name('theirs'))
  path.symlink_to(path.with_name('theirs'))


def _opened(path):
  path.chmod(path.stat().st_mode | 0o022)


@pytest.mark.parametrize('what', ['ledger', 'secrets', 'secret'])
@pytest.mark.parametrize('plant', [_linked, _opened])
def test_what_others_may_have_written_is_no_secret(what, plant, tmp_path):
  """A secret that others could have written is refused
  after an interruption."""
  path = tmp_path / 'ledger'
  _interrupted(path)
  folder = tmp_path / 'ledger.secrets'
  secret, = folder.iterdir()
  before = path.read_bytes()
  plant({'ledger': path, 'secrets': folder, 'secret': secret}[what])
  if (what, plant) == ('ledger', _linked):
    _release(path)  # A ledger may be a link; its secrets lie beside it.
    return
  with pytest.raises(PermissionError, match='is not used as a private f'):
    _release(path)
  assert path.read_bytes() == before and len(list(folder.iterdir())) >= 1


def test_a_secret_of_another_user_is_none(tmp_path, monkeypatch):
  path = tmp_path / 'ledger'
  _interrupted(path)
  user = os.geteuid()
  monkeypatch.setattr(os, 'geteuid', lambda: user + 1)
  with pytest.raises(PermissionError, match=f'belongs to user {user}, not'):
    _release(path)
