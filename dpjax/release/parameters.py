"""Declares a public parameter of a release in one place.

A parameter is a field of `query.Query`: name, type, default, and what
`declared` adds. The flag of `dpjax estimate`, the methods of
`sessions.Ledger`, both conversions, the JSON and the documentation follow.
"""

from collections.abc import Callable, Iterable, Mapping
import csv
import dataclasses
import decimal
import fractions
import inspect
import re
import textwrap
from typing import Any, TypeVar

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.release.lattice import public_number

Decimal = decimal.Decimal
Fraction = fractions.Fraction
Number = int | float | str | decimal.Decimal | fractions.Fraction
"""A public number; a float means its shortest decimal, so 0.1 is 1/10."""

_Declaring = TypeVar('_Declaring')

RELEASE = 'what to release'
COLUMN = 'the column and its public bounds'
PRIVACY = 'privacy'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
  """Declaration of a parameter, except its name and type.

  Attributes:
    help: meaning, allowed values and default, for the flag and the reference.
    group: heading of its flag.
    convert: (name, value) -> exact value of the field, or of one part of it.
      The value may be the text of a flag or a Python value.
    split: (name, text) -> parts of a flag's text, if the field is a tuple.
    check: (name, value) -> None; raises ValueError for a value that is never
      allowed. Statistics check what depends on other parameters.
    common: whether every statistic takes it; others declare what they take.
    later: whether it is newer than the first ledgers. It is then left out of
      the JSON where it is None, so that old entries still match.
    default: default of the field, or None.
  """
  help: str
  group: str
  convert: Callable[[str, Any], object]
  split: Callable[[str, str], Iterable[str]] | None = None
  check: Callable[[str, Any], object] | None = None
  common: bool = False
  later: bool = False
  default: object = None

  def exact(self, name: str, value: Any) -> object:
    """Returns the value of the field for a Python value.

    A tuple of one part may be given as that part.
    """
    if self.split is None:
      return self.convert(name, value)
    alone = isinstance(value, str) or not isinstance(value, Iterable)
    parts = [value] if alone else value
    return tuple(self.convert(name, part) for part in parts)


def declared(text: str, convert: Callable[[str, Any], object], *,
             group: str = RELEASE, **more: Any) -> dict[str, Parameter]:
  """Returns the metadata of a field; see `Parameter` for the arguments."""
  return {'parameter': Parameter(help=text, convert=convert, group=group,
                                 **more)}


def of(declaring: type[Any]) -> dict[str, Parameter]:
  """Returns the parameters that a dataclass declares, by name."""
  return {field.name: dataclasses.replace(
      field.metadata['parameter'], default=None if field.default is
      dataclasses.MISSING else field.default)
          for field in dataclasses.fields(declaring)}


def documented(declaring: type[_Declaring]) -> type[_Declaring]:
  """Decorates a dataclass: lists its parameters below its docstring."""
  declaring.__doc__ = '\n'.join([
      inspect.cleandoc(declaring.__doc__ or ''), '', 'Attributes:',
      *described(of(declaring))])
  return declaring


def described(parameters: Mapping[str, Parameter]) -> list[str]:
  """Returns lines of a docstring that describe parameters."""
  return [line for name, parameter in parameters.items()
          for line in textwrap.wrap(
              f'{name}: {parameter.help}', 78, initial_indent='  ',
              subsequent_indent='    ', break_on_hyphens=False)]


def fraction(name: str, value: Number) -> Fraction:
  """Returns a public number exactly; text may be a fraction such as '1/3'."""
  parts = str(value).split('/')
  if len(parts) > 2:
    raise ValueError(f'{name} must be a number or a fraction, got {value!r}')
  top, bottom = (Fraction(public_number(name, part))
                 for part in (parts + ['1'])[:2])
  if not bottom:
    raise ValueError(f'{name} must be a number, got {value!r}')
  return top / bottom


def number(name: str, value: Number) -> Decimal:
  """Returns a public number as a decimal."""
  return public_number(name, str(value))


def whole(name: str, value: int | str) -> int:
  """Returns a whole number."""
  digits = str(value)
  if not re.fullmatch('[0-9]{1,9}', digits.strip()):
    raise ValueError(f'{name} must be a whole number of at most 9 digits, '
                     f'got {digits[:40]!r}')
  return int(digits)


def as_text(name: str, value: object) -> str:
  """Returns a name or a value of a column as text."""
  del name
  return str(value)


def switch(name: str, value: bool) -> bool | None:
  """Returns True, or None for False, which stands for the default."""
  if value not in (True, False):
    raise ValueError(f'{name} must be True or False, got {value!r}')
  return True if value else None


def adjacency(name: str, value: Adjacency | str) -> Adjacency:
  """Returns the adjacency with this name or value."""
  return Adjacency(errors.check_choice(
      name, value.value if isinstance(value, Adjacency) else value,
      [relation.value for relation in Adjacency]))


def one_of(*choices: str) -> Callable[[str, str], str]:
  """Returns a function that checks that a value is one of `choices`."""
  return lambda name, value: errors.check_choice(name, value, choices)


def commas(name: str, line: str) -> list[str]:
  """Returns the parts of a text between commas."""
  del name
  return [part.strip() for part in line.split(',')]


def quoted(name: str, line: str) -> tuple[str, ...]:
  """Returns the parts of a flag between commas; quoted parts may hold commas.

  Args:
    name: name of the flag, for the error message.
    line: one line of CSV, such as '"Smith, John",other'.

  Raises:
    ValueError: if a quotation mark is not closed; a message of one line.
  """
  try:
    rows = list(csv.reader([line], skipinitialspace=True, strict=True))
  except csv.Error as error:
    raise ValueError(f'--{name} must be separated by commas, with quotation '
                     'marks around a value that contains one, got '
                     f'{line!r} ({error})') from None
  return tuple(part.strip() for row in rows for part in row)
