"""Tests files: modes, whole appends, and copies hashed by their own bytes."""

import fcntl
import hashlib
import os

import pytest

from dpjax.report import files


@pytest.mark.every(1)
@pytest.mark.parametrize('size', [0, 5, 2**20 + 1, 2**26 + 1])
def test_a_snapshot_is_what_was_hashed(tmp_path, size):
  path = tmp_path / 'data'
  path.write_bytes(bytes(size - 1) + b'x' if size else b'')
  with files.snapshot(path) as (copy, sha256):
    path.write_bytes(b'another')
    content = copy.read()
    assert len(content) == size
    assert hashlib.sha256(content).hexdigest() == sha256
  assert copy.closed and os.listdir(tmp_path) == ['data']


def test_files_of_others_and_of_nobody_else(tmp_path):
  files.replace(tmp_path / 'secret', b'a', 0o600)
  files.replace(tmp_path / 'open', b'a')
  with files.locked(tmp_path / 'locked', mode=0o600):
    pass
  with files.locked(tmp_path / 'shared'):
    pass
  umask = os.umask(0)
  os.umask(umask)
  modes = [(tmp_path / name).stat().st_mode & 0o777
           for name in ('secret', 'open', 'locked', 'shared')]
  assert modes == [0o600, 0o666 & ~umask, 0o600, 0o644 & ~umask]


def test_all_is_appended(tmp_path, monkeypatch):
  """All bytes are appended even if each write takes only three."""
  real = os.write
  monkeypatch.setattr(os, 'write', lambda descriptor, data: real(
      descriptor, data[:3]))
  with files.locked(tmp_path / 'a') as descriptor:
    files.append(descriptor, b'0123456789')
  assert (tmp_path / 'a').read_bytes() == b'0123456789'


def _open_files():
  return set(os.listdir('/dev/fd'))


def _while_waiting(monkeypatch, act):
  """Calls a function once, between the opening of a file and its locking."""
  flock, called = files.portalocker.lock, []

  def act_first(descriptor, how):
    if not called:
      called.append(True)
      act()
    flock(descriptor, how)

  monkeypatch.setattr(files.portalocker, 'lock', act_first)


@pytest.mark.parametrize('act', [os.unlink, lambda path: files.replace(
    path, b'new')])
def test_a_lock_is_on_the_file_that_has_the_name(tmp_path, monkeypatch, act):
  """A lock holds the file that now has the name, and leaves none open."""
  path, before = tmp_path / 'file', _open_files()
  path.write_text('old')
  _while_waiting(monkeypatch, lambda: act(path))
  with files.locked(path) as descriptor:
    os.write(descriptor, b'kept')
    assert len(_open_files()) == len(before) + 1
    with open(path, 'rb') as other, pytest.raises(BlockingIOError):
      fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
  assert path.read_bytes() == b'kept' and len(_open_files()) == len(before)
  with open(path, 'rb') as other:
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.fixture
def synced(monkeypatch):
  """Returns a list of the synced files, by inode and content."""
  calls, fsync = [], os.fsync

  def note(descriptor):
    content = ''
    if not os.path.isdir(f'/dev/fd/{descriptor}'):
      with open(f'/dev/fd/{descriptor}', 'rb') as file:
        content = file.read()
    calls.append((os.fstat(descriptor).st_ino, content))
    fsync(descriptor)

  monkeypatch.setattr(os, 'fsync', note)
  return calls


def test_all_is_on_disk_before_anything_returns(tmp_path, synced):
  before = len(_open_files())
  files.replace(tmp_path / 'a', b'content')
  with files.locked(tmp_path / 'b') as descriptor:
    files.append(descriptor, b'one')
    files.append(descriptor, b'two')
  files.sync_folder(tmp_path)
  inode = lambda path: path.stat().st_ino
  assert synced == [
      (inode(tmp_path / 'a'), b'content'), (inode(tmp_path / 'b'), b'one'),
      (inode(tmp_path / 'b'), b'onetwo'), (inode(tmp_path), '')]
  assert len(_open_files()) == before


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(
    tmp_path, monkeypatch):
  path = tmp_path / 'a'
  files.replace(path, b'old')

  def fail(*_):
    raise OSError('the disk is full')

  monkeypatch.setattr(os, 'fsync', fail)
  with pytest.raises(OSError, match='the disk is full'):
    files.replace(path, b'new')
  assert path.read_bytes() == b'old' and os.listdir(tmp_path) == ['a']


def test_an_open_file_is_read_from_its_first_byte_and_stays_open(tmp_path):
  path = tmp_path / 'a'
  path.write_bytes(b'0123')
  with files.locked(path) as descriptor:
    os.lseek(descriptor, 2, os.SEEK_SET)
    before = len(_open_files())
    assert files.read_all(descriptor) == b'0123'
    assert len(_open_files()) == before
    os.write(descriptor, b'4')
  assert path.read_bytes() == b'01234'
