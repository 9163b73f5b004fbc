"""Files: modes, whole appends, and a copy with the hash of its own bytes."""

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
  umask = os.umask(0)
  os.umask(umask)
  modes = [(tmp_path / name).stat().st_mode & 0o777
           for name in ('secret', 'open', 'locked')]
  assert modes == [0o600, 0o666 & ~umask, 0o600]


def test_all_is_appended(tmp_path, monkeypatch):
  """Even if the system takes three bytes at a time."""
  real = os.write
  monkeypatch.setattr(os, 'write', lambda descriptor, data: real(
      descriptor, data[:3]))
  with files.locked(tmp_path / 'a') as descriptor:
    files.append(descriptor, b'0123456789')
  assert (tmp_path / 'a').read_bytes() == b'0123456789'
