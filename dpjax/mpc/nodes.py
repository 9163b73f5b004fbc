"""Which noise goes into which opened number.

Servers hold shares of ranks and of the noise of nodes; all here is sums, done
by each server on its shares, and by a curator on the numbers. Two ways:

* dyadic: rank i gets the noise of the nodes that row i lies in, one of each
  level; any ranks may be opened, whenever (equation 6.3.1 of thesis 003).
* tree: counts of all nodes of a tree get noise of their own and are opened
  together; who sees them finds ranks by least squares (item EC-44).

Nodes are in the order of `stats.ecdf`: dyadic ones from the leaves up, those of
a tree from the top down.
"""

from collections.abc import Sequence
import math

import numpy as np

from dpjax import errors
from dpjax.mpc import scheme as schemes


def dyadic_sizes(num_rows: int, *, root: bool) -> list[int]:
  """Nodes of each level over rows, leaves first: ceil(num_rows / 2^l)."""
  errors.check_at_least('num_rows', num_rows, 1)
  levels = (num_rows - 1).bit_length() + root
  return [-(-num_rows // 2**level) for level in range(levels)]


def dyadic_rows(noise: np.ndarray, points: np.ndarray, num_rows: int, *,
                root: bool) -> np.ndarray:
  """Noise [..., m] of the ranks at points [m], of that of nodes [..., M].

  Args:
    noise: of `sum(dyadic_sizes(...))` nodes; numbers or shares.
    points: rows from 0 to num_rows - 1. Where n is public, the last rank is no
      secret, and there are N - 1 rows.
    num_rows: that have noise.
    root: whether all rows share the noise of one node.
  """
  sizes = dyadic_sizes(num_rows, root=root)
  if noise.shape[-1] != sum(sizes):
    raise ValueError(f'there are {sum(sizes)} nodes, got noise of '
                     f'{noise.shape[-1]}')
  if points.size and not 0 <= points.min() <= points.max() < num_rows:
    raise ValueError(f'points must lie between 0 and {num_rows - 1}: beyond '
                     'them there is no noise')
  starts = np.cumsum([0, *sizes[:-1]])
  return sum(noise[..., start + (points >> level)]
             for level, start in enumerate(starts))


def tree_counts(ranks: np.ndarray, shape: Sequence[int],
                scheme: schemes.Scheme) -> np.ndarray:
  """Counts of the nodes [..., M] of a tree, all levels, from ranks [..., N].

  Args:
    ranks: a server's shares at all thresholds.
    shape: parts into which a node of each level is cut, from the root down;
      its product is at least N, and leaves beyond N are not counted.
    scheme: of the shares.
  """
  num_thresholds = ranks.shape[-1]
  counts = []
  for width in tree_widths(num_thresholds, shape):
    ends = np.minimum(np.arange(width, num_thresholds + width, width),
                      num_thresholds) - 1
    upper = ranks[..., ends]
    counts.append(upper[..., :1])
    counts.append(scheme.subtract(upper[..., 1:], upper[..., :-1]))
  return np.concatenate(counts, -1)


def tree_widths(num_thresholds: int, shape: Sequence[int]) -> list[int]:
  """Bins that a node of each level covers, top down."""
  if math.prod(shape) < num_thresholds:
    raise ValueError(f'a tree of {math.prod(shape)} leaves is too small for '
                     f'{num_thresholds} thresholds')
  return [math.prod(shape[level + 1:]) for level in range(len(shape))]


def tree_sizes(num_thresholds: int, shape: Sequence[int]) -> list[int]:
  """Nodes of each level that have a bin, top down."""
  return [-(-num_thresholds // width)
          for width in tree_widths(num_thresholds, shape)]
