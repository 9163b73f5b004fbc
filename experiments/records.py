"""Result rows, and the CSV files that store them.

A results file is plain CSV in long form, with one row per setting and metric.
The rows of one setting are appended in one write under a lock. Several shards
can therefore share a file, and a killed process leaves at most one torn
(incomplete) line behind.
"""

from collections.abc import Callable, Iterable
import csv
import dataclasses
import hashlib
import io
import math
import os
from typing import Any

import portalocker

from dpjax.report import files

Path = files.Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """One measured number with its setting, guarantee and origin.

  Fields marked (filled in) are set by the sweep engine if blank or NaN.

  Attributes:
    experiment: name of the experiment (filled in).
    id: readable identifier of the setting (filled in).
    seed: seed of the run.
    metric: name of the metric, e.g. 'test_accuracy'.
    value: the measured number.
    n: number of private records that the guarantee protects.
    epsilon_requested: epsilon that was asked for; inf if not private.
    epsilon: privacy cost of the run's mechanism; inf if not private.
    epsilon_valid: whether `epsilon` is a proven bound for the mechanism that
      ran, provided that its seed is secret. Seeds of experiments are public, so
      their rows are measurements, not private releases.
    delta: the delta at which `epsilon` was computed.
    adjacency: the neighbouring relation, e.g. 'add_or_remove'.
    accountant: the accountant that computed `epsilon`, e.g. 'pld'.
    method: algorithm, e.g. 'dp_sgd'.
    dataset: name of the data set.
    wall_s: run time in seconds (filled in). Not reproducible, so not part of
      `digest`.
    device: hardware (filled in).
    jax: version of JAX (filled in).
    commit: version of the code (filled in).
    fingerprint: fingerprint of the random streams and settings that determine
      the value (`experiments.fingerprints`; filled in). It is blank in a file
      if the code that made the row had no fingerprints and the row has not been
      compared with newer code. It is not part of `digest`, because it is
      renewed when newer code is shown to give the same value.
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
  """Returns whether a cell says 'true'; raises unless it is 'true' or 'false'.
  """
  if text not in ('true', 'false'):
    raise ValueError(f'{text!r} is neither true nor false')
  return text == 'true'


def _format_text(value: Any) -> str:
  """Returns the text of a cell, which must be printable."""
  text = str(value)
  # A line end inside a cell would make a torn line look like a whole one.
  if not text.isprintable():
    raise ValueError(f'a cell must hold printable text, got {text!r}')
  return text


# repr gives the shortest text that reads back as the same float. The
# conversions also accept NumPy and JAX scalars.
_FORMATS: dict[Any, Callable[[Any], str]] = {
    str: _format_text,
    int: lambda value: str(int(value)),
    float: lambda value: repr(float(value)),
    bool: lambda value: 'true' if value else 'false',
}
_PARSERS: dict[Any, Callable[[str], Any]] = {
    str: str, int: int, float: float, bool: _parse_bool}


def _format_row(row: Row) -> list[str]:
  """Returns the cells of a row; raises if its names are blank."""
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
  """Returns rows in the order of committed files: experiment, id, metric."""
  return sorted(rows, key=lambda row: (row.experiment, row.id, row.metric,
                                       _format_row(row)))


def ids(rows: Iterable[Row]) -> frozenset[str]:
  """Returns the ids of the settings that have rows."""
  return frozenset(row.id for row in rows)


def digest(rows: Iterable[Row]) -> str:
  """Returns a SHA-256 digest of rows, apart from order, time and fingerprint.
  """
  lines = [_format_row(dataclasses.replace(row, wall_s=math.nan,
                                           fingerprint=''))[:-1]
           for row in rows]
  return hashlib.sha256(_to_csv(sorted(lines)).encode()).hexdigest()


def _parse(path: Path, data: bytes) -> list[Row]:
  """Parses complete lines; raises with the number of the first bad line."""
  if not data:
    return []
  if not data.startswith(_HEADER):
    header = data.split(b'\n', 1)[0].decode(errors='replace')[:200]
    raise ValueError(f'{path}: the columns must be {",".join(COLUMNS)}; '
                     f'got {header!r}')
  rows = []
  reader = csv.reader(io.StringIO(data[len(_HEADER):].decode()), strict=True)
  try:
    for cells in reader:
      rows.append(_parse_row(cells))
  except (csv.Error, ValueError) as error:
    raise ValueError(f'{path}:{reader.line_num + 1}: {error}') from error
  return rows


def _whole_size(path: Path, data: bytes) -> int:
  """Returns how many bytes at the start of a file hold complete settings.

  A killed process leaves a torn line at the end. The rows before it may belong
  to the same setting, so they are dropped too; otherwise that setting would
  count as finished.
  """
  size = data.rfind(b'\n') + 1
  if size == len(data):
    return size
  if not size and not _HEADER.startswith(data):
    size = len(data)  # not a torn header but another file: `_parse` rejects it
  rows = _parse(path, data[:size])
  last = rows[-1].id if rows else ''
  while rows and rows[-1].id == last:
    rows.pop()
    size = data.rfind(b'\n', 0, size - 1) + 1
  return size


def _parse_whole(path: Path, data: bytes) -> list[Row]:
  """Parses the rows of complete settings."""
  return _parse(path, data[:_whole_size(path, data)])


def read(path: Path) -> list[Row]:
  """Returns the rows of a file, without a torn end.

  Raises:
    FileNotFoundError: if there is no such file.
    ValueError: if the file has other columns or a line is not a row.
  """
  with open(path, 'rb') as file:
    portalocker.lock(file, portalocker.LockFlags.SHARED)
    return _parse_whole(path, file.read())


def _render(rows: Iterable[Row]) -> bytes:
  """Returns a file's content: the header and these rows."""
  return _HEADER + _to_csv(map(_format_row, rows)).encode()


def append(path: Path, rows: Iterable[Row]) -> None:
  """Appends the rows of complete settings, all of them or none.

  Several processes may append at the same time. A torn end that a killed
  process left is removed first.

  Args:
    path: the CSV file; created with its header if it is missing.
    rows: the rows; those of one setting must be adjacent.

  Raises:
    ValueError: if a row is not complete or the file has other columns.
    OSError: if the disk is full.
  """
  lines = _to_csv([_format_row(row) for row in rows]).encode()
  flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
  with files.locked(path, flags) as descriptor:
    data = files.read_all(descriptor)
    size = _whole_size(path, data)
    # Raises if the file has other columns, which must not be mixed.
    _parse(path, data[:min(size, len(_HEADER))])
    block = lines if size else _HEADER + lines
    if size < len(data):
      os.ftruncate(descriptor, size)
    written = os.write(descriptor, block)
    if written != len(block):  # the disk is full: undo the partial write
      os.ftruncate(descriptor, size)
      raise OSError(f'{path}: could not write {len(block)} bytes')
    os.fsync(descriptor)


def write_sorted(path: Path, rows: Iterable[Row]) -> None:
  """Replaces a file by these rows in sorted order, the form committed to git.
  """
  files.replace(path, _render(sort(rows)))


def sort_file(path: Path) -> None:
  """Sorts the rows of a file; other processes may append at the same time."""
  with files.locked(path, os.O_RDWR) as descriptor:
    write_sorted(path, _parse_whole(path, files.read_all(descriptor)))


def merge(path: Path, other: Path) -> None:
  """Adds the rows of another file whose settings have no rows here yet."""
  with files.locked(path) as descriptor:
    rows = _parse_whole(path, files.read_all(descriptor))
    present = ids(rows)
    write_sorted(path, rows + [row for row in read(other)
                               if row.id not in present])
