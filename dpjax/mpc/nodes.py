"""Assignment of noise variables to the opened numbers, for two layouts.

Servers hold shares of ranks and shares of the noise of nodes. All functions
here are linear, so each server applies them to its shares, and a curator to the
plain numbers. The two layouts are:

* dyadic: rank i gets the sum of the noise of the dyadic nodes that contain i,
  one per level; ranks may be opened one by one (Barczewski, 2025, equation
  6.3.1).
* tree: the count of every node of a tree gets its own noise, and all counts are
  opened together; ranks follow by least squares (item EC-44).

The order of nodes is that of `stats.ecdf_methods`: dyadic nodes from the leaves
up, tree nodes from the root down.
"""

from collections.abc import Sequence
import math

import numpy as np

from dpjax import errors
from dpjax.mpc import scheme as schemes


def dyadic_sizes(num_rows: int, *, root: bool) -> list[int]:
  """Returns the number of dyadic nodes per level, ceil(num_rows / 2^l).

  Args:
    num_rows: number of ranks that get noise, >= 2 without a root.
    root: whether to add a level whose only node contains all rows.

  Returns:
    Sizes of the levels, leaves (l = 0) first.
  """
  # A single row without a root would have no node, and its rank no noise.
  errors.check_at_least('num_rows', num_rows, 1 if root else 2)
  levels = (num_rows - 1).bit_length() + root
  return [-(-num_rows // 2**level) for level in range(levels)]


def dyadic_rows(noise: np.ndarray, points: np.ndarray, num_rows: int, *,
                root: bool) -> np.ndarray:
  """Returns the noise [..., m] of the ranks at points [m].

  Args:
    noise: noise of the nodes [..., M], M = `sum(dyadic_sizes(...))`; plain
      numbers or shares.
    points: rows [m] from 0 to num_rows - 1.
    num_rows: number of ranks that get noise: N, or N - 1 if n is public, since
      the last rank is n.
    root: whether one node contains all rows.
  """
  sizes = dyadic_sizes(num_rows, root=root)
  if noise.shape[-1] != sum(sizes):
    raise ValueError(f'noise must have one entry for each of {sum(sizes)} '
                     f'nodes, got {noise.shape[-1]}')
  if points.size and not 0 <= points.min() <= points.max() < num_rows:
    raise ValueError(f'points must lie between 0 and {num_rows - 1}: for other '
                     'points there is no noise')
  starts = np.cumsum([0, *sizes[:-1]])
  sums = np.zeros_like(noise[..., points])
  for level, start in enumerate(starts):
    # Node i >> l is the one of level l that contains row i.
    sums += noise[..., start + (points >> level)]
  return sums


def tree_counts(ranks: np.ndarray, shape: Sequence[int],
                scheme: schemes.Scheme) -> np.ndarray:
  """Returns the counts [..., M] of all nodes of a tree, as shares.

  Args:
    ranks: a server's shares of the ranks at all thresholds [..., N].
    shape: number of children of a node in each level, from the root down. The
      product must be at least N; leaves beyond N are not counted.
    scheme: secret-sharing scheme of the shares.
  """
  num_thresholds = ranks.shape[-1]
  counts = []
  for width in tree_widths(num_thresholds, shape):
    # The last bin of each node; the last node may be cut off at N.
    ends = np.minimum(np.arange(width, num_thresholds + width, width),
                      num_thresholds) - 1
    upper = ranks[..., ends]
    counts.append(upper[..., :1])
    counts.append(scheme.subtract(upper[..., 1:], upper[..., :-1]))
  return np.concatenate(counts, -1)


def tree_widths(num_thresholds: int, shape: Sequence[int]) -> list[int]:
  """Returns how many bins a node of each level covers, from the top down."""
  if math.prod(shape) < num_thresholds:
    raise ValueError(f'shape gives a tree of {math.prod(shape)} leaves, too '
                     f'few for {num_thresholds} thresholds')
  return [math.prod(shape[level + 1:]) for level in range(len(shape))]


def tree_sizes(num_thresholds: int, shape: Sequence[int]) -> list[int]:
  """Returns how many nodes of each level have a bin, from the top down."""
  return [-(-num_thresholds // width)
          for width in tree_widths(num_thresholds, shape)]
