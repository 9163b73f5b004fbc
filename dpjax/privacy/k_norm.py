"""K-norm noise: the exponential mechanism of a p-norm, for p in 1, 2, inf.

The noise b has density proportional to exp(-||b||_p / scale). With the score
-||o - G||_p the exponential mechanism is translation invariant, so its
normaliser does not depend on the data, the factor 1/2 of the general mechanism
is not needed, and one release costs ||shift||_p / scale (Hardt and Talwar 2010;
Barczewski 2025, section 5.2, which names the idea but no score; item LDP-03,
erratum E14).

The noise grows like d, Gaussian noise like sqrt(d), so this is for very small
models only. It is not needed for p-norm Lipschitz bounds: a p-norm bound is an
l2 bound up to `p_norm_bound`, and Gaussian noise always applies.
"""

from collections.abc import Sequence
import dataclasses
import math

import jax
import jax.flatten_util
import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.privacy.adjacency import sum_sensitivity
from dpjax.typing import Array, PRNGKey, PyTree

ORDERS = (1, 2, math.inf)


def check_order(order: float) -> float:
  """Returns the norm's `order` if it is 1, 2 or infinity."""
  if order not in ORDERS:
    raise ValueError(f'order must be 1, 2 or inf, got {order}')
  return order


def unit_noise(key: PRNGKey, size: int, *, order: float) -> Array:
  """Draws one vector [size] of density proportional to exp(-||b||_order).

  Order 1: independent Laplace numbers. Order 2: a Gamma(size) radius times a
  uniform direction. Order inf: a Gamma(size + 1) radius times a uniform point
  of the cube [-1, 1]^size.
  """
  check_order(order)
  if order == 1 or size == 1:
    return draws.standard_laplace(key, (size,))
  radius_key, shape_key = jax.random.split(key)
  if order == 2:
    return (draws.standard_gamma(radius_key, size) *
            draws.standard_direction(shape_key, size))
  return (draws.standard_gamma(radius_key, size + 1) *
          draws.standard_uniform(shape_key, (size,)))


def expected_square(size: int, *, order: float) -> float:
  """Returns the expected squared l2 norm of `unit_noise`."""
  return {1: 2.0 * size, 2: size * (size + 1.0),
          math.inf: size * (size + 1.0) * (size + 2.0) / 3}[check_order(order)]


def add_noise(key: PRNGKey, values: PyTree, scale: Array | float, *,
              order: float) -> PyTree:
  """Adds noise to all leaves as one vector, and rounds to a public grid.

  Args:
    key: fresh for this call.
    values: pytree of float32 arrays.
    scale: positive scale of the p-norm; does not depend on the private data.
    order: p.
  """
  flat, unravel = jax.flatten_util.ravel_pytree(values)
  noisy = flat + scale * unit_noise(key, flat.size, order=order)
  # Typical size of one coordinate's noise; sets the grid.
  typical = {1: 1.0, 2: flat.size**0.5, math.inf: flat.size}[order]
  return unravel(additive.on_grid(noisy, scale * typical))


def p_norm_bound(l2_bound: Array | float, size: int, *,
                 order: float) -> Array | float:
  """Returns a bound on the p-norm of a vector [size] from its l2 bound."""
  return l2_bound * (size**0.5 if check_order(order) == 1 else 1.0)


def allocate(bounds: Array, *, noise_multiplier: Array | float,
             sizes: Sequence[int], order: float) -> Array:
  """Returns scales [K] of K blocks that minimise the expected squared noise.

  The blocks are noised on one subsample. Pure costs add over blocks, also
  before subsampling: sum_k D_k / s_k = 1 / noise_multiplier. With c_k the
  expected square of unit noise in block k, s_k = noise_multiplier (sum_j
  D_j^(2/3) c_j^(1/3)) (D_k / c_k)^(1/3).

  Args:
    bounds: [K] p-norm bounds D_k of one record's contribution.
    noise_multiplier: 1 / epsilon of one release under add-or-remove-one.
    sizes: number of scalars in each block.
    order: p.
  """
  bounds = jnp.asarray(bounds)
  roots = jnp.asarray([expected_square(size, order=order)**(1 / 3)
                       for size in sizes], bounds.dtype)
  total = jnp.sum(jnp.cbrt(bounds)**2 * roots)
  return noise_multiplier * total * jnp.cbrt(bounds) / roots


