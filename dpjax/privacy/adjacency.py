"""Which data sets are neighbours."""

import enum


class Adjacency(enum.Enum):
  """The neighbouring relation of a claim; it never has a default.

  ADD_OR_REMOVE_ONE: one data set has one record more.
  REPLACE_ONE: equal public size, one record differs.

  "Differ in at most one element" (thesis 003, Definition 3.1.2) may mean either
  (item DP-01, erratum E25).
  """
  ADD_OR_REMOVE_ONE = 'add_or_remove_one'
  REPLACE_ONE = 'replace_one'


def check_adjacency(value: Adjacency) -> Adjacency:
  """Returns `value` if it is an `Adjacency`; strings are refused.

  A string equals no member, so code that asks `is REPLACE_ONE` would take it
  for the other relation, which needs half the noise.

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


def sum_sensitivity(adjacency: Adjacency, *, record_norm: float) -> float:
  """Sensitivity of a sum whose terms have norm at most `record_norm`.

  A replacement removes one term and adds another, hence twice the norm. The
  maximum is over adjacent pairs, which thesis 003, Definition 3.1.6 leaves out
  (item DP-09).
  """
  if check_adjacency(adjacency) is Adjacency.REPLACE_ONE:
    return 2 * record_norm
  return record_norm
