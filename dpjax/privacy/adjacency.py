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
  """Returns `value` if it is an `Adjacency`; its name is none."""
  if not isinstance(value, Adjacency):
    raise ValueError('adjacency must be a member of Adjacency, got '
                     f'{value!r}')
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
