"""Numeric columns of public files with public bounds, to test quantiles on.

Each record has one number. Bounds are round numbers of the domain. Numbers
outside the bounds are kept, since the estimators clip.
"""

from collections.abc import Iterator
import dataclasses
import io
import os
import types
from typing import NamedTuple

import numpy as np

from dpjax import errors
from dpjax.data import files
from dpjax.tables import columns
from dpjax.tables import lines
from dpjax.tables import reader
from dpjax.tables.formats import Format


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeriesSpec:
  """The public description of a column.

  Attributes:
    name: key of `SERIES`.
    dataset: name of the folder.
    file: CSV file with a header; without a checksum it is not verified.
    column: name in the header, without blanks at its ends.
    lower: public lower bound.
    upper: public upper bound.
    num_malformed: number of lines with more or fewer fields than the header;
      they are left out.
    source: where to get the file, in words.
    licence: licence of the data.
  """
  name: str
  dataset: str
  file: files.FileSpec
  column: str
  lower: float
  upper: float
  num_malformed: int = 0
  source: str
  licence: str


class Series(NamedTuple):
  """A numeric column with public bounds.

  Attributes:
    values: numbers [n] float64 in the order of the file.
    lower: public lower bound.
    upper: public upper bound.
  """
  values: np.ndarray
  lower: float
  upper: float


def _specs(dataset: str, name: str, sha256: str, source: str, licence: str,
           fields: dict[str, tuple[str, float, float]],
           num_malformed: int = 0) -> Iterator[SeriesSpec]:
  """Yields the specifications of several columns of one file."""
  file = files.FileSpec(name=name, sha256=sha256,
                        alternatives=(f'{name}.gz',))
  for series, (column, lower, upper) in fields.items():
    yield SeriesSpec(
        name=series, dataset=dataset, file=file, column=column, lower=lower,
        upper=upper, num_malformed=num_malformed, source=source,
        licence=licence)


SERIES = types.MappingProxyType({spec.name: spec for spec in (
    *_specs(
        'goodreads', 'books.csv',
        '38608249125de795a50a352c8cba7ccb4ee79d6a379628f6d100921faa6de14e',
        'kaggle.com/jealousleopard/goodreadsbooks, a copy of which is '
        'data/books.csv of github.com/NynsenFaber/DP_CC_quantiles', 'CC0',
        {'ratings': ('average_rating', 0.0, 5.0),
         'pages': ('num_pages', 0.0, 7000.0)}, num_malformed=4),
    # Persons of New Mexico, Nebraska, West Virginia, Idaho, Hawaii, New
    # Hampshire, Maine, Rhode Island, Montana, Delaware, the Dakotas, Vermont
    # and Wyoming. Losses are negative, outside the bounds.
    *_specs(
        'acs_pums_2018', 'persons.csv',
        'da07d653ed1e8eb8a7180245f1a8f1f9d2e1391bf36e7f5011cf673104c0c9e3',
        'the person records csv_p<state>.zip of 14 states in the 1-year '
        'public use microdata of the American Community Survey 2018, '
        'www2.census.gov, one below the other', 'public domain',
        {'earnings': ('PINCP', 0.0, 1.1e6),
         'dividends': ('INTP', 0.0, 1e5)}),
    *_specs(
        'cps_asec_2021', 'pppub21.csv', '',
        'the person records of asecpub21csv.zip, Annual Social and Economic '
        'Supplement 2021 of the Current Population Survey, www2.census.gov',
        'public domain',
        {'cps_earnings': ('PTOTVAL', 0.0, 1.1e6),
         'cps_dividends': ('DIV_VAL', 0.0, 1e5)}))})
"""Specification of each series by its name; read-only."""


def load(name: str, *,
         data_dir: str | os.PathLike[str] | None = None) -> Series:
  """Reads a series by name.

  Args:
    name: key of `SERIES`.
    data_dir: data folder; default $DPJAX_DATA_DIR.

  Raises:
    ValueError: the name is unknown, or the file is not the original.
    FileNotFoundError: the file is missing; the message says where to get it.
  """
  spec = SERIES[errors.check_choice('series', name, tuple(SERIES))]
  if spec.file.sha256:
    content = files.read(spec.file, spec.dataset, source=spec.source,
                         data_dir=data_dir)
  else:
    path = files.find(spec.file, spec.dataset, data_dir=data_dir)
    if path is None:
      raise files.not_found(spec.dataset, spec.file.name, source=spec.source,
                            data_dir=data_dir)
    content = files.read_unverified(path)
  values = parse(content, spec.column, file=spec.file.name,
                 num_malformed=spec.num_malformed)
  return Series(values, spec.lower, spec.upper)


def read(path: str | os.PathLike[str], column: str, *, lower: float,
         upper: float, form: Format = Format()) -> Series:
  """Reads a column of a user's file; missing numbers are left out.

  Infinite numbers, and those too large for float64, are replaced by a bound.

  Args:
    path: path of a file that `tables.reader` reads.
    column: name in the header.
    lower: public lower bound.
    upper: public upper bound.
    form: how the file is written.

  Raises:
    ValueError: a bound is not valid, the file cannot be read as declared, or
      the column has no number.
  """
  errors.check_range(lower, upper)
  values = reader.table(path, form).numbers(column)
  values = _present(values, str(path), column)
  # An infinity gets the bound that an estimator would clip it to.
  return Series(np.where(np.isinf(values), np.clip(values, lower, upper),
                         values), lower, upper)


def parse(content: bytes, column: str, *, file: str,
          num_malformed: int = 0) -> np.ndarray:
  """Returns the numbers [n] float64 of a column; blank fields are left out.

  Args:
    content: CSV with a header, UTF-8 with or without byte order mark.
    column: name in the header.
    file: file name for messages.
    num_malformed: see `SeriesSpec`.

  Raises:
    ValueError: a field is not a number, the number of malformed lines is not as
      expected, or the column has no number, does not exist or occurs twice.
  """
  # Malformed lines are read as None, to be counted; and only an empty field
  # is a missing number.
  form = Format(bad_lines='missing', missing_tokens=())
  rows = lines.records(file, io.BytesIO(content), form,
                       strict=False)
  header = lines.header(file, rows)
  place = reader.index(file, column, header)
  records = list(lines.complete(file, rows, len(header), form))
  malformed = sum(row is None for _, row in records)
  # Another number of them means another version of the published file.
  if malformed != num_malformed:
    raise ValueError(f'{file}: expected {num_malformed} lines with more or '
                     f'fewer than {len(header)} fields, got {malformed}')
  fields = [(number, row[place]) for number, row in records if row is not None]
  values = columns.reals(
      [text for _, text in fields], form, gaps=True,
      where=lambda record: f'{file} line {fields[record][0]}')
  return _present(values, file, column)


def _present(values: np.ndarray, file: str, column: str) -> np.ndarray:
  """Returns the numbers that are not missing; there must be one."""
  present = values[~np.isnan(values)]
  if not present.size:
    raise ValueError(f'{file} has no number in column {column!r}')
  return present
