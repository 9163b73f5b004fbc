"""Densities from dyadic trees of counts, and from Haar coefficients: baselines.

Both tell sums over long ranges well, and cost a share of the budget for each
level; the squared error of a density is that of its finest level, for which a
histogram of that level alone has all of the budget. They are here to be
compared with. Sources: Hay et al. 2010; Xiao et al. 2011, Privelet (item
DEN-B10).
"""

import abc
from collections.abc import Sequence
import dataclasses
import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density import mechanism
from dpjax.stats.density import noisy_counts
from dpjax.stats.density.laws import Density
from dpjax.stats.ecdf import hierarchy
from dpjax.stats.ecdf import trees
from dpjax.typing import Array, PRNGKey


class Parameters(NamedTuple):
  """Numbers of a release of levels, [J] from the top down.

  Attributes:
    scales: of their noise.
    variances: of the same.
    num_records: n, or a public guess.
  """
  scales: np.ndarray
  variances: np.ndarray
  num_records: np.ndarray


class HaarParameters(NamedTuple):
  """Numbers of a release of differences.

  Attributes:
    levels: of their noise.
    threshold: in standard deviations.
  """
  levels: Parameters
  threshold: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Levels(mechanism.DensityMechanism):
  """What trees and wavelets share: 2^J bins and noise by level.

  Attributes:
    height: J, of levels below the root.
  """
  height: int = 8

  def __post_init__(self):
    super().__post_init__()
    errors.check_at_least('height', self.height, 1)
    if self.epsilon is None and self.rho is None:
      raise ValueError('levels share a budget: there must be epsilon or rho')

  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Counts [2^J] of records [n] in [0, 1]."""
    return mechanism.bin_counts(unit, 2**self.height)

  @property
  @abc.abstractmethod
  def scales(self) -> np.ndarray:
    """[J] of discrete Laplace noise, or standard deviations; top down."""

  @property
  def noise_variances(self) -> np.ndarray:
    """[J] of what is measured, by level from the top down."""
    if self.pure:
      # Least squares divide by it: no noise at all is next to none.
      return np.maximum([draws.discrete_laplace_variance(scale)
                         for scale in self.scales], 1e-30)
    return np.square(self.scales)

  @property
  def parameters(self) -> Parameters:
    """Noise by level, and n."""
    return Parameters(self.scales, self.noise_variances,
                      np.array(self.num_records, np.float64))

  def _risk(self, density: Density, level: int, privacy: float
            ) -> mechanism.Risk:
    """Of heights of 2^level bins whose noise has this mean square."""
    if not self.knows_total:
      raise ValueError('the closed form is that of replace_one')
    masses = density.masses(2**level)
    square = masses.size * float(np.sum(masses**2))
    return mechanism.Risk((masses.size - square) / self.num_records, privacy,
                          max(density.square - square, 0.0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeDensity(_Levels):
  """Counts of all nodes of a binary tree, by least squares; one level is read.

  Guarantee: that of the budget under `adjacency`. A record is in one node of
  each of J levels, so that level j moves by 1 in l1 and in squared l2, by 2
  where one is replaced, and noise of each level costs its share of the budget;
  shares sum to 1. Least squares are post-processing: each node is then the sum
  of its children, and the root is n where n is public.

  Attributes:
    level: which is read, from 1 for halves to J for leaves; None for leaves.
    shares: of the budget [J], from the top down; None is even.
  """
  level: int | None = None
  shares: tuple[float, ...] | None = None

  def __post_init__(self):
    super().__post_init__()
    errors.check_at_least('level', self._level, 1)
    if self._level > self.height:
      raise ValueError(f'a tree of {self.height} levels has no level '
                       f'{self.level}')
    if self.shares is not None and (
        len(self.shares) != self.height
        or not all(share > 0 for share in self.shares)
        or not abs(sum(self.shares) - 1) <= 1e-9):
      raise ValueError(f'shares of {self.height} levels must be positive and '
                       f'sum to 1, got {self.shares}')

  @property
  def _level(self) -> int:
    return self.height if self.level is None else self.level

  @property
  def scales(self) -> np.ndarray:
    """[J] of discrete Laplace noise, or standard deviations; top down."""
    return hierarchy.noise_scales(
        self.shares or (1 / self.height,) * self.height,
        adjacency=self.adjacency, epsilon=self.epsilon, rho=self.rho)

  @property
  def draw(self) -> mechanism.Draw:
    """The law."""
    return _tree_law(self.height, self._level, self.pure, self.knows_total)

  def expected(self, density: Density) -> mechanism.Risk:
    """Exact: noise of a node by least squares beside the histogram's error."""
    size = 2**self._level
    noise = node_variances(self.noise_variances)[self._level - 1]
    return self._risk(density, self._level, size**2 * noise
                      / self.num_records**2)


def node_variances(variances: Sequence[float]) -> np.ndarray:
  """Of a node of each level [J] of a binary tree by least squares, n public.

  Going up, a node's own count and the sum of its children are averaged by
  precision, which leaves s. Going down, a parent known up to p gives its
  children s / 2 + p / 4: what they differ by stays, their sum is the parent.

  Args:
    variances: [J] of noise of the counts of a level, from the top down.
  """
  upward = [variances[-1]]
  for own in variances[-2::-1]:
    upward.append(own * 2 * upward[-1] / (own + 2 * upward[-1]))
  parent, found = 0.0, []
  for spread in upward[::-1]:
    parent = spread / 2 + parent / 4
    found.append(parent)
  return np.array(found)


