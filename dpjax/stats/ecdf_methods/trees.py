"""Releases distribution functions from hierarchical counts.

Bins, groups of bins and so on are counted with noise, and a rank is a sum of
few of these counts. With least squares over the tree this is the most accurate
curve of pure differential privacy; a histogram is a tree of one level (items
EC-40 to EC-45).
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.stats.ecdf_methods import digits
from dpjax.stats.ecdf_methods import hierarchy
from dpjax.stats.ecdf_methods import mechanism
from dpjax.typing import Array, PRNGKey

ESTIMATORS = {
    'least_squares': 'from all counts, by least squares',
    'plain': 'whole nodes from the left (EC-41)',
    'signed': 'whole nodes, more or less (EC-42)',
    'honaker': 'as plain, nodes estimated from what is below them (EC-43)',
    'signed_honaker': 'as signed, with the nodes of Honaker'}


class TreeParameters(NamedTuple):
  """Public numbers that the sampler of a tree takes.

  Attributes:
    scales: [h], noise scales of the counts, by level from the top down.
    variances: [h], noise variances of the counts, likewise.
    turned: see `digits.Plan`; empty for least squares.
  """
  scales: np.ndarray
  variances: np.ndarray
  turned: tuple[np.ndarray, ...]


def noisy_levels(key: PRNGKey, leaves: Array, shape: hierarchy.Shape,
                 scales: Array, *, pure: bool) -> list[Array]:
  """Returns noisy counts of all nodes but the root, by level from the top down.

  Discrete Laplace noise, or Gaussian noise on the public grid of its scale.

  Args:
    key: used for nothing else.
    leaves: [M] counts of all leaves, including empty ones.
    shape: shape of the tree.
    scales: [h], noise scales by level.
    pure: whether noise is Laplace.
  """
  sizes = np.cumprod(shape)
  # One draw for all levels, because samplers take long to compile.
  scale = jnp.concatenate([jnp.broadcast_to(scales[level], [int(number)])
                           for level, number in enumerate(sizes)])
  noisy = with_noise(key, jnp.concatenate(hierarchy.levels(leaves, shape)),
                     scale, pure=pure)
  return jnp.split(noisy, np.cumsum(sizes)[:-1])


def with_noise(key: PRNGKey, exact: Array, scale: Array, *, pure: bool
               ) -> Array:
  """Returns integers [m] with noise of scales [m], float64; see `noisy_levels`.
  """
  if pure:
    noisy = exact + draws.discrete_laplace(key, exact.shape, scale[None],
                                           jnp.float64)
  else:
    noisy = additive.on_grid(exact + scale * additive.standard_normal(
        key, exact.shape).astype(jnp.float64), scale)
  # Without the barrier XLA draws again for each part that is read.
  return jax.lax.optimization_barrier(noisy)


def nonnegative(noisy: Sequence[Array], shape: hierarchy.Shape,
                variances: Array, alive: Array,
                total: Array | None = None) -> Array:
  """Returns what `hierarchy.nonnegative` does, jittable."""
  first = hierarchy.least_squares(noisy, shape, variances, alive, total)
  if total is None:
    total = jnp.maximum(jnp.sum(first), 0.0)

  # A leaf set to 0 never comes back (`hierarchy.nonnegative`), so this ends.
  def drop_negative(state: tuple[Array, Array]) -> tuple[Array, Array]:
    alive = state[0] * (state[1] >= 0).astype(first.dtype)
    return alive, hierarchy.least_squares(noisy, shape, variances, alive, total)

  return jax.lax.while_loop(lambda state: jnp.any(state[1] < 0), drop_negative,
                            (alive, first))[1]


def ended(ranks: Array, total: Array | None, *, monotone: bool) -> Array:
  """Returns ranks that end at a public n, and undoes decreases by rounding.

  Sums of counts >= 0 may decrease a little, since terms are added in different
  orders.
  """
  if monotone:
    ranks = jax.lax.cummax(ranks)
    ranks = ranks if total is None else jnp.minimum(ranks, total)
  return ranks if total is None else ranks.at[-1].set(total)


def estimated(noisy: Sequence[Array], size: int, parameters: TreeParameters,
              total: Array | None, *, shape: hierarchy.Shape, estimator: str,
              monotone: bool) -> Array:
  """Returns ranks [N] from noisy counts of all nodes but the root.

  Args:
    noisy: by level from the top down.
    size: N.
    parameters: parameters of the noise.
    total: n if public, else None.
    shape: shape of the tree.
    estimator: one of `ESTIMATORS`.
    monotone: see `TreeEcdf`.
  """
  # Leaves behind the last bin are known to be empty.
  alive = (jnp.arange(noisy[-1].size) < size).astype(noisy[-1].dtype)
  variances = jnp.asarray(parameters.variances)
  if estimator == 'least_squares':
    solve = nonnegative if monotone else hierarchy.least_squares
    leaf_ranks = jnp.cumsum(solve(noisy, shape, variances, alive, total))
    return ended(leaf_ranks[:size], total, monotone=monotone)
  if estimator.endswith('honaker'):
    values = [value for value, _ in hierarchy.upward(
        noisy, shape, variances, alive)[0]]
  else:
    # Nodes without bins count 0, not their noise.
    values = [value * (number > 0).astype(value.dtype) for value, number
              in zip(noisy, hierarchy.levels(alive, shape), strict=True)]
  leaf_ranks = digits.ranks(values, shape, parameters.turned, total)
  return ended(leaf_ranks[:size], total, monotone=False)


@functools.cache
def _sampler(shape: hierarchy.Shape, estimator: str, pure: bool, known: bool,
             monotone: bool) -> mechanism.Draw:
  """Returns the sampler (key, counts, parameters) -> ranks."""
  def draw(key: PRNGKey, counts: Array, parameters: TreeParameters) -> Array:
    # The tree may have more leaves than bins; the others are empty.
    leaves = jnp.pad(counts, (0, math.prod(shape) - counts.size))
    noisy = noisy_levels(key, leaves, shape, jnp.asarray(parameters.scales),
                         pure=pure)
    return estimated(noisy, counts.size, parameters,
                     jnp.sum(counts) if known else None, shape=shape,
                     estimator=estimator, monotone=monotone)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeEcdf(mechanism.EcdfMechanism):
  """Hierarchical counts, made consistent and summed to ranks.

  Guarantee: epsilon-DP or rho-zCDP under `adjacency`. A record is counted once
  on each of h levels: counts change by h in l1 and in squared l2, and by 2 h if
  a record is replaced.

  Attributes:
    shape: number of parts of the nodes of each level, the root first, with N
      leaves or more. None is the best for the estimator and an even budget;
      (N,) is a histogram.
    estimator: one of `ESTIMATORS`. Only ranks of 'least_squares' can be made
      monotone; the others are for comparison, and for streams.
    shares: fractions of the budget [h], by level from the top down; None is
      even, and `hierarchy.tuned_shares` gives the best.
  """
  shape: hierarchy.Shape | None = None
  estimator: str = 'least_squares'
  shares: tuple[float, ...] | None = None

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_choice('estimator', self.estimator, ESTIMATORS)
    if self.monotone and self.estimator != 'least_squares':
      raise ValueError('only ranks by least squares are made monotone: set '
                       f"monotone=False for estimator='{self.estimator}'")
    hierarchy.check_shape(self.branching, self.num_thresholds)
    if self.shares is not None:
      self._check_shares(self.shares)

  def _check_shares(self, shares: tuple[float, ...]) -> None:
    """Raises unless shares are positive, one per level, and sum to 1."""
    if len(shares) != len(self.branching):
      raise ValueError(f'there must be shares of {len(self.branching)} levels, '
                       f'got {len(shares)} shares')
    for share in shares:
      errors.check_positive('shares', share)
    if abs(sum(shares) - 1) > 1e-9:
      raise ValueError(f'shares must sum to 1, got {sum(shares)}')

  @functools.cached_property
  def branching(self) -> hierarchy.Shape:
    """Shape of the tree in use: `shape`, or the best one."""
    if self.shape is not None:
      return self.shape
    public = dict(known=self.knows_total, pure=self.pure)
    if self.estimator == 'least_squares':
      return hierarchy.best_shape(self.num_thresholds, **public)
    return digits.best_shape(self.num_thresholds, **public,
                             **self._ways)

  @property
  def _ways(self) -> dict[str, bool]:
    """Options of `digits.plan` for the estimator."""
    return dict(signed=self.estimator.startswith('signed'),
                bottom_up=self.estimator.endswith('honaker'))

  @property
  def scales(self) -> np.ndarray:
    """Laplace scales or standard deviations of the levels [h], top down."""
    high = len(self.branching)
    return hierarchy.noise_scales(
        self.shares or (1 / high,) * high, adjacency=self.adjacency,
        epsilon=self.epsilon, rho=self.rho)

  @property
  def scale(self) -> float:
    """Noise scale of the top level; that of all levels for an even budget."""
    return float(self.scales[0])

  @property
  def noise_variances(self) -> np.ndarray:
    """Variances [h] of the noise of counts, by level from the top down."""
    if self.pure:
      # Least squares divide by the variance, so it must stay above 0.
      return np.maximum([draws.discrete_laplace_variance(scale)
                         for scale in self.scales], 1e-30)
    return np.square(self.scales)

  @functools.cached_property
  def _plan(self) -> digits.Plan:
    """How ranks are summed, and their exact variances."""
    if self.estimator == 'least_squares':
      return digits.Plan((), hierarchy.prefix_variances(
          self.branching, self.noise_variances, self.num_thresholds,
          known=self.knows_total))
    return digits.plan(self.branching, self.noise_variances,
                       self.num_thresholds, known=self.knows_total,
                       **self._ways)

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, counts, parameters) -> ranks."""
    return _sampler(self.branching, self.estimator, self.pure, self.knows_total,
                    self.monotone)

  @property
  def parameters(self) -> TreeParameters:
    """Float64 NumPy arrays that `draw` takes as parameters."""
    exact = self.estimator == 'least_squares'
    return TreeParameters(self.scales, self.noise_variances,
                      () if exact else self._plan.turned)

  def variances(self) -> np.ndarray:
    """Returns exact error variances of the ranks [N], before the projection."""
    return self._plan.variances
