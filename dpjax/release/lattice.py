"""Exact arithmetic for numbers of records on a public lattice.

Every function of a record here is total and fast: a number may have any number
of digits and any exponent, and cannot make the arithmetic slow or fail.
"""

import dataclasses
import fractions
import functools

from dpjax import errors
from dpjax.tables import decimals

Decimal = decimals.Decimal
Fraction = fractions.Fraction

_MAX_EXPONENT = 60
# Cells of a range: rounding moves a mean by at most 5e-7 of the range.
_CELLS = 10**6

number = decimals.number
"""Returns a field as a decimal number, see `tables.decimals.number`."""


def same(field: object, value: str) -> bool:
  """Returns whether a field equals a public value, as text or as a number."""
  value = value.strip()
  if str(field).strip() == value:
    # A null reads 'None', which may also be the public value.
    return field is not None
  parsed = number(field)
  return parsed is not None and parsed == number(value)


def public_number(name: str, text: str) -> Decimal:
  """Returns a public parameter as a finite number of ordinary size.

  Raises:
    ValueError: if the text is not a number, or too long or too large.
  """
  shown = text if len(text) <= 40 else f'{text[:40]}...'
  value = number(text)
  if value is None or not value.is_finite():
    raise ValueError(f'{name} must be a number, got {shown!r}')
  if value and not (abs(value.adjusted()) <= _MAX_EXPONENT
                    and len(value.as_tuple().digits) <= _MAX_EXPONENT):
    raise ValueError(f'{name} must lie between 1e-{_MAX_EXPONENT} and '
                     f'1e{_MAX_EXPONENT} and have at most {_MAX_EXPONENT} '
                     f'digits, got {shown!r}')
  return value


def default_granularity(lower: Decimal, upper: Decimal) -> Decimal:
  """Returns the largest power of ten that is at most a millionth of the range.
  """
  width = Fraction(upper) - Fraction(lower)
  power = 2 - _MAX_EXPONENT
  while Fraction(10)**(power + 1) * _CELLS <= width:
    power += 1
  return Decimal((0, (1,), power))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lattice:
  """Multiples of a public granularity between public bounds.

  A value is clamped to the bounds, then rounded to the nearest multiple. Its
  index depends on the value and on public numbers alone, and sums are over
  these indices, which are integers from `low` to `high`.

  Attributes:
    lower: public lower bound; smaller values are clamped to it.
    upper: public upper bound; larger values are clamped to it.
    granularity: spacing, > 0 and at most `upper - lower`.
  """
  lower: Decimal
  upper: Decimal
  granularity: Decimal

  def __post_init__(self) -> None:
    errors.check_range(self.lower, self.upper)
    width = Fraction(self.upper) - Fraction(self.lower)
    if not 0 < Fraction(self.granularity) <= width:
      raise ValueError('granularity must be positive, at most upper - lower, '
                       f'got {self.granularity}')

  @functools.cached_property
  def low(self) -> int:
    """Returns the index of `lower`: lower / granularity, rounded."""
    return self._nearest(self.lower)

  @functools.cached_property
  def high(self) -> int:
    """Returns the index of `upper`: upper / granularity, rounded."""
    return self._nearest(self.upper)

  @functools.cached_property
  def unit(self) -> Fraction:
    """Returns the granularity as an exact fraction."""
    return Fraction(self.granularity)

  def index(self, value: Decimal) -> int:
    """Returns the index of a number, from `low` to `high`."""
    # Compared before any division: a huge number takes no more time.
    if value >= self.upper:
      return self.high
    return self.low if value <= self.lower else self._nearest(value)

  def _nearest(self, value: Decimal) -> int:
    # Shortcut to 0: for a tiny number, 10 to its exponent would not fit memory.
    if not value or value.adjusted() < self.granularity.adjusted() - 1:
      return 0
    top, bottom = value.as_integer_ratio()
    top, bottom = top * self.unit.denominator, bottom * self.unit.numerator
    # floor(x + 1/2) in integers: a float could move a value between cells.
    return (2 * top + bottom) // (2 * bottom)
