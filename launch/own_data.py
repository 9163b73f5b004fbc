"""Flags that say what is public about a table of one's own."""

from collections.abc import Mapping
import sys

from absl import flags

from dpjax.data import schema_files
from dpjax.data import user_tables
from launch import schema as schemas

_LABEL = flags.DEFINE_string(
    'label', None, 'Own CSV file: column of the class.')
_CLASSES = flags.DEFINE_string(
    'classes', None, 'Own CSV file: public values of --label, as "0|1".')
_BOUNDS = flags.DEFINE_string(
    'bounds', None, 'Own CSV file: numeric columns with public bounds in the '
    'unit of the file, as "age=18:90,income=0:200000". Numbers beyond are '
    'clipped; a missing one counts as the middle, and is marked in a feature '
    'beside.')
_CATEGORIES = flags.DEFINE_string(
    'categories', None, 'Own CSV file: categorical columns with public values, '
    'as "sex=F|M,region=north|south". Any other value, or none, is "other".')
_SCHEMA = flags.DEFINE_string(
    'schema', None, 'Own CSV file: JSON file that says all of this instead; '
    'python -m launch.schema drafts one.')
_SEPARATOR = flags.DEFINE_string(
    'separator', None, 'Own CSV file: one character between fields, or tab. '
    'Default: a comma, a tab for .tsv.')

_NOTE = (
    'note: epsilon covers the parameters; n, bounds, categories and classes '
    'count as public, and the test accuracy is an exact figure of held-out '
    'records. Another version of the file is another release, and costs '
    'epsilon again.')


def schema(dataset: str) -> str | None:
  """The schema that the flags give for this data set; None for a known one.

  Raises:
    ValueError, OSError: one line, for flags that say too little or too much.
  """
  inline = {flag.name: flag.value for flag in (
      _LABEL, _CLASSES, _BOUNDS, _CATEGORIES)}
  given = [name for name, value in inline.items() if value is not None]
  if not user_tables.is_path(dataset):
    for name in (*given, *(flag.name for flag in (_SCHEMA, _SEPARATOR)
                           if flag.value is not None)):
      raise ValueError(f'--{name} is of a CSV file of one\'s own: give its '
                       f'path as --dataset, not {dataset!r}')
    return None
  if _SCHEMA.value is not None:
    given += ['separator'] if _SEPARATOR.value is not None else []
    if given:
      raise ValueError(f'--schema says what --{given[0]} would: give one of '
                       'them')
    return schemas.read(_SCHEMA.value)
  if _LABEL.value is None or _CLASSES.value is None or (
      _BOUNDS.value is None and _CATEGORIES.value is None):
    raise ValueError(
        f'{dataset} needs --label, --classes and --bounds or --categories, all '
        'public; or --schema, which python -m launch.schema drafts')
  return schema_files.of_parts(
      label=_LABEL.value, classes=_CLASSES.value.split('|'),
      bounds={name: _range(name, text)
              for name, text in _parts('bounds', _BOUNDS.value).items()},
      categories={name: text.split('|') for name, text in _parts(
          'categories', _CATEGORIES.value).items()},
      separator=schemas.separator(dataset, _SEPARATOR.value))


def say_what_is_public() -> None:
  """Tells whoever trains on a file of their own what epsilon is about."""
  print(_NOTE, file=sys.stderr)


def _parts(flag: str, text: str | None) -> Mapping[str, str]:
  """Column -> what is said of it."""
  parts = {}
  for part in (text or '').split(',') if text is not None else []:
    name, sign, value = part.strip().rpartition('=')
    if not (name and sign and value):
      raise ValueError(f'--{flag} must be COLUMN=... separated by commas, got '
                       f'{part!r}; names with commas need --schema')
    if name in parts:
      raise ValueError(f'--{flag} names column {name!r} twice')
    parts[name] = value
  return parts


def _range(name: str, text: str) -> tuple[float, float]:
  try:
    lower, upper = map(float, text.split(':'))
  except ValueError:
    raise ValueError(f'--bounds of {name!r} must be lower:upper, got '
                     f'{text!r}') from None
  return lower, upper
