"""Files that several processes write to, and that a kill leaves whole."""

from collections.abc import Iterator
import contextlib
import fcntl
import hashlib
import os
import pathlib
import tempfile
from typing import BinaryIO

Path = str | os.PathLike

# A snapshot up to this size stays in memory.
_IN_MEMORY = 2**26
_BLOCK = 2**20


@contextlib.contextmanager
def locked(path: Path, flags: int = os.O_RDWR | os.O_CREAT,
           mode: int = 0o644) -> Iterator[int]:
  """Opens a file under an exclusive lock; yields its descriptor.

  The system gives the lock back when its process ends, however it ends.

  Args:
    path: the file.
    flags: of `os.open`.
    mode: permissions of a file that is made.
  """
  while True:
    descriptor = os.open(path, flags, mode)
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX)
      # Another process may have renamed a new file over this one while we
      # waited: what we hold is then the old file, and writes would be lost.
      try:
        fresh = os.path.samestat(os.fstat(descriptor), os.stat(path))
      except FileNotFoundError:
        fresh = False
      if fresh:
        yield descriptor
        return
    finally:
      os.close(descriptor)  # releases the lock


def replace(path: Path, data: bytes, mode: int = 0o666) -> None:
  """Writes a whole file by renaming: a reader sees the old or the new.

  Args:
    path: the file.
    data: its content.
    mode: permissions of the file, less those that the umask takes.
  """
  path = pathlib.Path(path)
  draft = path.with_name(f'.{path.name}.{os.getpid()}')
  # What is there has its own owner and mode, or leads somewhere else.
  draft.unlink(missing_ok=True)
  try:
    with open(draft, 'xb', opener=lambda name, flags: os.open(
        name, flags, mode)) as file:
      file.write(data)
      file.flush()
      os.fsync(file.fileno())
    os.replace(draft, path)
  finally:
    draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
  """Puts on disk which files a folder has, for what was made or renamed."""
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def append(descriptor: int, data: bytes) -> None:
  """Writes all of `data` where the file stands; on disk when this returns."""
  while data:
    data = data[os.write(descriptor, data):]
  os.fsync(descriptor)


@contextlib.contextmanager
def snapshot(path: Path) -> Iterator[tuple[BinaryIO, str]]:
  """Yields a copy of a file, and the SHA-256 of the very bytes of the copy.

  The file is read once, so that whoever changes it meanwhile changes neither.
  The copy has no name: it is gone when its process ends.
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
