"""The rows of a results file: what one is, and how they are kept.

A results file is plain CSV in the long form, one row per setting and metric.
Rows of one setting are appended in one write under a lock, so that shards may
share a file and a killed process leaves at most one torn line behind.
"""

from collections.abc import Callable, Iterable
import csv
import dataclasses
import fcntl
import hashlib
import io
import math
import os
from typing import Any

from dpjax.report import files

Path = files.Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """One measured number and what it takes to know what it means.

  Attributes:
    experiment: name of the experiment; the engine fills it in when blank.
    id: the setting, readable; the engine fills it in when blank.
    seed: seed of the run.
    metric: what was measured, e.g. 'test_accuracy'.
    value: the number.
    n: number of private records the guarantee is about.
    epsilon_requested: what was asked for; inf when not private.
    epsilon: what the event of the run costs; inf when not private.
    epsilon_valid: whether `epsilon` is a proven bound for what really ran, if
      nobody knows its seed. Rows of experiments have public seeds: they are
      measurements, and not private releases.
    delta: the delta at which `epsilon` was computed.
    adjacency: which neighbours, e.g. 'add_or_remove'.
    accountant: which accountant gave `epsilon`, e.g. 'pld'.
    method: algorithm, e.g. 'dp_sgd'.
    dataset: name of the data set.
    wall_s: seconds; the engine fills it in when NaN. Not reproducible, and
      therefore left out of `digest`.
    device: hardware; the engine fills it in when blank.
    jax: version of JAX; the engine fills it in when blank.
    commit: version of the code; the engine fills it in when blank.
    fingerprint: of the random streams and settings that decide on the value
      (`experiments.fingerprints`); the engine fills it in when blank. Blank
      in a file: made by code that had none, and not compared with newer code
      since. Left out of `digest`: it says which code gives the value, and is
      renewed where a comparison shows that newer code gives the same one.
  """
  experiment: str = ''
  id: str = ''
  seed: int
  metric: str
  value: float
  n: int
  epsilon_requested: float
  epsilon: float
  epsilon_valid: bool
  delta: float
  adjacency: str
  accountant: str
  method: str
  dataset: str
  wall_s: float = math.nan
  device: str = ''
  jax: str = ''
  commit: str = ''
  fingerprint: str = ''


COLUMNS = tuple(field.name for field in dataclasses.fields(Row))


def _parse_bool(text: str) -> bool:
  if text not in ('true', 'false'):
    raise ValueError(f'{text!r} is neither true nor false')
  return text == 'true'


def _format_text(value: Any) -> str:
  text = str(value)
  # A line end inside a cell would make a torn line look like a whole one.
  if not text.isprintable():
    raise ValueError(f'a cell must hold printable text, got {text!r}')
  return text


# Shortest text that reads back to the same float, NumPy and JAX scalars too.
_FORMATS: dict[Any, Callable[[Any], str]] = {
    str: _format_text,
    int: lambda value: str(int(value)),
    float: lambda value: repr(float(value)),
    bool: lambda value: 'true' if value else 'false',
}
_PARSERS: dict[Any, Callable[[str], Any]] = {
    str: str, int: int, float: float, bool: _parse_bool}


def _format_row(row: Row) -> list[str]:
  for name in ('experiment', 'id', 'metric'):
    if not getattr(row, name):
      raise ValueError(f'a row must have its {name}, got {row}')
  return [_FORMATS[field.type](getattr(row, field.name))
          for field in dataclasses.fields(Row)]


def _parse_row(cells: list[str]) -> Row:
  if len(cells) != len(COLUMNS):
    raise ValueError(f'{len(cells)} cells instead of {len(COLUMNS)}')
  return Row(**{field.name: _PARSERS[field.type](cell) for field, cell
                in zip(dataclasses.fields(Row), cells, strict=True)})


def _to_csv(lines: Iterable[Iterable[str]]) -> str:
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerows(lines)
  return text.getvalue()


_HEADER = _to_csv([COLUMNS]).encode()


def sort(rows: Iterable[Row]) -> list[Row]:
  """Returns rows in the order of a committed file: by id, then metric."""
  return sorted(rows, key=lambda row: (row.experiment, row.id, row.metric,
                                       _format_row(row)))


