"""Drafts of schemas, made from a file for its owner to review.

NOT private: the bounds, categories and classes of a draft come from the
records. A draft says so in a note. `schema_files.parse` rejects it until its
owner has replaced them by public knowledge and has set `public` to true.
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
"""The note in every draft: it is not private."""

_MOST_CATEGORIES = 50
_MOST_CLASSES = 100


def draft(path: pathlib.Path, *, label: str,
          separator: str = ',') -> dict[str, Any]:
  """Returns a schema that fits a file, for review; it is NOT private.

  Columns of numbers become numeric. Other columns become categorical if they
  have at most 50 different texts; the rest are left out.

  Args:
    path: path of a CSV file with a header.
    label: name of the column with the class.
    separator: character between fields.

  Returns:
    The draft, in the JSON form of `schema_files`, with `public` false.

  Raises:
    ValueError: the file cannot be read, a column does not exist or occurs
      twice, or the label has fewer than 2 or more than 100 values.
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
  """Returns the kind of a column, or None if it is not a feature."""
  present = {text for text in texts if text not in schema_files.MISSING}
  values = _numbers(present)
  if values:
    lower, upper = _round_range(min(values), max(values))
    return {'kind': 'numeric', 'lower': lower, 'upper': upper}
  if 0 < len(present) <= _MOST_CATEGORIES:
    return {'kind': 'categorical', 'categories': sorted(present)}
  return None


def _numbers(texts: set[str]) -> list[float]:
  """Returns the texts as numbers, or [] if a text is not a finite number."""
  try:
    values = [float(text) for text in texts]
  except ValueError:
    return []
  return values if all(map(math.isfinite, values)) else []


def _round_range(low: float, high: float) -> tuple[float, float]:
  """Returns a range of round numbers that contains [low, high]."""
  step = 10.0**math.floor(math.log10(max(high - low, abs(high), 1e-9)))
  lower, upper = math.floor(low / step) * step, math.ceil(high / step) * step
  return tuple(int(bound) if bound == int(bound) else bound
               for bound in (lower, upper if upper > lower else lower + step))
