"""Neighbouring relations between data sets."""

import enum
from typing import TypeVar

_Norm = TypeVar('_Norm', int, float)


class Adjacency(enum.Enum):
  """Neighbouring relation of a privacy claim.

  It has no default, except in `make_private`.

  ADD_OR_REMOVE_ONE: one data set has one record more.
  REPLACE_ONE: both have the same public size, and one record differs.

  "Differ in at most one element" (Barczewski 2025, Definition 3.1.2) can mean
  either relation (item DP-01, erratum E25).
  """
  ADD_OR_REMOVE_ONE = 'add_or_remove_one'
  REPLACE_ONE = 'replace_one'

  @classmethod
  def _missing_(cls, value: object) -> 'Adjacency':
    raise ValueError('adjacency must be one of '
                     f'{", ".join(each.value for each in cls)}; got {value!r}')


def check_adjacency(value: Adjacency) -> Adjacency:
  """Returns `value` if it is an `Adjacency`; strings are rejected.

  A string equals no member. Code that tests `is REPLACE_ONE` would then
  silently assume the other relation, which needs half the noise.

  Examples:
    >>> from dpjax.privacy import adjacency
    >>> adjacency.check_adjacency('replace_one')
    Traceback (most recent call last):
      ...
    ValueError: adjacency must be Adjacency.ADD_OR_REMOVE_ONE or \
Adjacency.REPLACE_ONE, got 'replace_one'; write Adjacency('replace_one')
  """
  if not isinstance(value, Adjacency):
    known = [member.value for member in Adjacency]
    hint = f'; write Adjacency({value!r})' if value in known else ''
    raise ValueError(
        'adjacency must be '
        f'{" or ".join(map(str, Adjacency))}, got {value!r}{hint}')
  return value


def sum_sensitivity(adjacency: Adjacency, *, record_norm: _Norm) -> _Norm:
  """Returns the sensitivity of a sum of terms of norm at most `record_norm`.

  A replacement removes one term and adds another, so the sensitivity under
  REPLACE_ONE is twice the norm. The maximum is over neighbouring data sets, a
  restriction that is missing in Barczewski (2025, Definition 3.1.6) (item
  DP-09).

  Args:
    adjacency: neighbouring relation of the claim.
    record_norm: bound on the norm of each record's term, in any norm.
  """
  if check_adjacency(adjacency) is Adjacency.REPLACE_ONE:
    return 2 * record_norm
  return record_norm
