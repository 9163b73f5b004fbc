"""Chains of sparse factors whose product is a full rectangular matrix.

A p x q matrix W = X_L ... X_1 (MIA-08; X_1 acts first) is told by numbers
r_1, ..., r_L of product p and s_1, ..., s_L of product q. With
t_i = r_1 ... r_{i-1} and a_i = s_{i+1} ... s_L the support of X_i is

  I_{a_i} (x) 1_{r_i x s_i} (x) I_{t_i},

of a_i r_i t_i rows and a_i s_i t_i columns. Sizes fit, because
a_i r_i t_i = a_{i+1} s_{i+1} t_{i+1}. All r_i = s_i = 2 is the square butterfly
(MIA-07).

Every entry of the product is one path. Write a column of W in digits
c_L ... c_1 with c_i < s_i and c_1 the lowest, a row in digits d_L ... d_1 with
d_i < r_i. X_i leads from c_L ... c_{i+1} c_i d_{i-1} ... d_1 to
c_L ... c_{i+1} d_i d_{i-1} ... d_1 and nowhere else: it changes the digit i, to
whatever it likes, and no other. So of the paths from a column c to a row d
there is exactly one, which turns the digits of c into those of d from the
lowest on.

A chain is monotone if the sizes q, p_1, ..., p_L = p never rise, or never fall;
p_i / p_{i-1} = r_i / s_i, so all r_i <= s_i or all r_i >= s_i.
"""

from collections.abc import Iterator
import dataclasses
import functools
import itertools
import math

import numpy as np

from dpjax import errors


@dataclasses.dataclass(frozen=True)
class Chain:
  """Supports of the factors of a matrix, the one that acts first in front.

  Attributes:
    rows: r_i, whose product is the number of rows of the matrix.
    columns: s_i, whose product is the number of its columns.

  Raises:
    ValueError: not as many rows as columns, none, or one below 1.
  """
  rows: tuple[int, ...]
  columns: tuple[int, ...]

  def __post_init__(self):
    if not 0 < len(self.rows) == len(self.columns):
      raise ValueError('a chain must have as many rows as columns, and one at '
                       f'least; got {self.rows} and {self.columns}')
    for number in (*self.rows, *self.columns):
      errors.check_at_least('rows and columns of a chain', number, 1)

  @property
  def size(self) -> tuple[int, int]:
    """Rows p and columns q of the product."""
    return math.prod(self.rows), math.prod(self.columns)

  @property
  def shapes(self) -> tuple[tuple[int, int, int, int], ...]:
    """(a_i, r_i, s_i, t_i) of each factor: the shape of its non-zeros."""
    return tuple(
        (math.prod(self.columns[i + 1:]), r, s, math.prod(self.rows[:i]))
        for i, (r, s) in enumerate(zip(self.rows, self.columns)))

  @property
  def sizes(self) -> tuple[int, ...]:
    """Of what enters the first factor and leaves each: q, p_1, ..., p."""
    return (self.size[1], *(a * r * t for a, r, _, t in self.shapes))

  @property
  def num_parameters(self) -> int:
    """Non-zeros of all factors."""
    return sum(map(math.prod, self.shapes))

  @property
  def monotone(self) -> bool:
    """Whether the sizes never rise or never fall."""
    steps = list(itertools.pairwise(self.sizes))
    return (all(before >= after for before, after in steps)
            or all(before <= after for before, after in steps))

  def supports(self) -> tuple[np.ndarray, ...]:
    """Where factors may be other than zero, [p_i, p_{i-1}] bools of each."""
    return tuple(
        np.kron(np.kron(np.eye(a, dtype=bool), np.ones((r, s), bool)),
                np.eye(t, dtype=bool)) for a, r, s, t in self.shapes)


def monotone_chains(num_rows: int, num_columns: int, *,
                    num_factors: int) -> list[Chain]:
  """Every monotone chain of a matrix whose r_i and s_i are 2 at least.

  Args:
    num_rows: p of the matrix.
    num_columns: q of the matrix.
    num_factors: L.

  Returns:
    Those of few parameters first; of equally many, by `rows`, then `columns`,
    as tuples are ordered. Maybe none.
  """
  _check(num_rows, num_columns, num_factors)
  wide = num_rows <= num_columns

  def extend(count, p, q):
    if count == 1:
      yield from [((p,), (q,))] if _keeps(p, q, wide) else []
      return
    for r, s in _steps(p, q, wide):
      for rows, columns in extend(count - 1, p // r, q // s):
        yield (r, *rows), (s, *columns)

  chains = itertools.starmap(Chain, extend(num_factors, num_rows, num_columns))
  return sorted(chains, key=lambda chain: (
      chain.num_parameters, chain.rows, chain.columns))


def smallest_chain(num_rows: int, num_columns: int, *,
                   num_factors: int) -> Chain:
  """The first of `monotone_chains`, without trying them all.

  What follows a factor is a chain of what is left of the matrix, with all its
  supports r_1 times as large: the least number of parameters obeys
  c(p, q) = min over r and s of r (q + c(p / r, q / s)).

  Args:
    num_rows: p of the matrix.
    num_columns: q of the matrix.
    num_factors: L.

  Raises:
    ValueError: there is no monotone chain, as of primes and two factors.

  Examples:
    >>> from dpjax.sparsity import chains
    >>> chains.smallest_chain(64, 36, num_factors=3)
    Chain(rows=(4, 4, 4), columns=(4, 3, 3))
  """
  _check(num_rows, num_columns, num_factors)
  wide = num_rows <= num_columns

  @functools.cache
  def best(count, p, q):
    if count == 1:
      return (p * q, (p,), (q,)) if _keeps(p, q, wide) else None
    found = [(r * (q + rest[0]), (r, *rest[1]), (s, *rest[2]))
             for r, s in _steps(p, q, wide)
             if (rest := best(count - 1, p // r, q // s))]
    return min(found, default=None)

  found = best(num_factors, num_rows, num_columns)
  if found is None:
    raise ValueError(
        f'a {num_rows} x {num_columns} matrix has no monotone chain of '
        f'{num_factors} factors with rows and columns >= 2')
  return Chain(*found[1:])


def _check(num_rows: int, num_columns: int, num_factors: int) -> None:
  errors.check_at_least('num_rows', num_rows, 1)
  errors.check_at_least('num_columns', num_columns, 1)
  errors.check_at_least('num_factors', num_factors, 1)


def _steps(p: int, q: int, wide: bool) -> Iterator[tuple[int, int]]:
  """Pairs (r, s) that divide p and q and that a monotone chain may have."""
  return ((r, s) for r in range(2, p + 1) if p % r == 0
          for s in range(2, q + 1) if q % s == 0 and _keeps(r, s, wide))


def _keeps(r: int, s: int, wide: bool) -> bool:
  return min(r, s) >= 2 and (r <= s if wide else r >= s)