def joint_noise_multiplier(bounds: Array, scales: Array) -> Array:
  """Returns the multiplier of a release of all blocks: 1 / sum_k (D_k / s_k).
  """
  return 1 / jnp.sum(bounds / scales)


def event(*, noise_multiplier: float, order: float) -> accounting.DpEvent:
  """Returns the event of one K-norm release.

  The noise scale is `noise_multiplier` times one record's p-norm. The release
  is (1 / noise_multiplier)-DP under add-or-remove-one. Order 1 is Laplace
  noise, which composes more tightly than its epsilon.
  """
  if check_order(order) == 1:
    return accounting.laplace_event(noise_multiplier=noise_multiplier)
  errors.check_positive('noise_multiplier', noise_multiplier)
  return accounting.pure_event(epsilon=1 / noise_multiplier,
                               adjacency=Adjacency.ADD_OR_REMOVE_ONE)


def calibrate_noise_multiplier(*, target_epsilon: float, target_delta: float,
                               sampling_prob: float, num_steps: int,
                               order: float, adjacency: Adjacency,
                               accountant: str = 'pld') -> float:
  """Returns the joint multiplier of a Poisson-sampled run.

  It is at most 1e-4 (relative) above the least one that meets the target. Each
  step is amplified to ln(1 + q (e^(1/multiplier) - 1)), and the accountant
  composes the steps; see `accounting.epsilon` for the arguments.
  """
  errors.check_positive('epsilon', target_epsilon)
  errors.check_at_least('num_steps', num_steps, 1)
  errors.check_probability('sampling_prob', sampling_prob)

  def meets(multiplier: float) -> bool:
    run = accounting.poisson_event(
        event(noise_multiplier=multiplier, order=order),
        sampling_prob=sampling_prob, num_steps=num_steps)
    return accounting.epsilon(run, delta=target_delta, adjacency=adjacency,
                              accountant=accountant) <= target_epsilon

  # Start from basic composition, which needs more noise, and go down: trying
  # little noise would need very large loss distributions.
  high = 1 / math.log1p(math.expm1(target_epsilon / num_steps) / sampling_prob)
  while not meets(high):
    high *= 1.25
  low = high / 1.25
  while meets(low):
    low, high = low / 1.25, low
  # Bisection on a logarithmic scale; `high` always meets the target.
  while high > low * (1 + 1e-4):
    middle = math.sqrt(low * high)
    low, high = (low, middle) if meets(middle) else (middle, high)
  return high


@dataclasses.dataclass(frozen=True, kw_only=True)
class KNormMechanism:
  """Releases a sum of records, each of p-norm at most `record_norm`.

  Guarantee: epsilon-DP under `adjacency`, in real arithmetic (item LDP-03).

  Attributes:
    order: p, one of 1, 2 and inf.
    record_norm: p-norm bound on one record's contribution; callers enforce it.
    epsilon: budget of one release, positive.
    adjacency: neighbouring relation of the guarantee.
  """
  order: float
  record_norm: float
  epsilon: float
  adjacency: Adjacency

  def __post_init__(self) -> None:
    check_order(self.order)
    errors.check_scale('record_norm', self.record_norm)
    errors.check_positive('epsilon', self.epsilon)
    check_adjacency(self.adjacency)

  @property
  def scale(self) -> float:
    """Scale of the noise, whose mean p-norm is `scale` times the dimension."""
    return sum_sensitivity(self.adjacency,
                           record_norm=self.record_norm) / self.epsilon

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release."""
    return event(noise_multiplier=self.scale / self.record_norm,
                 order=self.order)

  def release(self, key: PRNGKey, data: PyTree) -> PyTree:
    """Returns the noisy sum; `data` is the exact sum, a float32 pytree."""
    return add_noise(key, data, self.scale, order=self.order)

  def risk(self, num_values: int) -> float:
    """Returns the expected squared l2 error of `num_values` numbers."""
    return self.scale**2 * expected_square(num_values, order=self.order)
