"""Distribution functions from hierarchical counts.

Bins, bins of bins and so on are counted with noise, which a rank crosses few
of. With least squares over the tree this is the most exact curve of pure
differential privacy; a histogram is a tree of one level (item EC-40 to EC-45).
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
from dpjax.stats.ecdf import digits
from dpjax.stats.ecdf import hierarchy
from dpjax.stats.ecdf import mechanism
from dpjax.typing import Array, PRNGKey

ESTIMATORS = {
    'least_squares': 'from all counts, by least squares',
    'plain': 'whole nodes from the left (EC-41)',
    'signed': 'whole nodes, more or less (EC-42)',
    'honaker': 'as plain, nodes estimated from what is below them (EC-43)',
    'signed_honaker': 'as signed, with the nodes of Honaker'}


class Parameters(NamedTuple):
  """Of the noise, by level from the top down.

  Attributes:
    scales: [h] of the noise of counts.
    variances: [h] of the same.
    turned: of `digits.Plan`; empty for least squares.
  """
  scales: np.ndarray
  variances: np.ndarray
  turned: tuple[np.ndarray, ...]


def noisy_levels(key: PRNGKey, leaves: Array, shape: hierarchy.Shape,
                 scales: Array, *, pure: bool) -> list[Array]:
  """Counts of all nodes but the root with noise, by level from the top down.

  Discrete Laplace noise, or Gaussian noise on the public grid of its scale.

  Args:
    key: used for nothing else.
    leaves: [M] counts of all leaves, empty ones too.
    shape: of the tree.
    scales: [h] of the noise.
    pure: whether it is Laplace.
  """
  sizes = np.cumprod(shape)
  # One draw for all levels: to draw is long to compile.
  scale = jnp.concatenate([jnp.broadcast_to(scales[level], [int(number)])
                           for level, number in enumerate(sizes)])
  noisy = with_noise(key, jnp.concatenate(hierarchy.levels(leaves, shape)),
                     scale, pure=pure)
  return jnp.split(noisy, np.cumsum(sizes)[:-1])


def with_noise(key: PRNGKey, exact: Array, scale: Array, *, pure: bool
               ) -> Array:
  """Integers [m] float64 with noise of scales [m]; see `noisy_levels`."""
  if pure:
    noisy = exact + draws.discrete_laplace(key, exact.shape, scale[None],
                                           jnp.float64)
  else:
    noisy = additive.on_grid(exact + scale * additive.standard_normal(
        key, exact.shape).astype(jnp.float64), scale)
  # Or each part that is read would be drawn anew.
  return jax.lax.optimization_barrier(noisy)


def nonnegative(noisy: Sequence[Array], shape: hierarchy.Shape,
                variances: Array, alive: Array,
                total: Array | None = None) -> Array:
  """`hierarchy.nonnegative`, compiled."""
  first = hierarchy.least_squares(noisy, shape, variances, alive, total)
  if total is None:
    total = jnp.maximum(jnp.sum(first), 0.0)

  def closer(state):
    alive = state[0] * (state[1] >= 0).astype(first.dtype)
    return alive, hierarchy.least_squares(noisy, shape, variances, alive, total)

  return jax.lax.while_loop(lambda state: jnp.any(state[1] < 0), closer,
                            (alive, first))[1]


def ended(ranks: Array, total: Array | None, *, monotone: bool) -> Array:
  """Ranks that end at n where it is known; without what rounding turned round.

  Sums of counts >= 0 fall here and there by the rounding of what was added in
  another order.
  """
  if monotone:
    ranks = jax.lax.cummax(ranks)
    ranks = ranks if total is None else jnp.minimum(ranks, total)
  return ranks if total is None else ranks.at[-1].set(total)


def estimated(noisy: Sequence[Array], size: int, parameters: Parameters,
              total: Array | None, *, shape: hierarchy.Shape, estimator: str,
              monotone: bool) -> Array:
  """Ranks [N] from noisy counts of all nodes but the root.

  Args:
    noisy: by level from the top down.
    size: N.
    parameters: of the noise.
    total: n, if it is known.
    shape: of the tree.
    estimator: one of `ESTIMATORS`.
    monotone: as the attribute of `TreeEcdf`.
  """
  alive = (jnp.arange(noisy[-1].size) < size).astype(noisy[-1].dtype)
  variances = jnp.asarray(parameters.variances)
  if estimator == 'least_squares':
    solve = nonnegative if monotone else hierarchy.least_squares
    found = jnp.cumsum(solve(noisy, shape, variances, alive, total))
    return ended(found[:size], total, monotone=monotone)
  if estimator.endswith('honaker'):
    values = [value for value, _ in hierarchy.upward(
        noisy, shape, variances, alive)[0]]
  else:
    values = [value * (number > 0).astype(value.dtype) for value, number
              in zip(noisy, hierarchy.levels(alive, shape), strict=True)]
  found = digits.ranks(values, shape, parameters.turned, total)
  return ended(found[:size], total, monotone=False)


@functools.cache
def _law(shape: hierarchy.Shape, estimator: str, pure: bool, known: bool,
         monotone: bool) -> mechanism.Draw:
  def draw(key: PRNGKey, counts: Array, parameters: Parameters) -> Array:
    leaves = jnp.pad(counts, (0, math.prod(shape) - counts.size))
    noisy = noisy_levels(key, leaves, shape, jnp.asarray(parameters.scales),
                         pure=pure)
    return estimated(noisy, counts.size, parameters,
                     jnp.sum(counts) if known else None, shape=shape,
                     estimator=estimator, monotone=monotone)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeEcdf(mechanism.EcdfMechanism):
  """Hierarchical counts, made consistent and cumulated.

  Guarantee: that of the budget under `adjacency`. A record is counted once on
  each of h levels: counts move by h in l1 and in squared l2, and by 2 h where
  one is replaced.

  Attributes:
    shape: into how many parts the nodes of each level are cut, the root first,
      N leaves or more; None is the best one for the estimator and an even
      budget. (N,) is a histogram.
    estimator: one of `ESTIMATORS`. Only ranks of 'least_squares' are made
      monotone; the others are there to compare, and for streams.
    shares: of the budget [h], by level from the top down; None is even, and
      `hierarchy.tuned_shares` gives the best.
  """
  shape: hierarchy.Shape | None = None
  estimator: str = 'least_squares'
  shares: tuple[float, ...] | None = None

  def __post_init__(self):
    super().__post_init__()
    errors.check_choice('estimator', self.estimator, ESTIMATORS)
    if self.monotone and self.estimator != 'least_squares':
      raise ValueError('only ranks by least squares are made monotone: set '
                       f"monotone=False for estimator='{self.estimator}'")
    hierarchy.check_shape(self.branching, self.num_thresholds)
    if self.shares is not None:
      self._check_shares()

  def _check_shares(self):
    if len(self.shares) != len(self.branching):
      raise ValueError(f'there must be shares of {len(self.branching)} levels, '
                       f'got {len(self.shares)}')
    for share in self.shares:
      errors.check_positive('shares', share)
    if abs(sum(self.shares) - 1) > 1e-9:
      raise ValueError(f'shares must sum to 1, got {sum(self.shares)}')

  @functools.cached_property
  def branching(self) -> hierarchy.Shape:
    """The shape that is used."""
    if self.shape is not None:
      return self.shape
    public = dict(known=self.knows_total, pure=self.pure)
    if self.estimator == 'least_squares':
      return hierarchy.best_shape(self.num_thresholds, **public)
    return digits.best_shape(self.num_thresholds, **public,
                             **self._ways)

  @property
  def _ways(self) -> dict[str, bool]:
    return dict(signed=self.estimator.startswith('signed'),
                bottom_up=self.estimator.endswith('honaker'))

  @property
  def scales(self) -> np.ndarray:
    """[h] of discrete Laplace noise, or standard deviations; top down."""
    high = len(self.branching)
    return hierarchy.noise_scales(
        self.shares or (1 / high,) * high, adjacency=self.adjacency,
        epsilon=self.epsilon, rho=self.rho)

  @property
  def scale(self) -> float:
    """Of the top level; of all where the budget is even."""
    return float(self.scales[0])

  @property
  def noise_variances(self) -> np.ndarray:
    """[h] of the noise of counts, by level from the top down."""
    if self.pure:
      # Least squares divide by it: no noise at all is next to none.
      return np.maximum([draws.discrete_laplace_variance(scale)
                         for scale in self.scales], 1e-30)
    return np.square(self.scales)

  @functools.cached_property
  def _plan(self) -> digits.Plan:
    if self.estimator == 'least_squares':
      return digits.Plan((), hierarchy.prefix_variances(
          self.branching, self.noise_variances, self.num_thresholds,
          known=self.knows_total))
    return digits.plan(self.branching, self.noise_variances,
                       self.num_thresholds, known=self.knows_total,
                       **self._ways)

  @property
  def draw(self) -> mechanism.Draw:
    """The law."""
    return _law(self.branching, self.estimator, self.pure, self.knows_total,
                self.monotone)

  @property
  def parameters(self) -> Parameters:
    """Noise, and where ranks turn."""
    exact = self.estimator == 'least_squares'
    return Parameters(self.scales, self.noise_variances,
                      () if exact else self._plan.turned)

  def variances(self) -> np.ndarray:
    """Of the errors of the ranks [N], exact, before they are made monotone."""
    return self._plan.variances
