"""Densities from dyadic trees of counts and from Haar coefficients: baselines.

Both estimate sums over long ranges well, but each level takes a share of the
budget. The squared error of a density is that of its finest level, for which a
histogram of that level alone has the whole budget. They exist only for
comparison. Sources: Hay et al. 2010; Xiao et al. 2011, Privelet (item DEN-B10).
"""

import abc
from collections.abc import Sequence
import dataclasses
import functools
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from dpjax import errors
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import noisy_counts
from dpjax.stats.density_methods.densities import Density
from dpjax.stats.ecdf_methods import hierarchy
from dpjax.stats.ecdf_methods import trees
from dpjax.typing import Array, PRNGKey, PyTree


class LevelParameters(NamedTuple):
  """Public numbers that the sampler takes, by level from the top down.

  Attributes:
    scales: [J] noise scales.
    variances: [J] noise variances.
    num_records: n, or a public guess of it.
  """
  scales: ArrayLike
  variances: ArrayLike
  num_records: ArrayLike


class HaarParameters(NamedTuple):
  """Public numbers that the sampler of Haar coefficients takes.

  Attributes:
    levels: noise of the levels.
    threshold: in standard deviations.
  """
  levels: LevelParameters
  threshold: ArrayLike


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Levels(mechanism.DensityMechanism):
  """Common part of trees and wavelets: 2^J bins and noise by level.

  Attributes:
    height: J, number of levels below the root.
  """
  height: int = 8

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_at_least('height', self.height, 1)
    if self.epsilon is None and self.rho is None:
      raise ValueError('levels share a budget: there must be epsilon or rho, '
                       'got neither')

  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Returns counts [2^J] of records [n] in [0, 1]."""
    return mechanism.bin_counts(unit, 2**self.height)

  @property
  @abc.abstractmethod
  def scales(self) -> np.ndarray:
    """Discrete Laplace scales or standard deviations [J], from the top down."""

  @property
  def noise_variances(self) -> np.ndarray:
    """Noise variances [J] of what is measured, by level from the top down."""
    if self.pure:
      # Least squares divide by the variance, so it must stay above 0.
      return np.maximum([draws.discrete_laplace_variance(scale)
                         for scale in self.scales], 1e-30)
    return np.square(self.scales)

  @property
  def parameters(self) -> PyTree:
    """Float64 NumPy arrays that `draw` takes as parameters."""
    return self._level_parameters

  @property
  def _level_parameters(self) -> LevelParameters:
    """Scales and variances of the noise, and n."""
    return LevelParameters(self.scales, self.noise_variances,
                           np.array(self.num_records, np.float64))

  def _risk(self, density: Density, level: int, privacy: float
            ) -> mechanism.Risk:
    """Returns the risk of 2^level heights whose noise has this mean square."""
    if not self.knows_total:
      raise ValueError('expected() has a closed form under replace_one only')
    masses = density.masses(2**level)
    square = masses.size * float(np.sum(masses**2))
    return mechanism.Risk((masses.size - square) / self.num_records, privacy,
                          max(density.square - square, 0.0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeDensity(_Levels):
  """Noisy counts of all nodes of a binary tree, by least squares.

  Heights of one level are returned. Guarantee: epsilon-DP or rho-zCDP under
  `adjacency`. A record is in one node of each of J levels, so a level changes
  by 1 in l1 and in squared l2, and by 2 if a record is replaced; noise of each
  level costs its share of the budget. Least squares are post-processing: they
  make each node the sum of its children, and the root equal to a public n.

  Attributes:
    level: the returned level, from 1 for halves to J for leaves; None for
      leaves.
    shares: fractions of the budget [J], from the top down, with sum 1; None is
      even.
  """
  level: int | None = None
  shares: tuple[float, ...] | None = None

  def __post_init__(self) -> None:
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
    """The level that is returned."""
    return self.height if self.level is None else self.level

  @property
  def scales(self) -> np.ndarray:
    """Discrete Laplace scales or standard deviations [J], from the top down."""
    return hierarchy.noise_scales(
        self.shares or (1 / self.height,) * self.height,
        adjacency=self.adjacency, epsilon=self.epsilon, rho=self.rho)

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, counts, parameters) -> heights."""
    return _tree_sampler(self.height, self._level, self.pure, self.knows_total)

  def expected(self, density: Density) -> mechanism.Risk:
    """Returns the exact risk: a histogram's, with least squares noise of nodes.
    """
    size = 2**self._level
    noise = node_variances(self.noise_variances)[self._level - 1]
    return self._risk(density, self._level, size**2 * noise
                      / self.num_records**2)


def node_variances(variances: Sequence[float] | np.ndarray) -> np.ndarray:
  """Returns variances [J] of a node of each level by least squares, n public.

  Going up, a node's own count and the sum of its children are averaged by
  precision, which leaves variance s. Going down, a parent of variance p gives
  its children s / 2 + p / 4: their difference is kept, and their sum becomes
  the parent.

  Args:
    variances: [J], noise variances of the counts of a level, from the top down.
  """
  upward = [variances[-1]]
  for own in variances[-2::-1]:
    upward.append(own * 2 * upward[-1] / (own + 2 * upward[-1]))
  parent, node_variances_down = 0.0, []
  for siblings in upward[::-1]:
    parent = siblings / 2 + parent / 4
    node_variances_down.append(parent)
  return np.array(node_variances_down)


