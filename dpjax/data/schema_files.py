"""Schemas of users' tables, as JSON: all that is public about a file.

  {"public": true,
   "separator": ",",
   "missing": ["", "NA"],
   "columns": {
     "age": {"kind": "numeric", "lower": 18, "upper": 90},
     "income": {"kind": "numeric", "lower": 1, "upper": 1e6, "scale": "log"},
     "sex": {"kind": "categorical", "categories": ["F", "M"]},
     "outcome": {"kind": "label", "classes": ["0", "1"]}}}

Columns are found by their names in the header; other columns are ignored. A
numeric column gives two features: the number, clipped and scaled to [-1, 1],
and an indicator of a missing number, which `default` replaces (the middle of
the bounds unless given). A categorical column gives one feature per category
and one for all other texts, 'other'. The label of every record must be in the
list of classes. An empty field is missing, too.

"encoding", "header", "decimal", "thousands", "dates" and "unparsed" say how the
file is written, if that is needed; see `tables.formats.Format`.

Guarantee: features are a function of the schema and the record's own fields.
The schema must be chosen without looking at the file, or it leaks.
"""

from collections.abc import Mapping, Sequence
import functools
import json
import math
from typing import Any, NamedTuple

from dpjax import errors
from dpjax.data import columns
from dpjax.data import tabular
from dpjax.tables.formats import Format
from dpjax.tables.formats import MISSING_TOKENS

MISSING = ('', *MISSING_TOKENS)
"""Spellings of a missing number, unless a schema has its own list."""

OTHER = 'other'
"""The category of all texts outside a public list, and of missing fields."""

ABSENT = '?'
"""Stands for a missing number in the names of features."""

_KINDS = {
  'numeric': {'lower', 'upper', 'scale', 'default'},
  'categorical': {'categories'},
  'label': {'classes'},
}
_OPTIONAL = {'scale', 'default'}
_TOP = {'public', 'note', 'separator', 'missing', 'columns'}

WRITTEN = ('encoding', 'header', 'decimal', 'thousands', 'dates',
           'unparsed')
"""Declarations of how a file is written, besides separator and missing."""


class UserSchema(NamedTuple):
  """The public description of a user's table.

  Attributes:
    schema: columns in the order of the features.
    form: how the file is written, with the spellings of a missing number.
  """
  schema: tabular.Schema
  form: Format

  @property
  def num_classes(self) -> int:
    """Returns the number of classes."""
    return len(self.label.classes)

  @property
  def label(self) -> columns.Label:
    """Returns the column with the class."""
    return next(column for column in self.schema.columns
                if isinstance(column, columns.Label))


def parse(text: str, *, where: str = 'schema') -> UserSchema:
  """Reads and checks a schema.

  Args:
    text: the schema as JSON.
    where: name of the schema, for messages.

  Raises:
    ValueError: the text is not a valid schema, or `public` is not true. The
      owner of the file sets `public` after a review.
  """
  value = _object(text, where)
  _check_keys(value, _TOP | {*WRITTEN}, {'columns'}, where)
  # A program cannot see where a bound is from: its owner must say.
  if value.get('public') is not True:
    raise ValueError(
      f'{where}: "public" is not true; replace bounds, categories and classes '
      'that come from the data by public ones, then set it to true')
  _check(isinstance(value['columns'], dict), f'{where}: columns must be an '
         'object, from names to kinds')
  form = _form(value, where)
  schema_columns = tuple(_column(name, column, where)
                         for name, column in value['columns'].items())
  if len(schema_columns) < 2:
    raise ValueError(f'{where} has no feature besides the label')
  return UserSchema(
    tabular.Schema(columns=schema_columns, header=True), form)


def canonical(text: str, *, where: str = 'schema') -> str:
  """Returns the schema in a unique spelling, checked and without notes.

  Raises:
    ValueError: as for `parse`.
  """
  form = parse(text, where=where).form.to_json()
  value = json.loads(text)
  value.pop('note', None)
  # With defaults written out, schemas of one meaning have one spelling.
  value.setdefault('separator', ',')
  value.setdefault('missing', list(MISSING))
  declarations = {key: form[key] for key in WRITTEN if key in form}
  ordered = {key: value[key] for key in ('public', 'separator', 'missing',
                                         'columns')}
  return json.dumps({**ordered, **declarations}, allow_nan=False)


