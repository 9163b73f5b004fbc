"""Numbers of records on a public lattice, by exact arithmetic.

Every function of a record here is total and quick: a number may have any number
of digits and any exponent, and none makes arithmetic slow or fail.
"""

import dataclasses
import decimal
import fractions
import functools
import re

from dpjax import errors

Decimal = decimal.Decimal
Fraction = fractions.Fraction

_MAX_EXPONENT = 60
_CELLS = 10**6
_DIGITS = 200
# Digits beyond the first 200 are dropped: to make integers of digits takes time
# that grows with the square of how many there are. Exponents stay far within
# those that `decimal` computes with.
_EXPONENT_DIGITS = 17
_CONTEXT = decimal.Context(
    prec=_DIGITS, rounding=decimal.ROUND_DOWN, Emin=decimal.MIN_EMIN,
    Emax=decimal.MAX_EMAX, traps=[])
_NUMBER = re.compile(
    r'(?P<digits>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))'
    r'(?:e(?P<sign>[+-]?)(?P<exponent>[0-9]+))?|[+-]?inf(?:inity)?',
    re.IGNORECASE)


def number(value: object) -> Decimal | None:
  """Returns a field as a decimal number; None for NaN and what is no number.

  Text is a number if it is decimal digits, maybe with a sign, a point and an
  exponent, or an infinity. Floats are taken as the binary fraction that they
  are. Digits beyond the first 200 are dropped, and an exponent of more than 17
  digits counts as one of 17 nines: both are functions of the field alone.

  Examples:
    >>> from dpjax.release import lattice
    >>> lattice.number(' 12.50 '), lattice.number('1e3'), lattice.number('1,5')
    (Decimal('12.50'), Decimal('1E+3'), None)
  """
  if isinstance(value, str):
    return _of_text(value.strip())
  try:
    exact = Decimal(value)
  except (decimal.InvalidOperation, TypeError, ValueError):
    return None
  return None if exact.is_nan() else _CONTEXT.plus(exact)


def _of_text(text: str) -> Decimal | None:
  match = _NUMBER.fullmatch(text)
  if match is None:
    return None
  if match['exponent'] is None:
    return _CONTEXT.create_decimal(text)
  exponent = match['exponent'].lstrip('0') or '0'
  if len(exponent) > _EXPONENT_DIGITS:
    exponent = '9' * _EXPONENT_DIGITS
  return _CONTEXT.create_decimal(f'{match["digits"]}e{match["sign"]}{exponent}')


def same(field: object, value: str) -> bool:
  """Whether a field is a public value: the same text, or the same number."""
  value = value.strip()
  if str(field).strip() == value:
    return field is not None
  found = number(field)
  return found is not None and found == number(value)


def public_number(name: str, text: str) -> Decimal:
  """Returns a public parameter as a number, finite and of an ordinary size.

  Raises:
    ValueError: for what is no number, or has too many digits or too large an
      exponent.
  """
  shown = text if len(text) <= 40 else f'{text[:40]}...'
  value = number(text)
  if value is None or not value.is_finite():
    raise ValueError(f'{name} must be a number, got {shown!r}')
  if value and not (abs(value.adjusted()) <= _MAX_EXPONENT
                    and len(value.as_tuple().digits) <= _MAX_EXPONENT):
    raise ValueError(f'{name} must lie between 1e-{_MAX_EXPONENT} and '
                     f'1e{_MAX_EXPONENT}, in as many digits, got {shown!r}')
  return value


def default_granularity(lower: Decimal, upper: Decimal) -> Decimal:
  """The largest power of ten that is a millionth of the range, or less."""
  width = Fraction(upper) - Fraction(lower)
  power = 2 - _MAX_EXPONENT
  while Fraction(10)**(power + 1) * _CELLS <= width:
    power += 1
  return Decimal((0, (1,), power))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lattice:
  """Multiples of a public granularity between public bounds.

  A value is clamped to the bounds, then rounded to the nearest multiple: what
  becomes of it depends on it and on public numbers alone. What is summed are
  the multiples, integers from `low` to `high`.

  Attributes:
    lower: clamps from below.
    upper: clamps from above.
    granularity: spacing, at most `upper - lower`.
  """
  lower: Decimal
  upper: Decimal
  granularity: Decimal

  def __post_init__(self):
    errors.check_range(self.lower, self.upper)
    width = Fraction(self.upper) - Fraction(self.lower)
    if not 0 < Fraction(self.granularity) <= width:
      raise ValueError('granularity must be positive, at most upper - lower, '
                       f'got {self.granularity}')

  @functools.cached_property
  def low(self) -> int:
    """The multiple of `lower`."""
    return self._nearest(self.lower)

  @functools.cached_property
  def high(self) -> int:
    """The multiple of `upper`."""
    return self._nearest(self.upper)

  @functools.cached_property
  def unit(self) -> Fraction:
    """The granularity as a fraction."""
    return Fraction(self.granularity)

  def index(self, value: Decimal) -> int:
    """The multiple of a number, from `low` to `high`."""
    if value >= self.upper:
      return self.high
    return self.low if value <= self.lower else self._nearest(value)

  def _nearest(self, value: Decimal) -> int:
    # Tiny numbers may have exponents whose power of ten fits nowhere.
    if not value or value.adjusted() < self.granularity.adjusted() - 1:
      return 0
    top, bottom = value.as_integer_ratio()
    top, bottom = top * self.unit.denominator, bottom * self.unit.numerator
    return (2 * top + bottom) // (2 * bottom)
