"""Numbers of records on a public lattice, by exact arithmetic."""

import dataclasses
import decimal
import fractions
import functools

from dpjax import errors

Decimal = decimal.Decimal
Fraction = fractions.Fraction

_MAX_EXPONENT = 60
_CELLS = 10**6


def number(value: object) -> Decimal | None:
  """A field as an exact decimal number; None for NaN and what is no number.

  Floats are taken as the binary fraction that they are, text as the decimal
  fraction it says.
  """
  try:
    exact = Decimal(value)
  except (decimal.InvalidOperation, TypeError, ValueError):
    return None
  return None if exact.is_nan() else exact


def same(field: object, value: str) -> bool:
  """Whether a field is a public value: the same text, or the same number."""
  value = value.strip()
  if str(field).strip() == value:
    return field is not None
  found = number(field)
  return found is not None and found == number(value)


def public_number(name: str, text: str) -> Decimal:
  """A public parameter, finite and of an ordinary size."""
  value = number(text)
  if value is None or not value.is_finite():
    raise ValueError(f'{name} must be a number, got {text!r}')
  if value and not (abs(value.adjusted()) <= _MAX_EXPONENT
                    and len(value.as_tuple().digits) <= _MAX_EXPONENT):
    raise ValueError(f'{name} must lie between 1e-{_MAX_EXPONENT} and '
                     f'1e{_MAX_EXPONENT}, in as many digits, got {text!r}')
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