def of_parts(*, label: str, classes: Sequence[str],
             bounds: Mapping[str, tuple[float, float]],
             categories: Mapping[str, Sequence[str]],
             separator: str = ',') -> str:
  """Builds a schema from its parts, in `canonical` spelling.

  Args:
    label: name of the column with the class.
    classes: public values of the label.
    bounds: public (lower, upper) of each numeric column.
    categories: public values of each categorical column.
    separator: character between the fields of a line.

  Raises:
    ValueError: a column is given two kinds; also as for `parse`.
  """
  all_names = [label, *bounds, *categories]
  for name in all_names:
    if all_names.count(name) > 1:
      raise ValueError(f'column {name!r} is given two kinds; it may be a label '
                       'or have bounds or categories')
  kinds = {name: {'kind': 'numeric', 'lower': lower, 'upper': upper}
           for name, (lower, upper) in bounds.items()}
  kinds |= {name: {'kind': 'categorical', 'categories': list(values)}
            for name, values in categories.items()}
  kinds[label] = {'kind': 'label', 'classes': list(classes)}
  return canonical(json.dumps(
    {'public': True, 'separator': separator, 'columns': kinds}))


def _form(value: Mapping[str, Any], where: str) -> Format:
  """Returns how the file is written, as a schema declares it."""
  missing = _check_texts(value.get('missing', list(MISSING)),
                         f'{where}: missing', least=0)
  declarations = {key: value[key] for key in WRITTEN if key in value}
  if 'header' in declarations:
    declarations['header'] = tuple(_check_texts(
      declarations['header'], f'{where}: header', least=1))
  for key in {*declarations} - {'header'}:
    _check(isinstance(declarations[key], str), f'{where}: {key} must be text, '
           f'got {declarations[key]!r}')
  separator = value.get('separator', ',')
  _check(isinstance(separator, str) and len(separator) == 1,
         f'{where}: separator must be one character, got {separator!r}')
  # An empty field counts as missing in any case.
  try:
    return Format(separator=separator, missing_tokens=tuple(
      token for token in missing if token), **declarations)
  except ValueError as error:
    raise ValueError(f'{where}: {error}') from None


def _object(text: str, where: str) -> dict[str, Any]:
  """Parses a JSON object; a repeated name raises ValueError."""
  def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # The parser would keep the last of two equal names without a word.
    names = [name for name, _ in pairs]
    for name in names:
      _check(names.count(name) == 1, f'{where}: {name!r} occurs twice')
    return dict(pairs)
  try:
    value = json.loads(text, object_pairs_hook=unique)
  except json.JSONDecodeError as error:
    raise ValueError(f'{where} is not JSON: {error}') from None
  _check(isinstance(value, dict), f'{where} must be an object with columns')
  return value


def _column(name: str, value: Any, where: str) -> columns.Column:
  """Returns the column that a JSON object describes."""
  where = f'{where}, column {name!r}'
  _check(isinstance(value, dict), f'{where} must be an object with a kind')
  kind = value.get('kind')
  errors.check_choice(f'{where}: kind', str(kind), _KINDS)
  _check_keys(value, _KINDS[kind] | {'kind'}, _KINDS[kind] - _OPTIONAL, where)
  if kind == 'numeric':
    return _numeric(name, value, where)
  if kind == 'categorical':
    listed = _check_texts(value['categories'], f'{where}: categories', least=1)
    groups = (*listed, OTHER) if OTHER not in listed else tuple(listed)
    return columns.Grouped(name, groups, functools.partial(_group, groups))
  # A class has no 'other': a record without a known label is an error.
  listed = _check_texts(value['classes'], f'{where}: classes', least=2)
  return columns.Label(name, tuple((label,) for label in listed))


def _numeric(name: str, value: dict[str, Any], where: str) -> columns.Numeric:
  # `type` is exact: true and false are instances of int, but no numbers.
  for key in {'lower', 'upper', 'default'} & set(value):
    _check(type(value[key]) in (int, float) and math.isfinite(value[key]),
           f'{where}: {key} must be a finite number, got {value[key]!r}')
  lower, upper = value['lower'], value['upper']
  # The middle of public bounds is public; a mean of the column is not.
  try:
    return columns.Numeric(
      name, lower, upper, scale=value.get('scale', 'linear'), missing=ABSENT,
      default=value.get('default', (lower + upper) / 2))
  except ValueError as error:
    raise ValueError(f'{where}: {error}') from None


def _group(groups: tuple[str, ...], text: str) -> str:
  """Returns a field's category, or 'other' if it is not in the public list."""
  # A category of its own would reveal that some record has this text.
  return text if text in groups else OTHER


def _check(condition: bool, message: str) -> None:
  if not condition:
    raise ValueError(message)


def _check_keys(value: Mapping[str, Any], known: set[str], needed: set[str],
                where: str) -> None:
  for key in value:
    _check(key in known, f'{where}: unknown {key!r}' + (
      errors.did_you_mean(key, known) or
      f'; known are {", ".join(sorted(known))}'))
  for key in sorted(needed - set(value)):
    raise ValueError(f'{where} has no {key!r}')


def _check_texts(value: Any, what: str, *, least: int) -> list[str]:
  if not (isinstance(value, list) and len(value) >= least and
          all(isinstance(text, str) for text in value) and
          len(set(value)) == len(value)):
    raise ValueError(f'{what} must be a list of at least {least} different '
                     f'texts in quotation marks, got {value!r}')
  return value
