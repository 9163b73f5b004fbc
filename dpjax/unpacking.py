"""Unpacks compressed files in constant memory, up to a size limit.

Gzip compresses zeros by a factor of 1000, so a file of a megabyte may hold a
gigabyte. Tables of distinct records compress far less: text and numbers shrink
by a factor of 3 to 30. So a file may unpack to 256 MiB whatever its size, and
to 100 times its size if that is more. The owner of a table that exceeds this
limit can unpack it first: the limit does not apply to uncompressed files.
"""

import gzip
import io
from typing import Any, IO

LEAST_LIMIT = 2**28
RATIO_LIMIT = 100

_BLOCK = 2**16


class ExpandedError(ValueError):
  """Raised for a compressed file whose content exceeds its `limit`."""


def limit(size: int) -> int:
  """Returns how many bytes a compressed file of `size` bytes may unpack to."""
  return max(LEAST_LIMIT, RATIO_LIMIT * size)


def check(unpacked: int, size: int) -> None:
  """Checks that a compressed file of `size` bytes stays within its limit.

  Args:
    unpacked: bytes unpacked so far.
    size: size of the compressed file in bytes.

  Raises:
    ExpandedError: if `unpacked` is above the limit.
  """
  if unpacked > limit(size):
    raise ExpandedError(
        f'unpacks to more than {limit(size)} bytes, which is {RATIO_LIMIT} '
        f'times its size and at least {LEAST_LIMIT // 2**20} MiB: unpack it '
        'first, if that is intended')


def gunzip(file: IO[bytes]) -> io.BufferedReader:
  """Opens a gzip file for reading its content from start to end.

  Args:
    file: open and seekable; it is left open.

  Returns:
    A file that unpacks while it is read. Reading raises the errors of `gzip`
    for a damaged file, and `ExpandedError` if the content exceeds the limit.
  """
  start = file.tell()
  file.seek(0, io.SEEK_END)
  size = file.tell() - start
  file.seek(start)
  return io.BufferedReader(_Bounded(gzip.GzipFile(fileobj=file, mode='rb'),
                                    size), _BLOCK)


class _Bounded(io.RawIOBase):
  """Raw stream that raises once its file yields more than its size allows."""

  def __init__(self, file: gzip.GzipFile, size: int):
    super().__init__()
    self._file, self._size, self._unpacked = file, size, 0

  def readable(self) -> bool:
    return True

  def readinto(self, buffer: Any) -> int:
    content = self._file.read(len(buffer))
    self._unpacked += len(content)
    # Checked for each buffer, so the excess is at most one buffer.
    check(self._unpacked, self._size)
    buffer[:len(content)] = content
    return len(content)
