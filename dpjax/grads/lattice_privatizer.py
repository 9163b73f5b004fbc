"""The lattice privatizer: Gaussian noise of an exactly known distribution."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import optax

from dpjax import errors
from dpjax import tree
from dpjax.grads import privatizer
from dpjax.grads import quantiles
from dpjax.grads.privatizer import PrivatizerState
from dpjax.grads.quantiles import Adaptive
from dpjax.privacy import blocks
from dpjax.privacy import lattice
from dpjax.typing import Array, PRNGKey, PyTree


def lattice_privatizer(
    key: PRNGKey, *, noise_multiplier: Array | float,
    expected_batch_size: float, allocation: str = 'optimal',
    adaptive: Adaptive | None = None, sum_error: float = 0.0,
    shardings: PyTree | None = None) -> optax.GradientTransformationExtraArgs:
  """Rounds bounded sums to a lattice and adds rounded Gaussian noise to them.

  It has the guarantee and the arguments of `privatizer.gaussian_privatizer`,
  and also withstands attacks on the low-order bits of floating-point noise: the
  released values are a function of integers, distributed as a rounded Gaussian
  mechanism up to `lattice.total_variation`. A `TrainingPlan` subtracts this
  error from delta.

  Rounding adds to the sensitivity: a block of d_k values has sensitivity
  D_k + sqrt(d_k) s_k, where D_k is the certified bound and s_k the spacing of
  the lattice, about 10^-6 of the noise; it depends on public values only. Noise
  is scaled to these sensitivities. The joint multiplier is at least the plan's,
  and up to 0.04 percent above it, because noise widths are rounded up to
  integers.

  Centred indicators are sums of halves, which lie on their lattice, so rounding
  does not change them.

  Args:
    key: secret, and used for nothing else.
    noise_multiplier: see `privatizer.gaussian_privatizer`.
    expected_batch_size: public divisor.
    allocation: how noise is split over blocks, see `blocks.allocate`.
    adaptive: see `privatizer.gaussian_privatizer`.
    sum_error: additional sensitivity of a float32 sum compared with an exact
      one, relative to D_k; `lattice.sum_error` is a proven bound. The default
      treats sums as exact.
    shardings: a `NamedSharding` for each parameter, if they are divided over
      devices: each device draws the noise of its own parts, the same numbers.

  Returns:
    An optax transform as in `privatizer.gaussian_privatizer`, but it rejects
    `draws`: lattice noise is not drawn ahead.

  Raises:
    ValueError: if the indicators alone use up the budget of a step, or if their
      noise is so large that halves would be rounded.
  """
  errors.check_positive('expected_batch_size', expected_batch_size)
  errors.check_choice('allocation', allocation, blocks.ALLOCATIONS)
  errors.check_non_negative('sum_error', sum_error)
  _check_indicators(noise_multiplier, adaptive)

  def init(params: PyTree) -> PrivatizerState:
    privatizer.check_whole(params)
    return privatizer.fresh_state(key, adaptive)

  def update(sums: PyTree, state: PrivatizerState, params: PyTree = None, *,
             l2_sensitivity: PyTree, indicators: PyTree = (),
             draws: None = None) -> tuple[PyTree, PrivatizerState]:
    del params
    if draws is not None:
      raise ValueError('noise on a lattice cannot use noise drawn ahead')
    rounded_bounds, spacings = on_lattice(
        tree.scale(1 + sum_error, l2_sensitivity), sums, noise_multiplier,
        allocation, adaptive)
    bounds, stddevs = privatizer.scales(rounded_bounds, sums, noise_multiplier,
                                        allocation, adaptive)
    outers = lattice.outer_multiplier(stddevs, spacings)
    steps, multiples = (privatizer.as_prefix(each, rounded_bounds, adaptive)
                        for each in (spacings, outers))
    mean = tree.scale(1 / expected_batch_size, lattice.add_noise(
        jax.random.fold_in(state.key, state.step),
        sums if adaptive is None else (sums, indicators), steps, multiples,
        _with_indicators(shardings, adaptive)))
    mean, counts = (mean, ()) if adaptive is None else mean
    multiplier = blocks.joint_noise_multiplier(
        bounds, lattice.real_stddev(outers, spacings))
    return mean, PrivatizerState(
        state.key, state.step + 1,
        jnp.minimum(state.joint_noise_multiplier, multiplier), counts)

  return optax.GradientTransformationExtraArgs(init, update)


def on_lattice(l2_sensitivity: PyTree, sums: PyTree,
               noise_multiplier: Array | float, allocation: str,
               adaptive: Adaptive | None = None) -> tuple[PyTree, Array]:
  """Returns the l2 sensitivities of sums rounded to lattices, and the spacings.

  Rounding moves each of d_k values by at most s_k / 2, so the difference of two
  neighbouring sums by at most sqrt(d_k) s_k in l2.

  Args:
    l2_sensitivity: D_k, before rounding; a tree prefix of the sums.
    sums: give the sizes d_k of the blocks.
    noise_multiplier: see `lattice_privatizer`.
    allocation: see `lattice_privatizer`.
    adaptive: see `lattice_privatizer`.

  Returns:
    (D_k + sqrt(d_k) s_k, with the structure of `l2_sensitivity`; spacings s_k,
    an array of those of the blocks and then of the indicators).
  """
  spacings = lattice.spacing(privatizer.scales(
      l2_sensitivity, sums, noise_multiplier=noise_multiplier,
      allocation=allocation, adaptive=adaptive)[1])
  # These spacings are for the noise before rounding adds to the sensitivity.
  # More noise is at least as many spacings wide.
  leaves, structure = jax.tree.flatten(l2_sensitivity)
  sizes = tree.block_sizes(l2_sensitivity, sums)
  return jax.tree.unflatten(structure, [
      bound + size**0.5 * spacing
      for bound, size, spacing in zip(leaves, sizes, spacings)]), spacings


def _with_indicators(shardings: PyTree | None,
                     adaptive: Adaptive | None) -> PyTree | None:
  """Returns the shardings of all noised values; every device has indicators."""
  if shardings is None or adaptive is None:
    return shardings
  whole = NamedSharding(jax.tree.leaves(shardings)[0].mesh, PartitionSpec())
  return shardings, jax.tree.map(lambda _: whole, adaptive.init)


def _check_indicators(noise_multiplier: Array | float,
                      adaptive: Adaptive | None) -> None:
  """Raises if indicators cost too much, or would be rounded."""
  if adaptive is None:
    return
  if isinstance(noise_multiplier, (int, float)):
    quantiles.check_budget(noise_multiplier, adaptive)
  # The spacing is at most 2^-19 of the noise, so at most 1/2 here: halves are
  # on the lattice.
  if adaptive.noise_stddev >= 2.0**18:
    raise ValueError('noise_stddev of adaptive radii must be below 2^18 on a '
                     f'lattice, got {adaptive.noise_stddev}')
