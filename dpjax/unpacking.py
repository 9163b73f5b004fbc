"""Packed files, unpacked in constant memory and up to a stated size.

Gzip packs zeros by a factor of 1000, so that a file of a megabyte may hold a
gigabyte. No table of distinct records comes near that: text and numbers shrink
by a factor of 3 to 30. So a file may unpack to 256 MiB, whatever its size, and
to 100 times its size if that is more. A table that unpacks to more is read once
its owner has unpacked it: files that are not packed have no bound.
"""

import gzip
import io
from typing import BinaryIO

LEAST_LIMIT = 2**28
RATIO_LIMIT = 100

_BLOCK = 2**16


class ExpandedError(ValueError):
  """Reports a packed file that unpacks to more than `limit` allows."""


def limit(size: int) -> int:
  """Returns the most bytes that a packed file of `size` bytes may unpack to."""
  return max(LEAST_LIMIT, RATIO_LIMIT * size)


def check(unpacked: int, size: int) -> None:
  """Refuses a packed file of `size` bytes that unpacks to too much.

  Raises:
    ExpandedError: if `unpacked`, in bytes, is above the limit.
  """
  if unpacked > limit(size):
    raise ExpandedError(
        f'unpacks to more than {limit(size)} bytes, which is {RATIO_LIMIT} '
        f'times its size and at least {LEAST_LIMIT // 2**20} MiB: unpack it '
        'first, if that is meant')


def gunzip(file: BinaryIO) -> io.BufferedReader:
  """Opens the content of a gzip file, for reading from its start to its end.

  Args:
    file: open and seekable; it is left open.

  Returns:
    A file that unpacks while it is read. Reading raises what `gzip` raises for
    a damaged file, and `ExpandedError` where the content exceeds the limit.
  """
  start = file.tell()
  file.seek(0, io.SEEK_END)
  size = file.tell() - start
  file.seek(start)
  return io.BufferedReader(_Bounded(gzip.GzipFile(fileobj=file, mode='rb'),
                                    size), _BLOCK)


class _Bounded(io.RawIOBase):
  """Bytes of a file until there are more of them than its size allows."""

  def __init__(self, file: BinaryIO, size: int):
    super().__init__()
    self._file, self._size, self._unpacked = file, size, 0

  def readable(self) -> bool:
    return True

  def readinto(self, buffer) -> int:
    content = self._file.read(len(buffer))
    self._unpacked += len(content)
    check(self._unpacked, self._size)
    buffer[:len(content)] = content
    return len(content)
