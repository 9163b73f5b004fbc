"""Chains of sparse factors whose product is a full rectangular matrix.

Source: Lalanne (2023, section 1.2.2; item MIA-08). A chain for p x q matrices
W = X_L ... X_1, where X_1 acts first, is given by numbers r_1, ..., r_L of
product p and s_1, ..., s_L of product q. With
t_i = r_1 ... r_{i-1} and a_i = s_{i+1} ... s_L the support of X_i is

  I_{a_i} (x) 1_{r_i x s_i} (x) I_{t_i},

with a_i r_i t_i rows and a_i s_i t_i columns. Sizes match, because
a_i r_i t_i = a_{i+1} s_{i+1} t_{i+1}. The square butterfly (item MIA-07) has
all r_i = s_i = 2.

Statement: every entry of the product is one product of L coefficients. Proof:
1. Write a column of W in digits c_L ... c_1 with c_i < s_i and c_1 the lowest,
   and a row in digits d_L ... d_1 with d_i < r_i.
2. X_i connects c_L ... c_{i+1} c_i d_{i-1} ... d_1 with the indices
   c_L ... c_{i+1} d_i d_{i-1} ... d_1 only: it changes digit i, to any value,
   and no other digit.
3. So exactly one path leads from column c to row d: it replaces the digits of c
   by those of d, from the lowest on.

A chain is monotone if the sizes q, p_1, ..., p_L = p never increase or never
decrease. Since p_i / p_{i-1} = r_i / s_i, then all r_i <= s_i or all
r_i >= s_i.
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
  """The supports of a matrix's factors; the factor that acts first comes first.

  Attributes:
    rows: r_i, whose product is the number of rows of the matrix.
    columns: s_i, whose product is the number of its columns.

  Raises:
    ValueError: `rows` and `columns` differ in length, are empty or have an
      entry below 1.
  """
  rows: tuple[int, ...]
  columns: tuple[int, ...]

  def __post_init__(self):
    if not 0 < len(self.rows) == len(self.columns):
      raise ValueError('a chain must have equally many rows and columns, at '
                       f'least one, got {self.rows} and {self.columns}')
    for number in (*self.rows, *self.columns):
      errors.check_at_least('rows and columns of a chain', number, 1)

  @property
  def size(self) -> tuple[int, int]:
    """Returns the numbers of rows p and columns q of the product."""
    return math.prod(self.rows), math.prod(self.columns)

  @property
  def shapes(self) -> tuple[tuple[int, int, int, int], ...]:
    """Returns (a_i, r_i, s_i, t_i) of each factor, the shape of its non-zeros.
    """
    return tuple(
        (math.prod(self.columns[i + 1:]), r, s, math.prod(self.rows[:i]))
        for i, (r, s) in enumerate(zip(self.rows, self.columns)))

  @property
  def sizes(self) -> tuple[int, ...]:
    """Returns the input size and the output size of each factor: q, ..., p."""
    return (self.size[1], *(a * r * t for a, r, _, t in self.shapes))

  @property
  def num_parameters(self) -> int:
    """Returns the number of non-zeros of all factors."""
    return sum(map(math.prod, self.shapes))

  @property
  def monotone(self) -> bool:
    """Returns whether the sizes never increase or never decrease."""
    steps = list(itertools.pairwise(self.sizes))
    return (all(before >= after for before, after in steps)
            or all(before <= after for before, after in steps))

  def supports(self) -> tuple[np.ndarray, ...]:
    """Returns the support of each factor, bools [p_i, p_{i-1}]."""
    return tuple(
        np.kron(np.kron(np.eye(a, dtype=bool), np.ones((r, s), bool)),
                np.eye(t, dtype=bool)) for a, r, s, t in self.shapes)


def monotone_chains(num_rows: int, num_columns: int, *,
                    num_factors: int) -> list[Chain]:
  """Returns every monotone chain with all r_i >= 2 and s_i >= 2.

  Args:
    num_rows: p, rows of the matrix.
    num_columns: q, columns of the matrix.
    num_factors: L, the number of factors.

  Returns:
    Chains sorted by the number of parameters, then by `rows`, then by
    `columns`; the list may be empty.
  """
  _check(num_rows, num_columns, num_factors)
  wide = num_rows <= num_columns

  def extend(count: int, p: int, q: int):
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
  """Returns the first of `monotone_chains` without enumerating them all.

  The factors after the first form a chain for a p / r_1 x q / s_1 matrix, with
  supports r_1 times as large. So the least number of parameters satisfies
  c(p, q) = min over r and s of r (q + c(p / r, q / s)).

  Args:
    num_rows: p, rows of the matrix.
    num_columns: q, columns of the matrix.
    num_factors: L, the number of factors.

  Raises:
    ValueError: there is no monotone chain, for example if p and q are primes
      and L = 2.

  Examples:
    >>> from experiments.methods.sparsity import chains
    >>> chains.smallest_chain(64, 36, num_factors=3)
    Chain(rows=(4, 4, 4), columns=(4, 3, 3))
  """
  _check(num_rows, num_columns, num_factors)
  wide = num_rows <= num_columns

  # Sub-problems repeat: many choices of r and s leave the same matrix.
  @functools.cache
  def best(count: int, p: int, q: int):
    if count == 1:
      return (p * q, (p,), (q,)) if _keeps(p, q, wide) else None
    # Tuples compare by number of parameters, then rows, then columns.
    candidates = [(r * (q + rest[0]), (r, *rest[1]), (s, *rest[2]))
                  for r, s in _steps(p, q, wide)
                  if (rest := best(count - 1, p // r, q // s))]
    return min(candidates, default=None)

  smallest = best(num_factors, num_rows, num_columns)
  if smallest is None:
    raise ValueError(
        f'a {num_rows} x {num_columns} matrix has no monotone chain of '
        f'{num_factors} factors with rows and columns >= 2')
  return Chain(*smallest[1:])


def _check(num_rows: int, num_columns: int, num_factors: int) -> None:
  errors.check_at_least('num_rows', num_rows, 1)
  errors.check_at_least('num_columns', num_columns, 1)
  errors.check_at_least('num_factors', num_factors, 1)


def _steps(p: int, q: int, wide: bool) -> Iterator[tuple[int, int]]:
  """Yields the pairs (r, s) dividing p and q that a monotone chain allows."""
  return ((r, s) for r in range(2, p + 1) if p % r == 0
          for s in range(2, q + 1) if q % s == 0 and _keeps(r, s, wide))


def _keeps(r: int, s: int, wide: bool) -> bool:
  """Checks that a factor is not trivial and keeps the chain monotone."""
  return min(r, s) >= 2 and (r <= s if wide else r >= s)
