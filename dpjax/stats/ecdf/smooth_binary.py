"""Distribution functions from a binary tree of balanced places alone.

A rank is a sum of one node for each 1 of its place's code, and a record is
counted in one node for each 0 of its own. Codes of equally many 0s and 1s give
all ranks noise of one variance. Source: Andersson and Pagh 2023 (item EC-46).
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax.privacy import additive
from dpjax.privacy.adjacency import sum_sensitivity
from dpjax.stats.ecdf import mechanism
from dpjax.stats.ecdf import trees
from dpjax.typing import Array, PRNGKey


class Nodes(NamedTuple):
  """Of the tree, those that ranks need; bins are counted from 0.

  Attributes:
    starts: [M] the first bin of each.
    ends: [M] the first bin behind it.
    of_ranks: [N, h // 2] which nodes make up each rank.
  """
  starts: np.ndarray
  ends: np.ndarray
  of_ranks: np.ndarray


def height(num_thresholds: int) -> int:
  """Least h with N + 1 codes of h bits, half of them 1."""
  high = 1
  while math.comb(high, high // 2) <= num_thresholds:
    high += 1
  return high


@functools.cache
def nodes(num_thresholds: int) -> Nodes:
  """The tree of N bins: bin j has code j, and rank j ends before code j + 1.

  A node is what the codes of a rank have in common down to a 1, with a 0 in its
  place: the bins whose codes begin like that.
  """
  high = height(num_thresholds)
  codes = _balanced(high, num_thresholds + 1)
  ones = (codes[1:, None] >> np.arange(high)) & 1
  rank, bit = np.nonzero(ones)
  first = (codes[1 + rank] >> bit << bit) - (1 << bit)
  # Each has noise of its own, also those that hold no bin: variances are equal.
  (first, bit), inverse = np.unique(np.stack([first, bit]), axis=1,
                                    return_inverse=True)
  starts, ends = np.searchsorted(codes, [first, first + (1 << bit)])
  return Nodes(starts.astype(np.int32), ends.astype(np.int32),
               inverse.reshape(num_thresholds, high // 2).astype(np.int32))


def _balanced(high: int, number: int) -> np.ndarray:
  """The least so many numbers of `high` bits, high // 2 of them 1; in order.

  The next one: the lowest run of 1s gives its highest one upwards.
  """
  code, found = (1 << high // 2) - 1, np.empty(number, np.int64)
  for place in range(number):
    found[place] = code
    if code:
      lowest = code & -code
      moved = code + lowest
      code = moved | ((code ^ moved) // lowest >> 2)
  return found


class Parameters(NamedTuple):
  """Of the noise and the tree.

  Attributes:
    scale: standard deviation of the noise of a node.
    nodes: of the tree.
  """
  scale: np.ndarray
  nodes: Nodes


@functools.cache
def _law(known: bool) -> mechanism.Draw:
  def draw(key: PRNGKey, counts: Array, parameters: Parameters) -> Array:
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
  """Ranks of equal variance from a tree of balanced codes, for rho.

  Guarantee: that of a Gaussian release whose squared mean moves by the number
  of 0s of a code, and twice that where a record is replaced. Kept to compare:
  `toeplitz` has a quarter of the variance.

  Attributes:
    epsilon: always None.
    monotone: always False.
  """
  epsilon: None = dataclasses.field(default=None, init=False)
  monotone: bool = dataclasses.field(default=False, init=False)

  @property
  def scale(self) -> float:
    """Standard deviation of the noise of a node."""
    high = height(self.num_thresholds)
    moved = sum_sensitivity(self.adjacency, record_norm=high - high // 2)
    return math.sqrt(moved / (2 * self.rho))

  @property
  def draw(self) -> mechanism.Draw:
    """The law."""
    return _law(self.knows_total)

  @property
  def parameters(self) -> Parameters:
    """Noise and tree."""
    return Parameters(np.float64(self.scale), nodes(self.num_thresholds))

  def variances(self) -> np.ndarray:
    """Of the errors of the ranks [N], exact: equal, but of a known last one."""
    ones = height(self.num_thresholds) // 2
    found = np.full(self.num_thresholds, ones * self.scale**2)
    if self.knows_total:
      found[-1] = 0.0
    return found
