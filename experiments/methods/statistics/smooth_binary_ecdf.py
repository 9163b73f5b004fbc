"""Distribution functions from a binary tree, with equal variances.

Positions have binary codes. A rank is the sum of one node for each 1 of its
position's code, and a record is counted in one node for each 0 of its own.
Using only codes with as many 0s as 1s gives all ranks the same noise variance.
Source: Andersson and Pagh 2023 (item EC-46).
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax.privacy import additive
from dpjax.privacy.adjacency import sum_sensitivity
from dpjax.stats.ecdf_methods import mechanism
from dpjax.stats.ecdf_methods import trees
from dpjax.typing import Array, PRNGKey


class Nodes(NamedTuple):
  """The nodes of the tree that ranks need; bins are counted from 0.

  Attributes:
    starts: [M] first bin of each node.
    ends: [M] first bin after each node.
    of_ranks: [N, h // 2] indices of the nodes that make up each rank.
  """
  starts: np.ndarray
  ends: np.ndarray
  of_ranks: np.ndarray


def height(num_thresholds: int) -> int:
  """Returns the least h with N + 1 codes of h bits, half of them 1."""
  high = 1
  while math.comb(high, high // 2) <= num_thresholds:
    high += 1
  return high


@functools.cache
def nodes(num_thresholds: int) -> Nodes:
  """Returns the tree of N bins.

  Bin j has code j, and rank j ends before code j + 1. A node belongs to a
  prefix of a rank's code that ends with a 1: it holds the bins whose codes
  begin with that prefix, but with the final 1 replaced by a 0.
  """
  high = height(num_thresholds)
  codes = _balanced(high, num_thresholds + 1)
  # Row i: the bits of the code that ends rank i, lowest first.
  ones = (codes[1:, None] >> np.arange(high)) & 1
  rank, bit = np.nonzero(ones)
  first = (codes[1 + rank] >> bit << bit) - (1 << bit)
  # Nodes without bins have noise too, so that all ranks have equal variance.
  (first, bit), inverse = np.unique(np.stack([first, bit]), axis=1,
                                    return_inverse=True)
  starts, ends = np.searchsorted(codes, [first, first + (1 << bit)])
  return Nodes(starts.astype(np.int32), ends.astype(np.int32),
               inverse.reshape(num_thresholds, high // 2).astype(np.int32))


def _balanced(high: int, number: int) -> np.ndarray:
  """Returns the smallest `number` integers of `high` bits, high // 2 of them 1.

  In increasing order. The next one: the highest 1 of the lowest run moves up
  one place, and the rest of the run moves down to the lowest places.
  """
  code, codes = (1 << high // 2) - 1, np.empty(number, np.int64)
  for place in range(number):
    codes[place] = code
    if code:
      # Gosper's hack: the next larger integer with as many 1s.
      lowest = code & -code
      carried = code + lowest
      code = carried | ((code ^ carried) // lowest >> 2)
  return codes


class BinaryTreeParameters(NamedTuple):
  """Public numbers that the sampler takes.

  Attributes:
    scale: standard deviation of the noise of a node.
    nodes: nodes of the tree.
  """
  scale: np.ndarray
  nodes: Nodes


@functools.cache
def _sampler(known: bool) -> mechanism.Draw:
  """Returns the sampler (key, counts, parameters) -> ranks."""
  def draw(key: PRNGKey, counts: Array, parameters: BinaryTreeParameters
           ) -> Array:
    tree, scale = parameters.nodes, jnp.asarray(parameters.scale)
    below = jnp.concatenate([jnp.zeros([1]), jnp.cumsum(counts)])
    exact = below[tree.ends] - below[tree.starts]
    noise = additive.standard_normal(key, exact.shape).astype(jnp.float64)
    noisy = additive.on_grid(exact + scale * noise, scale)
    ranks = jnp.sum(noisy[tree.of_ranks], 1)
    return trees.ended(ranks, below[-1] if known else None, monotone=False)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmoothBinaryEcdf(mechanism.EcdfMechanism):
  """Ranks of equal variance from a tree of balanced codes, for a budget of rho.

  Guarantee: that of a Gaussian release with squared l2 sensitivity equal to the
  number of 0s of a code, and twice that if a record is replaced. Kept for
  comparison: `toeplitz` has a quarter of the variance.

  Attributes:
    epsilon: always None.
    monotone: always False.
  """
  epsilon: None = dataclasses.field(default=None, init=False)
  monotone: bool = dataclasses.field(default=False, init=False)

  @property
  def scale(self) -> float:
    """Returns the standard deviation of the noise of a node."""
    high = height(self.num_thresholds)
    squared_sensitivity = sum_sensitivity(self.adjacency,
                                          record_norm=high - high // 2)
    return self.noise_scale(squared_sensitivity)

  @property
  def draw(self) -> mechanism.Draw:
    """Returns a jittable sampler (key, counts, parameters) -> ranks."""
    return _sampler(self.knows_total)

  @property
  def parameters(self) -> BinaryTreeParameters:
    """Returns the noise scale and nodes of the tree."""
    return BinaryTreeParameters(np.float64(self.scale),
                                nodes(self.num_thresholds))

  def variances(self) -> np.ndarray:
    """Returns exact variances of the ranks [N]: equal, but 0 for a public n."""
    ones = height(self.num_thresholds) // 2
    variances = np.full(self.num_thresholds, ones * self.scale**2)
    if self.knows_total:
      variances[-1] = 0.0
    return variances
