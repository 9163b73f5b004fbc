"""Files that several processes write to, and that a kill leaves whole."""

from collections.abc import Iterator
import contextlib
import fcntl
import os
import pathlib

Path = str | os.PathLike


@contextlib.contextmanager
def locked(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
  """Opens a file under an exclusive lock; yields its descriptor.

  Args:
    path: the file.
    flags: of `os.open`.
  """
  while True:
    descriptor = os.open(path, flags, 0o644)
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


def replace(path: Path, data: bytes) -> None:
  """Writes a whole file by renaming: a reader sees the old or the new."""
  path = pathlib.Path(path)
  draft = path.with_name(f'.{path.name}.{os.getpid()}')
  try:
    with open(draft, 'wb') as file:
      file.write(data)
      file.flush()
      os.fsync(file.fileno())
    os.replace(draft, path)
  finally:
    draft.unlink(missing_ok=True)


def read_all(descriptor: int) -> bytes:
  """Returns the content of an open file from its first byte."""
  with os.fdopen(os.dup(descriptor), 'rb') as file:
    file.seek(0)
    return file.read()