def ids(rows: Iterable[Row]) -> frozenset[str]:
  """Returns the ids of the settings that have rows."""
  return frozenset(row.id for row in rows)


def digest(rows: Iterable[Row]) -> str:
  """Returns a sha256 of rows, without order, wall time and fingerprints."""
  lines = [_format_row(dataclasses.replace(row, wall_s=math.nan,
                                           fingerprint=''))[:-1]
           for row in rows]
  return hashlib.sha256(_to_csv(sorted(lines)).encode()).hexdigest()


def _parse(path: Path, data: bytes) -> list[Row]:
  """Returns the rows of whole lines, or says in which line they are not."""
  if not data:
    return []
  if not data.startswith(_HEADER):
    found = data.split(b'\n', 1)[0].decode(errors='replace')[:200]
    raise ValueError(f'{path}: the columns must be {",".join(COLUMNS)}; '
                     f'got {found!r}')
  rows = []
  reader = csv.reader(io.StringIO(data[len(_HEADER):].decode()), strict=True)
  try:
    for cells in reader:
      rows.append(_parse_row(cells))
  except (csv.Error, ValueError) as error:
    raise ValueError(f'{path}:{reader.line_num + 1}: {error}') from error
  return rows


def _whole_size(path: Path, data: bytes) -> int:
  """Returns how many bytes of a file hold whole settings.

  Behind them is the torn line of a killed process. The rows before it that
  may be of the same setting go too, or it would pass for finished.
  """
  size = data.rfind(b'\n') + 1
  if size == len(data):
    return size
  if not size and not _HEADER.startswith(data):
    size = len(data)  # not a torn header but another file: `_parse` says so
  rows = _parse(path, data[:size])
  last = rows[-1].id if rows else ''
  while rows and rows[-1].id == last:
    rows.pop()
    size = data.rfind(b'\n', 0, size - 1) + 1
  return size


def _parse_whole(path: Path, data: bytes) -> list[Row]:
  return _parse(path, data[:_whole_size(path, data)])


def read(path: Path) -> list[Row]:
  """Returns the rows of a file, without those of a torn end.

  Raises:
    FileNotFoundError: there is no such file.
    ValueError: the columns are others, or a line is not a row.
  """
  with open(path, 'rb') as file:
    fcntl.flock(file, fcntl.LOCK_SH)
    return _parse_whole(path, file.read())


def _render(rows: Iterable[Row]) -> bytes:
  return _HEADER + _to_csv(map(_format_row, rows)).encode()


def append(path: Path, rows: Iterable[Row]) -> None:
  """Appends the rows of whole settings: all of them or none.

  Safe for several processes at once. A torn end that a killed process left
  is dropped first.

  Args:
    path: the CSV file; made, with its header, when it is not there.
    rows: the rows; those of one setting together.

  Raises:
    ValueError: a row is not complete, or the file has other columns.
  """
  lines = _to_csv([_format_row(row) for row in rows]).encode()
  flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
  with files.locked(path, flags) as descriptor:
    data = files.read_all(descriptor)
    size = _whole_size(path, data)
    # Other columns must not be mixed in.
    _parse(path, data[:min(size, len(_HEADER))])
    block = lines if size else _HEADER + lines
    if size < len(data):
      os.ftruncate(descriptor, size)
    written = os.write(descriptor, block)
    if written != len(block):  # the disk is full: leave nothing half done
      os.ftruncate(descriptor, size)
      raise OSError(f'{path}: could not write {len(block)} bytes')
    os.fsync(descriptor)


def write_sorted(path: Path, rows: Iterable[Row]) -> None:
  """Replaces a file by these rows, sorted: the form that is committed."""
  files.replace(path, _render(sort(rows)))


def sort_file(path: Path) -> None:
  """Sorts the rows of a file, while others may append to it."""
  with files.locked(path, os.O_RDWR) as descriptor:
    write_sorted(path, _parse_whole(path, files.read_all(descriptor)))


def merge(path: Path, other: Path) -> None:
  """Adds the rows of another file, of settings that have none here yet."""
  with files.locked(path) as descriptor:
    rows = _parse_whole(path, files.read_all(descriptor))
    known = ids(rows)
    write_sorted(path, rows + [row for row in read(other)
                               if row.id not in known])
