"""Records of a release, wherever they are kept: in a file or in memory."""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import hashlib
import itertools
from typing import Any, Protocol

from dpjax.release import registry
from dpjax.release.query import Plan
from dpjax.release.query import Query
from dpjax.report import files
from dpjax.tables import columns
from dpjax.tables import reader
from dpjax.tables.formats import Format

# Records hashed at a time, which limits the memory for their texts.
_ROWS = 2**12

Measure = Callable[[Query, Plan[Any, Any]], object]
"""Computes the exact, private quantities that a plan needs of the records."""


class Source(Protocol):
  """Records, in whatever form they are kept."""

  @property
  def form(self) -> Format:
    """Returns how numbers and missing values are spelled; public."""

  def opened(self) -> contextlib.AbstractContextManager[
      tuple[str, Measure]]:
    """Opens one fixed version of the records.

    Returns:
      A context manager that gives the SHA-256 of the records, and a function
      that measures them.
    """


@dataclasses.dataclass(frozen=True)
class File:
  """Records of a CSV or Parquet file.

  Attributes:
    path: path of the file.
    form: how the file is written.
  """
  path: str
  form: Format = Format()

  @contextlib.contextmanager
  def opened(self) -> Iterator[tuple[str, Measure]]:
    """Opens a copy, so that hash and measurement are of the same bytes."""
    with files.snapshot(self.path) as (file, sha256):

      def measure(query: Query, plan: Plan[Any, Any]) -> object:
        with contextlib.closing(reader.read(
            self.path, file, *_names(query, plan), numeric=_numeric(plan),
            form=self.form, gaps=registry.gaps(query))) as fields:
          return plan.measure(fields)

      yield sha256, measure


@dataclasses.dataclass(frozen=True)
class Columns:
  """Records in memory: one column, or the columns of scores and of labels.

  Attributes:
    values: sequences of equal length: NumPy arrays, columns of pandas, polars
      or Arrow, or lists. Without any column, records have no fields.
    num_rows: number of records; used only if there is no column.
    form: how numbers are written in columns of text.
  """
  values: tuple[Any, ...]
  num_rows: int = 0
  form: Format = Format()

  @contextlib.contextmanager
  def opened(self) -> Iterator[tuple[str, Measure]]:
    """Copies the columns, so that their hash is of what is measured."""
    fields = [columns.listed(columns.of(column)) for column in self.values]
    if len({len(column) for column in fields}) > 1:
      raise ValueError('columns must have equal lengths, got '
                       f'{", ".join(str(len(column)) for column in fields)}')
    rows: list[Any] = (list(zip(*fields, strict=True)) if fields
                       else [()] * self.num_rows)
    sha256 = _digest(fields, len(rows))

    def measure(query: Query, plan: Plan[Any, Any]) -> object:
      return plan.measure(reader.of_rows(
          rows, numeric=_numeric(plan), form=self.form,
          gaps=registry.gaps(query)))

    yield sha256, measure


def _names(query: Query, plan: Plan[Any, Any]) -> tuple[Any, ...]:
  """Returns the names of the columns that a plan reads."""
  return {'records': (), 'labels': (query.column, query.label)}.get(
      plan.reads, (query.column,))


def _numeric(plan: Plan[Any, Any]) -> bool:
  """Returns whether the first column that a plan reads holds numbers."""
  return plan.reads in ('numbers', 'labels')


def _digest(fields: Sequence[Sequence[Any]], num_rows: int) -> str:
  """Returns the SHA-256 of the types and values of all fields, row by row.

  Ledgers keep this digest. If it changed for the same records, the ledger would
  charge again for an answer that it has stored.
  """
  # The shape comes first: the fields of two columns with one row would
  # otherwise read like those of one column with two rows.
  digest = hashlib.sha256(f'{len(fields)} {num_rows}\n'.encode())
  for start in range(0, num_rows if fields else 0, _ROWS):
    # In a text, repr writes a line break as an escape; so fields stay apart.
    texts = [[f'{type(field).__name__} {field!r}\n'
              for field in column[start:start + _ROWS]] for column in fields]
    digest.update(''.join(itertools.chain.from_iterable(
        zip(*texts, strict=True))).encode(errors='surrogatepass'))
  return digest.hexdigest()
