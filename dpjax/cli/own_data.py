"""Flags that declare what is public about your own CSV file."""

from collections.abc import Mapping
import sys

from absl import flags

from dpjax.cli import file_formats
from dpjax.cli import flags as shared
from dpjax.cli import schema as schemas
from dpjax.data import schema_files
from dpjax.data import user_tables

FLAGS = flags.FlagValues()
"""The flags of this module; a command adds them to its own."""

_LABEL = flags.DEFINE_string(
    'label', None, 'Column of the class.', FLAGS)
_CLASSES = flags.DEFINE_string(
    'classes', None, 'Public values of --label, as "0|1".', FLAGS)
_BOUNDS = flags.DEFINE_string(
    'bounds', None, 'Numeric columns with public bounds in the '
    'unit of the file, as "age=18:90,income=0:200000". Other numbers are '
    'clipped to them; a missing number counts as the middle, and one more '
    'feature marks it.', FLAGS)
_CATEGORIES = flags.DEFINE_string(
    'categories', None, 'Categorical columns with public values, '
    'as "sex=F|M,region=north|south". Any other value, or none, is "other".',
    FLAGS)
_SCHEMA = flags.DEFINE_string(
    'schema', None, 'JSON file with all of these declarations; '
    'dpjax schema drafts one.', FLAGS)
_SEPARATOR = flags.DEFINE_string(
    'separator', None, 'One character between fields, or tab. '
    'Default: a comma, a tab for .tsv.', FLAGS)

_NOTE = (
    'note: epsilon covers the parameters; n, bounds, categories and classes '
    'count as public, and the test accuracy is an exact figure of held-out '
    'records. Another version of the file is another release, and costs '
    'epsilon again.')


def schema(dataset: str) -> str | None:
  """Returns the schema that the flags declare; None for a built-in data set.

  Raises:
    ValueError, OSError: if flags contradict each other; a message of one line.
  """
  inline = {flag.name: flag.value for flag in (
      _LABEL, _CLASSES, _BOUNDS, _CATEGORIES)}
  given = [name for name, value in inline.items() if value is not None]
  if not user_tables.is_path(dataset):
    for name in (*given, *(flag.name for flag in (_SCHEMA, _SEPARATOR)
                           if flag.value is not None)):
      raise ValueError(f'--{name} needs your own CSV file: give its path as '
                       f'--dataset, not {dataset!r}')
    return None
  # Declarations in two places could contradict each other.
  if _SCHEMA.value is not None:
    given += ['separator'] if _SEPARATOR.value is not None else []
    if given:
      raise ValueError(f'--schema replaces --{given[0]}: give only one of '
                       'them')
    return schemas.read(_SCHEMA.value)
  return schema_files.of_parts(
      label=shared.given(_LABEL), classes=shared.given(_CLASSES).split('|'),
      bounds={name: _range(name, text)
              for name, text in _parts('bounds', _BOUNDS.value).items()},
      categories={name: text.split('|') for name, text in _parts(
          'categories', _CATEGORIES.value).items()},
      separator=file_formats.separator(dataset, _SEPARATOR.value))


def required(dataset: str) -> dict[str, str | None]:
  """Returns the flags that a file needs, and their values."""
  # The schema of a built-in data set is public already.
  if _SCHEMA.value is not None or not user_tables.is_path(dataset):
    return {}
  return {'label': _LABEL.value, 'classes': _CLASSES.value,
          'bounds or --categories (or --schema for all)':
          _BOUNDS.value or _CATEGORIES.value}


def say_what_is_public() -> None:
  """Prints what epsilon covers when training on your own file."""
  print(_NOTE, file=sys.stderr)


def _parts(flag: str, text: str | None) -> Mapping[str, str]:
  """Returns the declaration of each column: "a=1,b=2" is {a: 1, b: 2}."""
  parts = {}
  for part in (text or '').split(',') if text is not None else []:
    # The name of a column may have a sign, too.
    name, sign, value = part.strip().rpartition('=')
    if not (name and sign and value):
      raise ValueError(f'--{flag} must be COLUMN=... separated by commas, got '
                       f'{part!r}; names with commas need --schema')
    if name in parts:
      raise ValueError(f'--{flag} names column {name!r} twice')
    parts[name] = value
  return parts


def _range(name: str, text: str) -> tuple[float, float]:
  """Returns the two bounds in "lower:upper"."""
  try:
    lower, upper = map(float, text.split(':'))
  except ValueError:
    raise ValueError(f'--bounds of {name!r} must be lower:upper, got '
                     f'{text!r}') from None
  return lower, upper
