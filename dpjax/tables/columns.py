"""Columns of a table: distinct values, and numbers with their missing ones.

A column is an Arrow array, a NumPy array or a list. Its fields are text, which
`formats` explains, or values: numbers, None or NaN for a missing one.
"""

from collections.abc import Callable, Iterator
import datetime
import numbers
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dpjax.tables import arrow
from dpjax.tables import decimals
from dpjax.tables import formats
from dpjax.tables.formats import FileError
from dpjax.tables.formats import Format

# An Arrow array is known by its method `dictionary_encode`: its type cannot be
# named here, because pyarrow is optional.
Column: TypeAlias = Any


_NO_RULE = 'a number is missing, and no rule says how it is treated'


class Distinct(NamedTuple):
  """The texts of a column.

  Attributes:
    texts: the texts that occur, some of them perhaps more than once; '' for a
      missing value.
    codes: index of the text of each record, [n] integers.
  """
  texts: list[str]
  codes: np.ndarray


def of(values: Any) -> Column:
  """Returns a column of a data frame, an array or a sequence as a `Column`.

  Raises:
    ValueError: if it has more than one dimension, or times in units below a
      microsecond.
  """
  if getattr(values, 'ndim', 1) != 1:
    raise ValueError('a column must have one dimension, got '
                     f'{values.ndim}: pass one column, not a table')
  dtype = getattr(values, 'dtype', None)
  if isinstance(values, np.ndarray) and values.dtype.kind in 'mM' and (
      np.datetime_data(values.dtype)[0] in ('ns', 'ps', 'fs', 'as')):
    # NumPy lists these as integers, which would count as numbers.
    raise ValueError(f'a column of {dtype} is neither text nor numeric: '
                     'convert it to days or seconds')
  if hasattr(values, 'dictionary_encode') or isinstance(values, np.ndarray):
    return values
  if isinstance(dtype, np.dtype) and dtype.kind in 'biuf':  # pandas, JAX
    return np.asarray(values)
  return listed(values)


def listed(column: Any) -> list[Any]:
  """Returns the fields of a column as Python values."""
  if hasattr(column, 'dictionary_encode'):
    return arrow.listed(column)
  for name in ('to_list', 'tolist'):
    if hasattr(column, name):
      fields = getattr(column, name)()
      return fields if isinstance(fields, list) else [fields]
  return list(column)


def distinct(column: Column) -> tuple[list[Any], np.ndarray]:
  """Returns a column's distinct values, and each record's index into them."""
  if hasattr(column, 'dictionary_encode'):
    return arrow.distinct(column)
  fields = listed(column)
  if set(map(type, fields)) != {str}:
    # Types count, too: 1, 1.0 and True are equal, but differ as text.
    fields = [(type(field), _hashable(field)) for field in fields]
  places = {field: place for place, field in enumerate(dict.fromkeys(fields))}
  codes = np.fromiter(map(places.__getitem__, fields), np.int64, len(fields))
  return [field[1] if isinstance(field, tuple) else field
          for field in places], codes


def texts(column: Column) -> Distinct:
  """Returns the texts of a column; numbers are written as Python writes them.
  """
  values, codes = distinct(column)
  return Distinct([
      '' if is_missing(field) else str(field).strip() for field in values],
                  codes)


def reals(column: Column, form: Format, *, gaps: bool,
          where: Callable[[int], str]) -> np.ndarray:
  """Returns the numbers of a column as float64, NaN for missing ones.

  Args:
    column: the column.
    form: how numbers are written in text.
    gaps: whether a number may be missing.
    where: from the index of a record to words for error messages.

  Raises:
    FileError: for a field that is not a number, see `formats.REFUSALS`.
  """
  values = _typed(column, form)
  if values is None:
    fields, codes = distinct(column)
    parsed = np.zeros(len(fields))
    faults: dict[int, FileError] = {}
    for place, field in enumerate(fields):
      try:
        parsed[place] = _real(field, form)
      except FileError as error:
        faults[place] = error
    is_faulty = np.isin(codes, list(faults))
    if is_faulty.any():
      record = int(is_faulty.argmax())
      fault = faults[int(codes[record])]
      raise FileError(fault.reason, f'{where(record)}: {fault.fault}')
    values = parsed[codes]
  if not gaps and np.isnan(values).any():
    record = int(np.isnan(values).argmax())
    raise FileError('missing', f'{where(record)}: {_NO_RULE}')
  return values


def number(field: object, form: Format, *, gaps: bool
           ) -> decimals.Decimal | None:
  """Returns a field as an exact number; None if it is missing.

  Args:
    field: text, a number, or a missing value.
    form: how numbers are written in text.
    gaps: whether a number may be missing.

  Raises:
    FileError: if it is not a number, see `formats.REFUSALS`.
  """
  if isinstance(field, str):
    field = field.strip()
    missing = form.is_missing(field)
    value = None if missing else form.number(field)
  elif type(field) in (float, int):
    value = decimals.number(field)
    missing = value is None  # Tables of floats spell a missing number as NaN.
  else:  # Lists and other objects are not numbers.
    missing = is_missing(field)
    value = None
    if isinstance(field, numbers.Number) and not missing:
      value = decimals.number(field)
    elif isinstance(field, datetime.date) and not missing:
      value = form.days(field)
  if value is None and not missing and form.unparsed == 'refuse':
    shown = field if isinstance(field, str) else repr(field)
    raise FileError('number', f'{formats.shown(shown)} is not a number'
                    f'{formats.advice(shown)}')
  if value is None and not gaps:
    raise FileError('missing', _NO_RULE)
  return value


def exact(column: Column, form: Format, *, gaps: bool
          ) -> Iterator[decimals.Decimal | None]:
  """Returns the exact numbers of an Arrow column of text, as `number` does."""
  fields, codes = distinct(column)
  # A number such as -1 may be declared to mean a missing one.
  tokens = {'', *form.missing_tokens}
  simple = arrow.simple(fields, form)
  values = [decimals.Decimal(field) if plain and field not in tokens else
            number(field, form, gaps=gaps)
            for field, plain in zip(fields, simple, strict=True)]
  return map(values.__getitem__, codes.tolist())


def is_missing(field: object) -> bool:
  """Returns whether a value is None, NaN, or pandas' mark of a missing one."""
  if isinstance(field, decimals.Decimal):
    return field.is_nan()
  # Types of pandas are known by name, so that it need not be imported.
  return field is None or type(field).__name__ in ('NAType', 'NaTType') or (
      isinstance(field, numbers.Number) and field != field)


def _hashable(field: Any) -> Any:
  try:
    hash(field)
  except TypeError:
    return repr(field)
  return field


def _typed(column: Column, form: Format) -> np.ndarray | None:
  """Returns a column of numbers without a look at each field, or None."""
  if hasattr(column, 'dictionary_encode'):
    return arrow.numbers(column, form)
  if isinstance(column, np.ndarray) and column.dtype.kind in 'biuf':
    return column.astype(np.float64)
  return None


def _real(field: object, form: Format) -> float:
  """Returns a field as float64, NaN if it is missing; see `number`."""
  value = number(field, form, gaps=True)
  if value is None:
    return float('nan')
  # The nearest float64 of the text, not of its first 200 digits.
  nearest = form.real(field) if isinstance(field, str) else None
  return float(value) if nearest is None else nearest
