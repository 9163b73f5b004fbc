"""The grammar of numbers in text, and their exact values.

Every function here is total and fast: a number may have any number of digits
and any exponent, and cannot make the arithmetic slow or fail.
"""

import decimal
import re

import numpy as np

Decimal = decimal.Decimal

_DIGITS = 200
# Parsing digits to an integer takes time quadratic in their number. Exponents
# of 17 digits stay within the range of `decimal`.
_EXPONENT_DIGITS = 17
# Without traps, a number beyond the exponents becomes infinite or zero.
_CONTEXT = decimal.Context(
    prec=_DIGITS, rounding=decimal.ROUND_DOWN, Emin=decimal.MIN_EMIN,
    Emax=decimal.MAX_EMAX, traps=[])
_NUMBER = re.compile(
    r'(?P<digits>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))'
    r'(?:e(?P<sign>[+-]?)(?P<exponent>[0-9]+))?|[+-]?inf(?:inity)?',
    re.IGNORECASE)


def number(value: object) -> Decimal | None:
  """Returns a field as a decimal number; None for NaN and non-numbers.

  Text is a number if it has decimal digits with an optional sign, point and
  exponent, or is an infinity. Floats are converted exactly. Digits after the
  first 200 are dropped; an exponent of more than 17 digits counts as 17 nines.

  Examples:
    >>> from dpjax.tables import decimals
    >>> decimals.number(' 12.50 '), decimals.number('1e3')
    (Decimal('12.50'), Decimal('1E+3'))
    >>> decimals.number('1,5')
  """
  if isinstance(value, str):
    return _of_text(value.strip())
  if isinstance(value, np.generic) and value.dtype.kind in 'iuf':
    value = value.item()  # `Decimal` takes Python's numbers only.
  try:
    exact = Decimal(value)  # type: ignore[arg-type]  # Other types raise.
  except (decimal.InvalidOperation, TypeError, ValueError):
    return None
  return None if exact.is_nan() else _CONTEXT.plus(exact)


def _of_text(text: str) -> Decimal | None:
  """Returns text as a number; None if it is not one."""
  match = _NUMBER.fullmatch(text)
  if match is None:
    return None
  if match['exponent'] is None:
    return _CONTEXT.create_decimal(text)
  exponent = match['exponent'].lstrip('0') or '0'
  if len(exponent) > _EXPONENT_DIGITS:
    exponent = '9' * _EXPONENT_DIGITS
  return _CONTEXT.create_decimal(f'{match["digits"]}e{match["sign"]}{exponent}')
