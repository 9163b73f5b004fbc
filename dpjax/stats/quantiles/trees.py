"""Quantiles of hierarchical counts, made consistent by least squares.

Bins, bins of bins and so on are counted with noise, which a rank of a fine grid
crosses few of. Least squares over the tree takes one pass up and one down. The
root is left out: under REPLACE_ONE it is public, and otherwise the estimate of
n is free (`curves.total`). Source: Hay et al. 2010 (spec QB-07).
"""

from collections.abc import Sequence
import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import draws
from dpjax.stats.quantiles import curves
from dpjax.stats.quantiles import inversion
from dpjax.stats.quantiles import rates
from dpjax.stats.quantiles.records import Records
from dpjax.typing import Array, PRNGKey


def levels(counts: Array, shape: Sequence[int]) -> list[Array]:
  """Counts [N] summed to the nodes of each level, from the top down.

  Args:
    counts: of the N = prod(shape) leaves.
    shape: into how many parts the nodes of each level are cut, the root first.
  """
  sizes = np.cumprod(shape)
  return [jnp.sum(counts.reshape(int(size), -1), 1) for size in sizes]


def least_squares(noisy: Sequence[Array], shape: Sequence[int],
                  total: Array | None = None) -> Array:
  """Counts [N] of leaves nearest to noisy counts of all nodes but the root.

  Noise has the same variance v everywhere. Up: of a node's own count and the
  sum of its children's estimates, the mean by inverse variances. Down: children
  share evenly what they lack of their parent.

  Args:
    noisy: counts of each level, from the top down, as `levels` gives them.
    shape: of the tree.
    total: the sum of all leaves, if it is known.
  """
  found, sums, variance = [noisy[-1]], [], 1.0
  for parts, own in zip(shape[:0:-1], noisy[-2::-1], strict=True):
    variance *= parts
    sums.append(jnp.sum(found[-1].reshape(own.size, parts), 1))
    found.append((variance * own + sums[-1]) / (1 + variance))
    variance /= 1 + variance
  counts = found.pop()
  if total is not None:
    counts = curves.with_total(counts, total)
  for below, amount in zip(found[::-1], sums[::-1], strict=True):
    parts = below.size // counts.size
    counts = below + jnp.repeat((counts - amount) / parts, parts)
  return counts


def noisy_counts(key: PRNGKey, data: Records, parameters: curves.Parameters,
                 shape: Sequence[int]) -> list[Array]:
  """Counts of all nodes but the root with discrete Laplace noise."""
  exact = levels(jnp.diff(curves.ranks(data, jnp.asarray(parameters.shares))),
                 shape)
  keys = jax.random.split(key, len(exact))
  return [count + draws.discrete_laplace(each, count.shape, parameters.scale,
                                         jnp.float64)
          for count, each in zip(exact, keys, strict=True)]


@functools.cache
def _curve(shape: tuple[int, ...], knows_total: bool) -> curves.Curve:
  def curve(key: PRNGKey, data: Records,
            parameters: curves.Parameters) -> Array:
    counts = least_squares(noisy_counts(key, data, parameters, shape), shape)
    total = curves.total(data, jnp.sum(counts), knows_total)
    # All leaves have one covariance with the sum: what corrects it is even.
    ranks = curves.from_counts(curves.with_total(counts, total))
    return inversion.distribution(ranks, total)
  return curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeQuantiles(curves.CurveQuantiles):
  """Hierarchical counts of equal bins, cumulated and inverted.

  Guarantee: epsilon-DP under `adjacency`. A record is counted once on every
  level: of l levels the counts move by l in l1, and by 2 l where one is
  replaced. Better than `HistogramQuantiles` from some 60 bins on.

  Attributes:
    shape: into how many parts the nodes of each level are cut, the root first;
      the product is the number of bins.
  """
  shape: tuple[int, ...] = (16, 16)

  def __post_init__(self):
    if not isinstance(self.shape, tuple) or not self.shape:
      raise ValueError('shape must be a tuple of one number of parts or more, '
                       f'got {self.shape}')
    for parts in self.shape:
      errors.check_at_least('shape', parts, 2)
    super().__post_init__()

  @property
  def num_bins(self) -> int:
    """N."""
    return math.prod(self.shape)

  @property
  def scale(self) -> float:
    """Of the discrete Laplace noise of each count."""
    return 1 / rates.counts(epsilon=self.epsilon, adjacency=self.adjacency,
                            levels=len(self.shape))

  @property
  def curve(self) -> curves.Curve:
    """The law of the curve."""
    return _curve(self.shape, self.knows_total)

  def stddevs(self) -> np.ndarray:
    """Of noise of ranks: from the covariance of leaves, level by level."""
    return math.sqrt(draws.discrete_laplace_variance(self.scale)) * np.sqrt(
        _rank_variances(self.shape))


def _rank_variances(shape: Sequence[int]) -> np.ndarray:
  """Of ranks [N + 1] with the sum known, for noise of variance 1.

  Inside a node whose count has no error ranks vary as in a tree by itself; a
  rank through one of its parts adds how that part's own count varies, of which
  it takes the share that lies below.
  """
  heights = [1.0]
  for parts in shape[:0:-1]:
    heights.append(parts * heights[-1] / (1 + parts * heights[-1]))
  found = np.zeros(2)
  for parts, height in zip(shape[::-1], heights, strict=True):
    share = np.linspace(0, 1, found.size)[:-1]
    below = np.arange(parts)[:, None]
    # Of the first j parts and a share u of the next, less u + j of all parts:
    # evenly corrected independent counts.
    own = height * (below + share**2 - (below + share)**2 / parts)
    found = np.append((found[:-1] + own).reshape(-1), 0.0)
  return found
