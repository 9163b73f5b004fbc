"""Checks of arguments, run before any privacy budget is spent.

Each check returns its value, so that it can stand in an assignment. It raises a
one-line `ValueError` with the name of the argument, the value that was given
and the values that are allowed.
"""

from collections.abc import Iterable
import decimal
import difflib
import math
import operator

# Similarity of difflib in [0, 1] from which a choice is suggested: 'aeg'
# suggests 'age', 'iris' does not suggest 'digits'.
_NEAR = 0.65
_MOST_SHOWN = 12     # choices that one error message lists
_MOST_SUGGESTED = 3  # suggestions out of a longer list


def check_positive(name: str, value: float) -> float:
  """Returns `value` if it is finite and > 0.

  Examples:
    >>> from dpjax import errors
    >>> errors.check_positive('epsilon', 0.5)
    0.5
    >>> errors.check_positive('epsilon', -1.0)
    Traceback (most recent call last):
      ...
    ValueError: epsilon must be a positive number, got -1.0
  """
  if not (math.isfinite(value) and value > 0):
    raise ValueError(f'{name} must be a positive number, got {value}')
  return value


# Squares of numbers in this range, and products of two of them, neither
# underflow to 0 nor overflow in float32.
_SCALES = (1e-12, 1e12)


def check_scale(name: str, value: float) -> float:
  """Returns `value` if it lies in [1e-12, 1e12], safe to square in float32.

  For clip norms, radii and noise scales: outside this range a square is 0 or
  infinite in float32, and a sensitivity bound that needs it would not hold.

  Examples:
    >>> from dpjax import errors
    >>> errors.check_scale('clip_norm', 0.5)
    0.5
    >>> errors.check_scale('clip_norm', 1e-25)
    Traceback (most recent call last):
      ...
    ValueError: clip_norm must lie in [1e-12, 1e+12], got 1e-25; scale the loss\
 or the features instead
  """
  least, most = _SCALES
  if not least <= check_positive(name, value) <= most:
    raise ValueError(f'{name} must lie in [{least:g}, {most:g}], got {value}; '
                     'scale the loss or the features instead')
  return value


def check_non_negative(name: str, value: float) -> float:
  """Returns `value` if it is finite and >= 0."""
  if not (math.isfinite(value) and value >= 0):
    raise ValueError(f'{name} must be a number >= 0, got {value}')
  return value


def check_probability(name: str, value: float) -> float:
  """Returns `value` if it lies in (0, 1]."""
  if not 0 < value <= 1:
    raise ValueError(f'{name} must lie in (0, 1], got {value}')
  return value


def check_open_unit(name: str, value: float) -> float:
  """Returns `value` if it lies strictly between 0 and 1."""
  if not 0 < value < 1:
    raise ValueError(f'{name} must lie strictly between 0 and 1, got {value}')
  return value


def check_at_least(name: str, value: int, minimum: int) -> int:
  """Returns `value` if it is an integer >= `minimum`.

  3.0 is rejected because it is a float.
  """
  try:
    number = operator.index(value)
  except TypeError:
    number = None
  if number is None or number < minimum:
    raise ValueError(f'{name} must be an integer >= {minimum}, got {value}')
  return number


def check_seed(name: str, value: int) -> int:
  """Returns `value` if it is an integer in [0, 2^32).

  `jax.random.key` truncates larger seeds, so two runs would share their noise.
  """
  if check_at_least(name, value, 0) >= 2**32:
    raise ValueError(f'{name} must be below 2^32, got {value}')
  return value


def check_range(lower: float | decimal.Decimal,
                upper: float | decimal.Decimal) -> None:
  """Checks that `lower` and `upper` are finite and `lower` < `upper`."""
  if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
    raise ValueError(f'lower must be below upper, got {lower} and {upper}')


def check_records(shape: tuple[int, ...], num_examples: int) -> None:
  """Checks that an array of this shape holds `num_examples` records.

  Args:
    shape: shape of the array of records; must be (num_examples,).
    num_examples: public number of records.
  """
  if shape != (num_examples,):
    raise ValueError(f'there must be {num_examples} records, got an array of '
                     f'shape {shape}')


class UnknownChoiceError(ValueError):
  """A value that is none of so many choices that not all of them are shown."""


def check_choice(name: str, value: str, choices: Iterable[str]) -> str:
  """Returns `value` if it is one of `choices`.

  The error lists all choices, or if there are many, those most similar.
  """
  if value in choices:
    return value
  every = sorted(choices)
  if len(every) <= _MOST_SHOWN:
    raise ValueError(f'{name} must be one of {", ".join(every)}; got {value!r}'
                     f'{did_you_mean(value, every)}')
  raise UnknownChoiceError(f'{name} must be one of {len(every)} names, got '
                           f'{value!r}{nearest(value, every)}')


def did_you_mean(value: str, choices: Iterable[object]) -> str:
  """Returns a question with the nearest choice, or '' if none is near."""
  near = difflib.get_close_matches(str(value), list(map(str, choices)), 1,
                                   _NEAR)
  return f'; did you mean {near[0]!r}?' if near else ''


def nearest(value: str, choices: Iterable[str]) -> str:
  """Returns a question with a few similar choices, or '' if there are none."""
  every = list(choices)
  near = difflib.get_close_matches(str(value), every, _MOST_SUGGESTED, _NEAR)
  # A part of a name is a likely abbreviation, however long the name is.
  near += [choice for choice in every if value and value in choice]
  shown = [repr(choice) for choice in dict.fromkeys(near)][:_MOST_SUGGESTED]
  return f'; did you mean {" or ".join(shown)}?' if shown else ''


def one_line(error: BaseException) -> str:
  """Returns the first line of another library's error message, or its type."""
  lines = str(error).strip().splitlines()
  return lines[0] if lines else type(error).__name__
