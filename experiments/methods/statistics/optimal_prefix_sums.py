"""Bounds on the accuracy of prefix sums with Gaussian noise.

Noise of covariance S is added to the ranks. One record changes them by d, and
the budget requires d' S^-1 d <= 1 for all d; errors are in units of 1 / (2
rho). It uses NumPy on the host, with dense matrices. Sources: Mathias 1993;
Henzinger, Upadhyay and Upadhyay 2023; Henzinger and Upadhyay 2024 (item EC-48).
"""

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency


def mean_lower_bound(num_thresholds: int) -> float:
  """Returns a lower bound on the mean variance of any factorisation.

  Adjacency: ADD_OR_REMOVE_ONE. The bound is (nuclear norm of the matrix of
  prefix sums / N)^2; the singular values are 1 / (2 sin((2 j - 1) pi / (4 N +
  2))).
  """
  size = errors.check_at_least('num_thresholds', num_thresholds, 1)
  angles = (2 * np.arange(1, size + 1) - 1) * np.pi / (4 * size + 2)
  return float(np.mean(0.5 / np.sin(angles))**2)


def max_upper_bound(num_thresholds: int) -> float:
  """Returns a bound that some factorisation attains on its largest variance.

  Adjacency: ADD_OR_REMOVE_ONE. Circulant matrices (Henzinger and Upadhyay) give
  the square of (1 + (1 / N) sum_j csc((2 j + 1) pi / (2 N))) / 2.
  """
  size = errors.check_at_least('num_thresholds', num_thresholds, 1)
  angles = (2 * np.arange(size) + 1) * np.pi / (2 * size)
  return float((1 + np.mean(1 / np.sin(angles)))**2 / 4)


def mean_optimum(num_thresholds: int, *, adjacency: Adjacency,
                 num_rounds: int = 200) -> tuple[float, float]:
  """Returns bounds of the least mean variance over all factorisations.

  Method:
  1. Weights w of the changes d, with sum 1, give M = sum w d d'.
  2. For every w, tr(M^(1/2))^2 / N is a lower bound.
  3. Noise of covariance proportional to M^(1/2), as small as the budget allows,
     is one factorisation. It attains the bound at the best w, where d' M^(-1/2)
     d is the same for all d of positive weight.
  4. So the weights are multiplied by d' M^(-1/2) d, round after round.

  Args:
    num_thresholds: N, some hundreds at most.
    adjacency: which data sets are neighbours.
    num_rounds: number of multiplications; each takes time N^3.

  Returns:
    The best lower bound, and the least mean variance found.
  """
  errors.check_at_least('num_thresholds', num_thresholds, 2)
  errors.check_at_least('num_rounds', num_rounds, 1)
  moves = _Moves(num_thresholds, adjacency)
  weights, lower, upper = moves.start(), 0.0, np.inf
  for _ in range(num_rounds):
    values, vectors = np.linalg.eigh(moves.covariance(weights))
    roots = np.sqrt(np.maximum(values, 1e-300))
    norms = moves.norms((vectors / roots) @ vectors.T)
    trace = np.sum(roots)
    lower = max(lower, trace**2 / num_thresholds)
    upper = min(upper, np.max(norms) * trace / num_thresholds)
    # Changes with a larger norm than average gain weight.
    weights = weights * norms
    weights /= np.sum(weights)
  return float(lower), float(upper)


class _Moves:
  """The changes d of neighbouring data sets; sums over them by running sums."""

  def __init__(self, num_thresholds: int, adjacency: Adjacency):
    self.replaced = check_adjacency(adjacency) is Adjacency.REPLACE_ONE
    self.size = num_thresholds - self.replaced

  def start(self) -> np.ndarray:
    """Returns even weights [N], or [N, N] by first and last changed rank."""
    weights = np.triu(np.ones((self.size, self.size)))
    weights = weights if self.replaced else weights[:, -1]
    return weights / np.sum(weights)

  def covariance(self, weights: np.ndarray) -> np.ndarray:
    """Returns sum w d d'.

    Ranks i <= j change together if first <= i and last >= j.
    """
    if not self.replaced:
      place = np.arange(self.size)
      return np.cumsum(weights)[np.minimum(place[:, None], place)]
    both = np.cumsum(np.cumsum(weights, 0)[:, ::-1], 1)[:, ::-1]
    return np.triu(both) + np.triu(both, 1).T

  def norms(self, precision: np.ndarray) -> np.ndarray:
    """Returns d' precision d for all changes, in the layout of `start`."""
    # Sums over blocks of the matrix by two-dimensional running sums.
    total = np.zeros((self.size + 1,) * 2)
    total[1:, 1:] = np.cumsum(np.cumsum(precision, 0), 1)
    if not self.replaced:
      ends = np.full(self.size, self.size)
    else:
      ends = np.arange(1, self.size + 1)
    firsts = np.arange(self.size)
    if not self.replaced:
      return (total[-1, -1] - total[firsts, ends] - total[ends, firsts]
              + total[firsts, firsts])
    return np.triu(total[ends, ends] - total[firsts][:, ends]
                   - total[ends][:, firsts].T
                   + total[firsts, firsts][:, None])
