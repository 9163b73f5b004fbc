"""Provides trees and prefix sums as dense matrices, for comparison."""

import numpy as np


def nodes(shape: tuple[int, ...], size: int) -> np.ndarray:
  """Returns the matrix [nodes, size] that sums leaves, from the top level."""
  leaves, rows, count = int(np.prod(shape)), [], 1
  for parts in shape:
    count *= parts
    rows.append(np.kron(np.eye(count), np.ones((1, leaves // count))))
  return np.concatenate(rows)[:, :size]


def by_level(shape: tuple[int, ...], values) -> np.ndarray:
  """Returns values by level [h] for each node."""
  return np.repeat(values, np.cumprod(shape))


def covariance(weights: np.ndarray, *, known: bool) -> np.ndarray:
  """Returns the covariance of least squares counts of precisions `weights`."""
  inverse = np.linalg.inv(weights)
  if known:
    ones = inverse.sum(1)
    inverse = inverse - np.outer(ones, ones) / ones.sum()
  return inverse


def prefix_variances(weights: np.ndarray, *, known: bool) -> np.ndarray:
  """Returns the variances of ranks, from the same covariance."""
  below = np.tril(np.ones_like(weights))
  return np.diag(below @ covariance(weights, known=known) @ below.T)


def sensitivity(matrix: np.ndarray, power: int, *, replaced: bool) -> float:
  """Returns a linear query's [m, N] largest sum of |change|^power."""
  columns = matrix.T
  if replaced:
    columns = (columns[:, None] - columns[None]).reshape(-1, matrix.shape[0])
  return np.max(np.sum(np.abs(columns)**power, 1))
