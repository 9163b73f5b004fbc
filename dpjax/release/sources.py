"""Records of a release, wherever they are kept: in a file or in memory."""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import hashlib
from typing import Any, Protocol

from dpjax.release import registry
from dpjax.release import tables
from dpjax.release.formats import Format
from dpjax.release.query import Plan
from dpjax.release.query import Query
from dpjax.report import files

Measure = Callable[[Query, Plan], object]
"""Computes the exact, private quantities that a plan needs of the records."""


class Source(Protocol):
  """Records, in whatever form they are kept."""

  @property
  def form(self) -> Format:
    """How numbers and missing values are spelled; public."""

  def opened(self) -> contextlib.AbstractContextManager[
      tuple[str, Measure]]:
    """Opens one fixed version of the records.

    Returns:
      A context manager that gives the SHA-256 of the records, and what measures
      them.
    """


@dataclasses.dataclass(frozen=True)
class File:
  """Records of a CSV or Parquet file.

  Attributes:
    path: of the file.
    form: how the file is written.
  """
  path: str
  form: Format = Format()

  @contextlib.contextmanager
  def opened(self) -> Iterator[tuple[str, Measure]]:
    """Reads the file once: its hash is of the bytes that are measured."""
    with files.snapshot(self.path) as (file, sha256):

      def measure(query: Query, plan: Plan) -> object:
        with contextlib.closing(tables.read(
            self.path, file, *_columns(query, plan), numeric=_numeric(plan),
            form=self.form, gaps=registry.gaps(query))) as fields:
          return plan.measure(fields)

      yield sha256, measure


@dataclasses.dataclass(frozen=True)
class Columns:
  """Records in memory: one column, or the columns of scores and of labels.

  Attributes:
    values: sequences of equal length: NumPy arrays, columns of pandas, polars
      or Arrow, or lists. Without any there is a record for each of `num_rows`.
    num_rows: how many records there are, if there is no column.
    form: how text that stands for numbers is written.
  """
  values: tuple[Any, ...]
  num_rows: int = 0
  form: Format = Format()

  @contextlib.contextmanager
  def opened(self) -> Iterator[tuple[str, Measure]]:
    """Copies the columns once: their hash is of what is measured."""
    for column in self.values:
      if getattr(column, 'ndim', 1) != 1:
        raise ValueError('a column must have one dimension, got '
                         f'{column.ndim}: pass one column, not a table')
    columns = [listed(column) for column in self.values]
    if len({len(column) for column in columns}) > 1:
      raise ValueError('columns must have equal lengths, got '
                       f'{", ".join(str(len(column)) for column in columns)}')
    rows: list[Any] = (list(zip(*columns, strict=True)) if columns
                       else [()] * self.num_rows)
    digest = hashlib.sha256(f'{len(columns)} {len(rows)}\n'.encode())
    for row in rows:
      for field in row:
        digest.update(f'{type(field).__name__} {field!r}\n'.encode(
            errors='surrogatepass'))

    def measure(query: Query, plan: Plan) -> object:
      return plan.measure(tables.of_rows(
          rows, numeric=_numeric(plan), form=self.form,
          gaps=registry.gaps(query)))

    yield digest.hexdigest(), measure


def _columns(query: Query, plan: Plan) -> tuple[Any, ...]:
  """Names of the columns that a plan reads."""
  return {'records': (), 'labels': (query.column, query.label)}.get(
      plan.reads, (query.column,))


def _numeric(plan: Plan) -> bool:
  """Whether the first column that a plan reads is of numbers."""
  return plan.reads in ('numbers', 'labels')


def listed(column: Any) -> list[Any]:
  """Returns the fields of a column as Python values."""
  for name in ('to_pylist', 'to_list', 'tolist'):
    if hasattr(column, name):
      listed = getattr(column, name)()
      return listed if isinstance(listed, list) else [listed]
  return list(column)
