"""Drafts of schemas, made from a file for its owner to review.

NOT private: the bounds, categories and classes of a draft come from the
records. `schema_files.parse` rejects it until its owner has replaced them by
public knowledge and has set `public` to true.
"""

import math
import os
from typing import Any, NamedTuple

import numpy as np

from dpjax.data import schema_files
from dpjax.tables import reader
from dpjax.tables.formats import Format

NOTE = ('DRAFT, READ OFF THE DATA: bounds, categories and classes below are '
        'those of private records. Replace each by what is publicly known, '
        'remove columns that are not features, then set public to true.')
"""The note in every draft: it is not private."""

# More texts are likely to be names or notes, not categories.
_MOST_CATEGORIES = 50
_MOST_CLASSES = 100


class Draft(NamedTuple):
  """A draft of a schema, and what it leaves out.

  Attributes:
    schema: JSON form of `schema_files`, with `public` false.
    left_out: name of each column that is not in the schema -> why.
  """
  schema: dict[str, Any]
  left_out: dict[str, str]


def draft(path: str | os.PathLike[str], *, label: str,
          form: Format = Format()) -> Draft:
  """Returns a schema that fits a file, for review; it is NOT private.

  Columns of numbers become numeric. Other columns become categorical if they
  have at most 50 different texts; the rest are left out.

  Args:
    path: path of a file that `tables.reader` reads.
    label: name of the column with the class.
    form: how the file is written.

  Raises:
    ValueError: the file cannot be read, a column does not exist or occurs
      twice, or the label has fewer than 2 or more than 100 values.
  """
  table = reader.table(path, form)
  kinds, left_out = {}, {}
  table.index(label)
  for name in table.header:
    table.index(name)  # Raises an error if two columns have this name.
    if name == label:
      continue
    kind = _feature(table, name)
    if isinstance(kind, str):
      left_out[name] = kind
    else:
      kinds[name] = kind
  classes = sorted(set(table.texts(label).texts))
  if not 2 <= len(classes) <= _MOST_CLASSES:
    raise ValueError(f'{path}: label {label!r} has {len(classes)} different '
                     f'values; it must have 2 to {_MOST_CLASSES}')
  kinds[label] = {'kind': 'label', 'classes': classes}
  declarations = form.to_json()
  return Draft(
    {'public': False, 'note': NOTE, 'separator': form.separator,
     'missing': ['', *form.missing_tokens],
     **{key: declarations[key] for key in schema_files.WRITTEN
        if key in declarations},
     'columns': kinds}, left_out)


def _feature(table: reader.Table, name: str) -> dict[str, Any] | str:
  """Returns the kind of a column, or why it is not a feature."""
  if not name:
    return 'it has no name in the header'
  try:
    values = table.numbers(name)
    present = values[~np.isnan(values)]
    if present.size and np.isfinite(present).all():
      lower, upper = _round_range(float(present.min()), float(present.max()))
      return {'kind': 'numeric', 'lower': lower, 'upper': upper}
  except ValueError:
    pass  # a field of text
  try:
    # A schema encodes a missing text as 'other', so none is listed.
    texts = {text for text in table.texts(name).texts
             if not table.form.is_missing(text)}
  except ValueError as error:
    return str(error)
  if not texts:
    return 'all its fields are missing'
  if len(texts) > _MOST_CATEGORIES:
    return (f'it has {len(texts)} different texts, more than '
            f'{_MOST_CATEGORIES}, some of which are not numbers')
  return {'kind': 'categorical', 'categories': sorted(texts)}


def _round_range(low: float, high: float) -> tuple[float, float]:
  """Returns a range of round numbers that contains [low, high]."""
  # 1e-9 keeps the logarithm finite for a column of zeros.
  step = 10.0**math.floor(math.log10(max(high - low, abs(high), 1e-9)))
  lower, upper = math.floor(low / step) * step, math.ceil(high / step) * step
  # A column with one value needs a range of positive width, too.
  if upper <= lower:
    upper = lower + step
  return (int(lower) if lower == int(lower) else lower,
          int(upper) if upper == int(upper) else upper)
