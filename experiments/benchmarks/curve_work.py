"""Inputs of the benchmarks of curves: noisy ranks, mechanisms, keys, counts.

Counts of N bins are Poisson of mean 3 (item EC-28); a budget is for one release
of a whole curve under replace-one. A comparison uses 16 of 1024 thresholds for
each owner, or all thresholds for all owners at once.
"""

from typing import NamedTuple

import numpy as np

from dpjax.mpc import comparison
from dpjax.mpc import prg
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.ecdf_methods import mechanism
from dpjax.stats.ecdf_methods import toeplitz
from dpjax.stats.ecdf_methods import trees

EPSILON = 0.5
RHO = EPSILON**2 / 2
DEPTH, VALUE_BITS = 10, 32
"""Comparisons have a domain of 2^10 points, and outputs modulo 2^32."""

THRESHOLDS = 16
_MEAN_COUNT = 3.0


class Compared(NamedTuple):
  """Keys of owners, and the numbers that are compared.

  Attributes:
    keys: keys for both servers.
    alphas: [n] secret number of each owner.
    points: [n, THRESHOLDS] public numbers for each owner.
  """
  keys: tuple[comparison.Keys, comparison.Keys]
  alphas: np.ndarray
  points: np.ndarray


def counts(size: int) -> np.ndarray:
  """Returns counts of records in N bins, [N] float64."""
  return np.random.default_rng(0).poisson(_MEAN_COUNT, size).astype(np.float64)


def nodes(size: int) -> list[tuple[np.ndarray, np.ndarray]]:
  """Returns, by level, where the nodes of 1, 2, 4, ... rows start and end."""
  starts = [np.arange(0, size, 2**level)
            for level in range((size - 1).bit_length() + 1)]
  return [(start, np.minimum(start + 2**level, size))
          for level, start in enumerate(starts)]


def noisy_ranks(size: int) -> tuple[np.ndarray, float]:
  """Returns n and ranks [N] with noise of Barczewski (2025, equation 6.3.1).

  Returns:
    (noisy ranks, n).
  """
  rng, levels = np.random.default_rng(1), nodes(size)
  ranks = np.cumsum(counts(size))
  total = float(ranks[-1])
  for start, end in levels:
    noise = rng.laplace(0, len(levels) / EPSILON, start.size)
    ranks += np.repeat(noise, end - start)
  return ranks, total


def released(model: str, size: int) -> mechanism.EcdfMechanism:
  """Returns the mechanism of a release."""
  public = dict(num_thresholds=size, adjacency=Adjacency.REPLACE_ONE)
  if model == 'release_tree':
    return trees.TreeEcdf(epsilon=EPSILON, **public)
  return toeplitz.SquareRootEcdf(rho=RHO, **public)


def compared(size: int) -> Compared:
  """Returns the keys and numbers of `size` owners."""
  rng = np.random.default_rng(2)
  alphas = rng.integers(0, 2**DEPTH, size)
  keys = comparison.generate(
      alphas, np.ones(size, np.int64), depth=DEPTH, value_bits=VALUE_BITS,
      source=prg.Stream(bytes(32)))
  return Compared(keys, alphas, rng.integers(0, 2**DEPTH, (size, THRESHOLDS)))


def opened(shares: list[np.ndarray]) -> np.ndarray:
  """Returns the sum of the shares of both servers, modulo 2^32."""
  return sum(shares) & np.uint64(2**VALUE_BITS - 1)
