"""File operations that are safe against concurrent writers and crashes."""

from collections.abc import Iterator
import contextlib
import hashlib
import os
import pathlib
import tempfile
from typing import IO

import portalocker

Path = str | os.PathLike[str]

# A snapshot of up to this many bytes stays in memory.
_IN_MEMORY = 2**26
_BLOCK = 2**20


@contextlib.contextmanager
def locked(path: Path, flags: int = os.O_RDWR | os.O_CREAT,
           mode: int = 0o644) -> Iterator[int]:
  """Opens a file under an exclusive lock; yields its descriptor.

  The operating system releases the lock when the process ends, even if killed.

  Args:
    path: the file.
    flags: flags of `os.open`.
    mode: permissions of the file if it is created.
  """
  while True:
    descriptor = os.open(path, flags, mode)
    try:
      portalocker.lock(descriptor, portalocker.LockFlags.EXCLUSIVE)
      # Another process may have renamed a new file over this one while we
      # waited. We would then hold the old file, and writes would be lost.
      try:
        current = os.path.samestat(os.fstat(descriptor), os.stat(path))
      except FileNotFoundError:
        current = False
      if current:
        yield descriptor
        return
    finally:
      os.close(descriptor)  # releases the lock


def replace(path: Path, data: bytes, mode: int = 0o666) -> None:
  """Replaces a file atomically: a reader sees the old content or the new.

  Args:
    path: the file.
    data: its new content.
    mode: permissions of the file, before the umask is applied.
  """
  with replacing(path, mode) as file:
    file.write(data)


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
  """Yields a new file, which replaces another atomically when it is whole.

  If the block raises, the old file stays and the new one is removed.

  Args:
    path: the file.
    mode: permissions of the file, before the umask is applied.
  """
  path = pathlib.Path(path)
  temporary = path.with_name(f'.{path.name}.{os.getpid()}')
  # A leftover of this name may have another owner or mode, or be a link.
  temporary.unlink(missing_ok=True)
  try:
    with open(temporary, 'xb', opener=lambda name, flags: os.open(
        name, flags, mode)) as file:
      yield file
      file.flush()
      os.fsync(file.fileno())
    # The content is on disk, so a crash leaves the old file or the new.
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
  """Flushes a folder to disk, so that created and renamed files survive."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def append(descriptor: int, data: bytes) -> None:
  """Writes `data` at the current position and flushes it to disk."""
  # A system call may write a part of the data only.
  while data:
    data = data[os.write(descriptor, data):]
  os.fsync(descriptor)


@contextlib.contextmanager
def snapshot(path: Path) -> Iterator[tuple[IO[bytes], str]]:
  """Yields a copy of a file and the SHA-256 digest of exactly these bytes.

  The file is read once, so later changes affect neither copy nor digest. The
  copy has no name and disappears when the process ends.
  """
  digest = hashlib.sha256()
  with tempfile.SpooledTemporaryFile(_IN_MEMORY) as copy:
    with open(path, 'rb') as file:
      while block := file.read(_BLOCK):
        digest.update(block)
        copy.write(block)
    copy.seek(0)
    yield copy, digest.hexdigest()


def read_all(descriptor: int) -> bytes:
  """Returns the content of an open file from its first byte."""
  with os.fdopen(os.dup(descriptor), 'rb') as file:
    file.seek(0)
    return file.read()