def oracle_level(asked: TreeDensity, density: Density) -> int:
  """The level of least expected error for a density that is known."""
  return min(range(1, asked.height + 1), key=lambda level: dataclasses.replace(
      asked, level=level).expected(density).total)


@functools.cache
def _tree_law(height: int, level: int, pure: bool, known: bool
              ) -> mechanism.Draw:
  shape = (2,) * height

  def draw(key: PRNGKey, counts: Array, parameters: Parameters) -> Array:
    variances = jnp.asarray(parameters.variances)
    noisy = trees.noisy_levels(key, counts, shape,
                               jnp.asarray(parameters.scales), pure=pure)
    total = jnp.asarray(parameters.num_records) if known else None
    leaves = hierarchy.least_squares(noisy, shape, variances,
                                     jnp.ones_like(counts), total)
    read = jnp.sum(leaves.reshape(2**level, -1), 1)
    return read * 2**level / noisy_counts.total(leaves, parameters, known)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class HaarDensity(_Levels):
  """Differences of halves with noise, small ones set to 0: Privelet.

  Guarantee: epsilon-DP or rho-zCDP under REPLACE_ONE, n public. A record adds 1
  or -1 to one difference of every level. Two records that part at level s are
  in the same halves above, so that nothing moves there; at s one difference
  moves by 2; below two move by 1. Each level moves by 2 in l1 at most, and all
  do where s is the top, so that scales 2 / epsilon_j cost the sum of epsilon_j.
  With noise of variances kappa / w_j the squared shift is (4 w_s + 2 sum_(j >
  s) w_j) / kappa, whose largest is 2 rho. Thresholds are post-processing.

  Attributes:
    growth: of the budget from a level to the next. Noise alone is least at
      2^(2/3); less goes to the finest levels where these fall to the threshold.
    threshold: in standard deviations of a difference, of its noise and of n /
      2^j records that fall to either half alike; 0 keeps all.
  """
  growth: float = 2**(1 / 3)
  threshold: float = 2.0

  def __post_init__(self):
    super().__post_init__()
    errors.check_positive('growth', self.growth)
    errors.check_non_negative('threshold', self.threshold)
    if self.adjacency is not Adjacency.REPLACE_ONE:
      raise ValueError('differences say nothing of n, which must be public: '
                       'replace_one')

  @property
  def shares(self) -> np.ndarray:
    """[J] of the budget, from the top down."""
    weights = float(self.growth)**np.arange(self.height)
    return weights / weights.sum()

  @property
  def scales(self) -> np.ndarray:
    """[J] of discrete Laplace noise, or standard deviations; top down."""
    if self.pure:
      return 2 / (self.epsilon * self.shares)
    below = np.cumsum(self.shares[::-1])[::-1]
    shift = np.max(2 * self.shares + 2 * below)
    return np.sqrt(shift / (2 * self.rho * self.shares))

  @property
  def draw(self) -> mechanism.Draw:
    """The law."""
    return _haar_law(self.height, self.pure)

  @property
  def parameters(self) -> HaarParameters:
    """Noise by level, n, and where differences fall."""
    return HaarParameters(super().parameters, np.float64(self.threshold))

  def expected(self, density: Density) -> mechanism.Risk:
    """Exact, where nothing is thresholded."""
    if self.threshold:
      return super(_Levels, self).expected(density)
    noise = np.sum(4.0**np.arange(self.height) * self.noise_variances)
    return self._risk(density, self.height, noise / self.num_records**2)


@functools.cache
def _haar_law(height: int, pure: bool) -> mechanism.Draw:
  sizes = 2**np.arange(height)
  places = np.repeat(np.arange(height), sizes)

  def draw(key: PRNGKey, counts: Array, parameters: HaarParameters) -> Array:
    levels, threshold = parameters
    noisy = trees.with_noise(key, differences(counts), jnp.asarray(
        levels.scales)[places], pure=pure)
    deviations = jnp.sqrt(jnp.asarray(levels.variances)
                          + levels.num_records / jnp.asarray(sizes * 1.0))
    kept = jnp.where(jnp.abs(noisy) > threshold * deviations[places], noisy,
                     0.0)
    found = jnp.reshape(jnp.asarray(levels.num_records), (1,))
    for part in jnp.split(kept, np.cumsum(sizes)[:-1]):
      found = jnp.stack([found + part, found - part], 1).reshape(-1) / 2
    return found * counts.size / levels.num_records
  return draw


def differences(counts: Array) -> Array:
  """Haar coefficients [2^J - 1] of counts [2^J]: halves less other halves."""
  found = []
  while counts.size > 1:
    pairs = counts.reshape(-1, 2)
    found.append(pairs[:, 0] - pairs[:, 1])
    counts = pairs[:, 0] + pairs[:, 1]
  return jnp.concatenate(found[::-1])
