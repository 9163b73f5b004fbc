"""The smoothing problem in the form that solvers take (catalogue item EC-09).

Node (j, l) of the dyadic noise raises ranks (j - 1) 2^l + 1 to j 2^l. In the
increments of the ranks, from 0 to n, it is an edge: it adds to the increment at
its left end what it subtracts at its right end. The problem is to find the
smallest noise nu for which w = g + B nu is nonnegative and w_N = 0, where g are
the increments of the noisy ranks. Source: Barczewski (2025, equation (6.3.6)),
with corrections C12 and C13.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import linalg


class Problem(NamedTuple):
  """Minimise |nu|^p subject to lower nu <= below and last nu = at.

  Attributes:
    lower: [N, 2N - 1], all rows of -B but the last; increments stay
      nonnegative.
    below: [N], the increments g but the last.
    last: [1, 2N - 1], the last row of B.
    at: [1], minus the last increment.
  """
  lower: sparse.csc_matrix
  below: np.ndarray
  last: sparse.csc_matrix
  at: np.ndarray


def incidence(num_thresholds: int) -> sparse.csc_matrix:
  """Returns the incidence matrix B [N + 1, 2N - 1], N a power of two.

  Columns are dyadic nodes, those of level 0 first.
  """
  starts, ends = [], []
  width = 1
  while width <= num_thresholds:
    edge = np.arange(0, num_thresholds, width)
    starts.append(edge)
    ends.append(edge + width)
    width *= 2
  places = np.concatenate([*starts, *ends])
  count = len(places) // 2
  signs = np.repeat([1.0, -1.0], count)
  return sparse.csc_matrix((signs, (places, np.tile(np.arange(count), 2))),
                           shape=(num_thresholds + 1, count))


def of(ranks: np.ndarray, total: float) -> Problem:
  """Returns the problem of noisy ranks [N] that must end at `total`."""
  matrix = incidence(len(ranks))
  increments = np.diff(ranks, prepend=0.0, append=total)
  return Problem((-matrix[:-1]).tocsc(), increments[:-1],
                 matrix[-1:].tocsc(), -increments[-1:])


def smoothed(ranks: np.ndarray, noise: np.ndarray) -> np.ndarray:
  """Returns the ranks [N] plus the noise [2N - 1] of a solution."""
  increments = incidence(len(ranks)) @ noise
  return ranks + np.cumsum(increments[:-1])


def least_squares_noise(change: np.ndarray) -> float:
  """Returns the least |nu|^2 of noise nu that changes ranks by `change` [N]."""
  matrix = incidence(len(change)).tocsr()[:-1]
  steps = np.diff(change, prepend=0.0)
  potentials = linalg.spsolve((matrix @ matrix.T).tocsc(), steps)
  return float(steps @ potentials)


def printed_rows(ranks: np.ndarray, total: float) -> Problem:
  """Returns the same problem with the ranks as N more variables, at the end.

  The rows are S + Z nu - f = 0 as printed, each with L + 1 nodes, and the
  condition that f increases.
  """
  size = len(ranks)
  # Column sums of incidence rows are rows of Z.
  nodes = sparse.csc_matrix(np.cumsum(incidence(size)[:-1].toarray(), 0))
  count = nodes.shape[1]
  rises = sparse.diags([-np.ones(size), np.ones(size - 1)], [0, -1],
                       shape=(size, size))
  lower = sparse.hstack([sparse.csc_matrix((size, count)), rises])
  end = sparse.csc_matrix(([1.0], ([0], [count + size - 1])),
                          shape=(1, count + size))
  equal = sparse.vstack([sparse.hstack([nodes, -sparse.eye(size)]), end])
  return Problem(lower.tocsc(), np.zeros(size), equal.tocsc(),
                 np.append(-ranks, total))