def oracle_level(tree: TreeDensity, density: Density) -> int:
  """Returns the level of least expected error for a known density."""
  return min(range(1, tree.height + 1), key=lambda level: dataclasses.replace(
      tree, level=level).expected(density).total)


@functools.cache
def _tree_sampler(height: int, level: int, pure: bool, known: bool
              ) -> mechanism.Draw:
  """Returns the sampler of `TreeDensity`."""
  shape = (2,) * height

  def draw(key: PRNGKey, counts: Array, parameters: LevelParameters) -> Array:
    variances = jnp.asarray(parameters.variances)
    noisy = trees.noisy_levels(key, counts, shape,
                               jnp.asarray(parameters.scales), pure=pure)
    total = jnp.asarray(parameters.num_records) if known else None
    leaves = hierarchy.least_squares(
        noisy, shape, [variances[j] for j in range(height)],
        jnp.ones_like(counts), total)
    # Leaves are consistent, so nodes of any level are sums of them.
    nodes = jnp.sum(leaves.reshape(2**level, -1), 1)
    return nodes * 2**level / noisy_counts.total(
        leaves, parameters.num_records, known)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class HaarDensity(_Levels):
  """Noisy differences of halves, with small ones set to 0: Privelet.

  Guarantee: epsilon-DP or rho-zCDP under REPLACE_ONE, n public.

  Sensitivity:
  1. A record adds 1 or -1 to one difference of every level.
  2. Two records that part at level s are in the same halves above it, where
     nothing changes; at s one difference changes by 2; below it two change by
     1.
  3. So each level changes by at most 2 in l1, and all do if s is the top:
     scales 2 / epsilon_j cost the sum of the epsilon_j.
  4. With noise of variances kappa / w_j the squared shift is (4 w_s + 2
     (w_(s+1) + ... + w_J)) / kappa, whose largest value is set to 2 rho.

  Thresholds are post-processing.

  Attributes:
    growth: ratio of the budgets of a level and the one above. The noise alone
      is least at 2^(2/3); a smaller ratio is better if the threshold removes
      most of the finest levels.
    threshold: in standard deviations of a difference, of its noise and of n /
      2^j records that fall evenly to both halves; 0 keeps all.
  """
  growth: float = 2**(1 / 3)
  threshold: float = 2.0

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_positive('growth', self.growth)
    errors.check_non_negative('threshold', self.threshold)
    if self.adjacency is not Adjacency.REPLACE_ONE:
      raise ValueError('differences do not determine n, which must be public: '
                       'use adjacency replace_one')

  @property
  def shares(self) -> np.ndarray:
    """Shares of the budget [J], from the top down."""
    weights = float(self.growth)**np.arange(self.height)
    return weights / weights.sum()

  @property
  def scales(self) -> np.ndarray:
    """Discrete Laplace scales or standard deviations [J], from the top down."""
    if self.epsilon is not None:
      return 2 / (self.epsilon * self.shares)
    assert self.rho is not None  # Checked when the mechanism was built.
    # Step 4 of the proof: the squared shift for each level of parting.
    below = np.cumsum(self.shares[::-1])[::-1]
    shift = np.max(2 * self.shares + 2 * below)
    return np.sqrt(shift / (2 * self.rho * self.shares))

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, counts, parameters) -> heights."""
    return _haar_sampler(self.height, self.pure)

  @property
  def parameters(self) -> HaarParameters:
    """Float64 NumPy arrays that `draw` takes as parameters."""
    return HaarParameters(self._level_parameters, np.float64(self.threshold))

  def expected(self, density: Density) -> mechanism.Risk:
    """Returns the exact risk; only without a threshold."""
    if self.threshold:
      return super(_Levels, self).expected(density)
    noise = np.sum(4.0**np.arange(self.height) * self.noise_variances)
    return self._risk(density, self.height, noise / self.num_records**2)


@functools.cache
def _haar_sampler(height: int, pure: bool) -> mechanism.Draw:
  """Returns the sampler of `HaarDensity`."""
  # Differences lie level by level: place i belongs to level places[i].
  sizes = 2**np.arange(height)
  places = np.repeat(np.arange(height), sizes)

  def draw(key: PRNGKey, counts: Array, parameters: HaarParameters) -> Array:
    levels, threshold = parameters
    noisy = trees.with_noise(key, differences(counts), jnp.asarray(
        levels.scales)[places], pure=pure)
    # Noise plus sampling: a node of level j has n / 2^j records on average.
    deviations = jnp.sqrt(jnp.asarray(levels.variances)
                          + levels.num_records / jnp.asarray(sizes * 1.0))
    thresholded = jnp.where(
        jnp.abs(noisy) > threshold * deviations[places], noisy, 0.0)
    sums = jnp.reshape(jnp.asarray(levels.num_records), (1,))
    for part in jnp.split(thresholded, np.cumsum(sizes)[:-1]):
      # Both halves from their sum and their difference.
      sums = jnp.stack([sums + part, sums - part], 1).reshape(-1) / 2
    return sums * counts.size / levels.num_records
  return draw


def differences(counts: Array) -> Array:
  """Returns Haar coefficients [2^J - 1] of counts [2^J]: left minus right half.
  """
  coefficients = []
  while counts.size > 1:
    pairs = counts.reshape(-1, 2)
    coefficients.append(pairs[:, 0] - pairs[:, 1])
    counts = pairs[:, 0] + pairs[:, 1]
  return jnp.concatenate(coefficients[::-1])
