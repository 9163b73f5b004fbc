"""Numeric columns of public files with public bounds, to test quantiles on.

Each record has one number. Bounds are round numbers of the domain. Numbers
outside the bounds are kept, since the estimators clip. `dpjax.data.files` finds
a file and checks its checksum.
"""

from collections.abc import Iterator
import csv
import dataclasses
import io
import os
import pathlib
import types
from typing import NamedTuple

import numpy as np

from dpjax import errors
from dpjax.data import files


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeriesSpec:
  """The public description of a column.

  Attributes:
    name: key of `SERIES`.
    dataset: name of the folder.
    file: CSV file with a header; without a checksum it is not verified.
    column: name in the header, including blanks.
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


def _of(dataset: str, name: str, sha256: str, source: str, licence: str,
        columns: dict[str, tuple[str, float, float]],
        num_malformed: int = 0) -> Iterator[SeriesSpec]:
  """Yields the specifications of several columns of one file."""
  file = files.FileSpec(name=name, sha256=sha256,
                        alternatives=(f'{name}.gz',))
  for series, (column, lower, upper) in columns.items():
    yield SeriesSpec(
        name=series, dataset=dataset, file=file, column=column, lower=lower,
        upper=upper, num_malformed=num_malformed, source=source,
        licence=licence)


SERIES = types.MappingProxyType({spec.name: spec for spec in (
    *_of('goodreads', 'books.csv',
         '38608249125de795a50a352c8cba7ccb4ee79d6a379628f6d100921faa6de14e',
         'kaggle.com/jealousleopard/goodreadsbooks, a copy of which is '
         'data/books.csv of github.com/NynsenFaber/DP_CC_quantiles', 'CC0',
         {'ratings': ('average_rating', 0.0, 5.0),
          'pages': ('  num_pages', 0.0, 7000.0)}, num_malformed=4),
    # Persons of New Mexico, Nebraska, West Virginia, Idaho, Hawaii, New
    # Hampshire, Maine, Rhode Island, Montana, Delaware, the Dakotas, Vermont
    # and Wyoming. Losses are negative, outside the bounds.
    *_of('acs_pums_2018', 'persons.csv',
         'da07d653ed1e8eb8a7180245f1a8f1f9d2e1391bf36e7f5011cf673104c0c9e3',
         'the person records csv_p<state>.zip of 14 states in the 1-year '
         'public use microdata of the American Community Survey 2018, '
         'www2.census.gov, one below the other', 'public domain',
         {'earnings': ('PINCP', 0.0, 1.1e6),
          'dividends': ('INTP', 0.0, 1e5)}),
    *_of('cps_asec_2021', 'pppub21.csv', '',
         'the person records of asecpub21csv.zip, Annual Social and Economic '
         'Supplement 2021 of the Current Population Survey, www2.census.gov',
         'public domain',
         {'cps_earnings': ('PTOTVAL', 0.0, 1.1e6),
          'cps_dividends': ('DIV_VAL', 0.0, 1e5)}))})
"""Specification of each series by its name; read-only."""


def load(name: str, *, data_dir: str | os.PathLike | None = None) -> Series:
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


def read(path: str | os.PathLike, column: str, *, lower: float,
         upper: float) -> Series:
  """Reads a column of a user's CSV file, plain or packed with gzip."""
  errors.check_range(lower, upper)
  path = pathlib.Path(path)
  return Series(parse(files.read_unverified(path), column, file=path.name),
                lower, upper)


def parse(content: bytes, column: str, *, file: str,
          num_malformed: int = 0) -> np.ndarray:
  """Returns the numbers [n] float64 of a column; blank fields are left out.

  Args:
    content: CSV with a header, UTF-8 with or without byte order mark.
    column: name in the header.
    file: file name for messages.
    num_malformed: expected number of lines whose number of fields is not that
      of the header.

  Raises:
    ValueError: a field is not a finite number (the message names file and
      line), the number of malformed lines is not as expected, the column does
      not exist or occurs twice, or it has no number.
  """
  reader = csv.reader(io.StringIO(content.decode('utf-8-sig'), newline=''))
  header = next(reader, [])
  if header.count(column) != 1:
    raise ValueError(f'{file} must have one column {column!r}, has '
                     f'{", ".join(map(repr, header)) or "no header"}')
  place, malformed, values = header.index(column), 0, []
  for row in reader:
    if len(row) != len(header):
      malformed += bool(row)
    elif row[place].strip():
      values.append(_number(row[place], f'{file} line {reader.line_num}'))
  if malformed != num_malformed:
    raise ValueError(f'{file}: expected {num_malformed} lines of other than '
                     f'{len(header)} fields, got {malformed}')
  if not values:
    raise ValueError(f'{file} has no number in column {column!r}')
  return np.array(values, np.float64)


def _number(text: str, where: str) -> float:
  try:
    value = float(text)
  except ValueError:
    value = np.nan
  if not np.isfinite(value):
    raise ValueError(f'{where}: expected a finite number, got {text!r}')
  return value
