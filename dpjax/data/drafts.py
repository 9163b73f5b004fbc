"""Drafts of schemas, read off a file for its owner to review.

NOT private: bounds, categories and classes of a draft are those of the records.
A draft says so, and `schema_files.parse` refuses it until its owner has
replaced them by public knowledge and has set `public` to true.
"""

from collections.abc import Sequence
import math
import pathlib
from typing import Any

from dpjax.data import schema_files
from dpjax.data import user_tables

NOTE = ('DRAFT, READ OFF THE DATA: bounds, categories and classes below are '
        'those of private records. Replace each by what is publicly known, '
        'remove columns that are no features, then set public to true.')
"""What a draft says about itself."""

_MOST_CATEGORIES = 50
_MOST_CLASSES = 100


def draft(path: pathlib.Path, *, label: str,
          separator: str = ',') -> dict[str, Any]:
  """A schema that fits a file, to be reviewed; it tells of the records.

  Columns of numbers become numeric, those of at most 50 different texts
  categorical; others are left out.

  Args:
    path: of a CSV file with a header.
    label: column of the class.
    separator: between fields.

  Raises:
    ValueError: one line; for a file that cannot be read, a column that is not
      there, or a label with one class, or with more than 100.
  """
  fields = user_tables.read(path, separator)
  at = user_tables.place(label, fields.header, path=path, separator=separator)
  kinds = {}
  for number, (name, texts) in enumerate(
      zip(fields.header, zip(*fields.rows, strict=True), strict=True)):
    if fields.header.count(name) > 1:
      raise ValueError(f'{path} has {fields.header.count(name)} columns '
                       f'{name!r}')
    if number != at:
      kinds[name] = _feature(texts)
  classes = sorted(set(fields.rows[i][at] for i in range(len(fields.rows))))
  if not 2 <= len(classes) <= _MOST_CLASSES:
    raise ValueError(f'{path}: label {label!r} has {len(classes)} different '
                     f'values; it must have 2 to {_MOST_CLASSES}')
  kinds = {name: kind for name, kind in kinds.items() if kind is not None}
  kinds[label] = {'kind': 'label', 'classes': classes}
  return {'public': False, 'note': NOTE, 'separator': separator,
          'missing': list(schema_files.MISSING), 'columns': kinds}


def _feature(texts: Sequence[str]) -> dict[str, Any] | None:
  """The kind of a column, or None if it is no feature."""
  present = {text for text in texts if text not in schema_files.MISSING}
  values = _numbers(present)
  if values:
    lower, upper = _round_range(min(values), max(values))
    return {'kind': 'numeric', 'lower': lower, 'upper': upper}
  if 0 < len(present) <= _MOST_CATEGORIES:
    return {'kind': 'categorical', 'categories': sorted(present)}
  return None


def _numbers(texts: set[str]) -> list[float]:
  """The numbers, or nothing if one of the texts is none."""
  try:
    values = [float(text) for text in texts]
  except ValueError:
    return []
  return values if all(map(math.isfinite, values)) else []


def _round_range(low: float, high: float) -> tuple[float, float]:
  """A range of round numbers around these."""
  step = 10.0**math.floor(math.log10(max(high - low, abs(high), 1e-9)))
  lower, upper = math.floor(low / step) * step, math.ceil(high / step) * step
  return tuple(int(bound) if bound == int(bound) else bound
               for bound in (lower, upper if upper > lower else lower + step))
