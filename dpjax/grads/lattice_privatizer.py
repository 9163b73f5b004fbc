"""Sums to a noisy mean by Gaussian noise on a lattice: of an exact law."""

import jax
import jax.numpy as jnp
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
    adaptive: Adaptive | None = None,
    sum_error: float = 0.0) -> optax.GradientTransformationExtraArgs:
  """Rounds bounded sums to a lattice and adds rounded Gaussian noise to them.

  A drop-in for `privatizer.gaussian_privatizer`, with its guarantee and
  arguments, that also withstands the attack on floats: what is released is a
  function of integers whose law is that of a rounded Gaussian mechanism, up to
  `lattice.total_variation`, which a `TrainingPlan` takes off delta. A block of
  d_k values is bounded by D_k + sqrt(d_k) s_k, D_k as certified and s_k the
  spacing, some 10^-6 of the noise; the noise is split by these bounds, so that
  the joint multiplier is that of the plan or, because widths are integers, up
  to 0.04 percent more.

  Indicators are sums of halves: they lie on their lattice, so that rounding
  moves none.

  Args:
    key: used for nothing else.
    noise_multiplier: see `privatizer.gaussian_privatizer`.
    expected_batch_size: public divisor.
    allocation: how noise is split over blocks.
    adaptive: see `privatizer.gaussian_privatizer`.
    sum_error: by what share of D_k a float32 sum moves further than an exact
      one, `lattice.sum_error` for a proven bound. By default sums are taken as
      the exact ones of bounded contributions.

  Returns:
    An optax transform as of `privatizer.gaussian_privatizer`; it refuses
    `draws`, since there are none ahead.

  Raises:
    ValueError: if the indicators alone cost as much as a step may, or are so
      noisy that halves would be rounded.
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
    split = dict(noise_multiplier=noise_multiplier, allocation=allocation,
                 adaptive=adaptive)
    moved, steps = on_lattice(tree.scale(1 + sum_error, l2_sensitivity), sums,
                              **split)
    bounds, stddevs = privatizer.scales(moved, sums, **split)
    outers = lattice.outer_multiplier(stddevs, steps)
    prefixes = (privatizer.as_prefix(values, moved, adaptive)
                for values in (steps, outers))
    noisy = lattice.add_noise(
        jax.random.fold_in(state.key, state.step),
        sums if adaptive is None else (sums, indicators), *prefixes)
    mean = tree.scale(1 / expected_batch_size, noisy)
    mean, counts = (mean, ()) if adaptive is None else mean
    spent = blocks.joint_noise_multiplier(
        bounds, lattice.real_stddev(outers, steps))
    return mean, PrivatizerState(
        state.key, state.step + 1,
        jnp.minimum(state.joint_noise_multiplier, spent), counts)

  return optax.GradientTransformationExtraArgs(init, update)


def on_lattice(l2_sensitivity: PyTree, sums: PyTree, *,
               noise_multiplier: Array | float, allocation: str,
               adaptive: Adaptive | None = None) -> tuple[PyTree, Array]:
  """How far one record moves the blocks of a lattice, and its spacings.

  Args:
    l2_sensitivity: D_k, a tree prefix of the sums.
    sums: give the sizes d_k of the blocks.
    noise_multiplier: see `lattice_privatizer`.
    allocation: the same.
    adaptive: the same.

  Returns:
    (D_k + sqrt(d_k) s_k, of the structure of `l2_sensitivity`; s_k of these
    blocks, and then of the indicators).
  """
  steps = lattice.spacing(privatizer.scales(
      l2_sensitivity, sums, noise_multiplier=noise_multiplier,
      allocation=allocation, adaptive=adaptive)[1])
  leaves, structure = jax.tree.flatten(l2_sensitivity)
  sizes = tree.block_sizes(l2_sensitivity, sums)
  return structure.unflatten([
      bound + size**0.5 * step
      for bound, size, step in zip(leaves, sizes, steps)]), steps


def _check_indicators(noise_multiplier: Array | float,
                      adaptive: Adaptive | None) -> None:
  if adaptive is None:
    return
  if isinstance(noise_multiplier, (int, float)):
    quantiles.check_budget(noise_multiplier, adaptive)
  # Up to 2^19 of it the spacing is at most 1/2.
  if adaptive.noise_stddev >= 2.0**18:
    raise ValueError('noise_stddev of adaptive radii must be below 2^18 on a '
                     f'lattice, got {adaptive.noise_stddev}')
