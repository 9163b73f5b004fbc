"""Sums to a noisy mean: the optax transform that makes a step private."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpjax import errors
from dpjax import tree
from dpjax.grads import quantiles
from dpjax.grads.quantiles import Adaptive
from dpjax.privacy import additive
from dpjax.privacy import blocks
from dpjax.typing import Array, PRNGKey, PyTree


# Keeps float32 rounding of the scales on the side of more noise.
_ROUNDING_MARGIN = 1 + 4e-6

# Float32 has the grid of such noise.
_LEAST_STDDEV = 2.0**-100


class PrivatizerState(NamedTuple):
  """State of `gaussian_privatizer`.

  Attributes:
    key: base key; the noise of step t comes from `fold_in(key, t)`.
    step: number of releases so far.
    joint_noise_multiplier: smallest joint multiplier of any release so far,
      from the sensitivities and standard deviations really used.
    indicators: noisy means of the centred indicators, as last released; public.
      Empty without adaptive radii.
  """
  key: PRNGKey
  step: Array
  joint_noise_multiplier: Array
  indicators: PyTree = ()


def gaussian_privatizer(
    key: PRNGKey, *, noise_multiplier: Array | float,
    expected_batch_size: float, allocation: str = 'optimal',
    adaptive: Adaptive | None = None) -> optax.GradientTransformationExtraArgs:
  """Adds Gaussian noise to bounded sums, then divides by a public constant.

  Guarantee: if the sums are over a batch of a `PoissonSampler` and every
  record's contribution to block k has norm at most `l2_sensitivity[k]`, each
  update is one release of `sampler.event(noise_multiplier=...)` (rules R2, R3,
  split DP-20). What follows in an optax chain is post-processing. It must come
  first in the chain, or nothing is private: `placement.check_chain` refuses
  chains in which it does not.

  Noise is added at every step, also when the batch was empty (erratum E5); the
  divisor is the expected batch size, never the realised one (erratum E4).

  Args:
    key: used for nothing else.
    noise_multiplier: the joint multiplier over all blocks.
    expected_batch_size: public divisor (`PoissonSampler.expected_batch_size`).
    allocation: how noise is split over blocks, see `blocks.allocate`.
    adaptive: radii whose indicators are released on the same subsample with
      their fixed noise; the gradient gets what is left of the multiplier
      (LDP-06). The noisy means are in the new state.

  Returns:
    An optax transform whose `update(sums, state, params, l2_sensitivity=...,
    indicators=...)` returns the noisy mean; `l2_sensitivity` is a tree prefix
    of the sums, `indicators` are given with `adaptive` only. A loop may hand
    in the `draws` of `draw_ahead`, which are the same.

  Raises:
    ValueError: if the indicators alone cost as much as a step may; by its
      `init`, if it is given a part of the parameters.
  """
  errors.check_positive('expected_batch_size', expected_batch_size)
  errors.check_choice('allocation', allocation, blocks.ALLOCATIONS)
  if adaptive is not None and isinstance(noise_multiplier, (int, float)):
    quantiles.check_budget(noise_multiplier, adaptive)

  def init(params: PyTree) -> PrivatizerState:
    check_whole(params)
    return fresh_state(key, adaptive)

  def update(sums: PyTree, state: PrivatizerState, params: PyTree = None, *,
             l2_sensitivity: PyTree, indicators: PyTree = (),
             draws: PyTree | None = None) -> tuple[PyTree, PrivatizerState]:
    del params
    bounds, stddevs = scales(l2_sensitivity, sums, noise_multiplier,
                             allocation, adaptive)
    prefix = as_prefix(stddevs, l2_sensitivity, adaptive)
    released = sums if adaptive is None else (sums, indicators)
    if draws is None:
      noisy = additive.add_gaussian_noise(
          jax.random.fold_in(state.key, state.step), released, prefix)
    else:
      noisy = additive.add_drawn_noise(draws, released, prefix)
    mean = tree.scale(1 / expected_batch_size, noisy)
    mean, moved = (mean, ()) if adaptive is None else mean
    spent = blocks.joint_noise_multiplier(bounds, stddevs)
    return mean, PrivatizerState(
        state.key, state.step + 1,
        jnp.minimum(state.joint_noise_multiplier, spent), moved)

  return optax.GradientTransformationExtraArgs(init, update)


def check_whole(params: PyTree) -> None:
  """Refuses parameters of which some are hidden from the privatizer.

  That is what `optax.masked` and `optax.partition` do. They hand on the sums of
  the hidden parameters as they are: exact.

  Raises:
    ValueError: if a part of the parameters is an `optax.MaskedNode`.
  """
  hidden = [jax.tree_util.keystr(path) for path, node in
            jax.tree_util.tree_leaves_with_path(
                params, is_leaf=lambda node: isinstance(node, optax.MaskedNode))
            if isinstance(node, optax.MaskedNode)]
  if hidden:
    raise ValueError(
        f'the privatizer is inside of optax.masked or optax.partition, which '
        f'hides {", ".join(hidden)} from it: sums of these would be used '
        'without noise; put the privatizer first in optax.chain, and the mask '
        'after it')


def fresh_state(key: PRNGKey, adaptive: Adaptive | None) -> PrivatizerState:
  """Before the first step."""
  return PrivatizerState(
      key, jnp.int32(0), jnp.float32(jnp.inf),
      () if adaptive is None else tree.zeros_like(adaptive.init))


def scales(l2_sensitivity: PyTree, sums: PyTree,
           noise_multiplier: Array | float, allocation: str,
           adaptive: Adaptive | None) -> tuple[Array, Array]:
  """Sensitivities [K] and noise [K] of all blocks of `gaussian_privatizer`.

  Gradient blocks first, then the indicators, if there are any.
  """
  if adaptive is not None:
    noise_multiplier = quantiles.gradient_noise_multiplier(noise_multiplier,
                                                           adaptive)
  bounds = jnp.stack(jax.tree.leaves(l2_sensitivity))
  stddevs = at_least_visible(bounds, _ROUNDING_MARGIN * blocks.allocate(
      bounds, noise_multiplier=noise_multiplier, rule=allocation,
      sizes=tree.block_sizes(l2_sensitivity, sums)))
  if adaptive is None:
    return bounds, stddevs
  count = tree.count(adaptive.init)
  stddev = jnp.float32(_ROUNDING_MARGIN * adaptive.noise_stddev)
  return (
      jnp.concatenate([bounds, jnp.full(
          [count], quantiles.INDICATOR_SENSITIVITY, bounds.dtype)]),
      jnp.concatenate([stddevs, jnp.full([count], stddev)]))


def at_least_visible(bounds: Array, scales: Array) -> Array:
  """Scales of noise [K], raised to what float32 can add where it is too little.

  A bound of 0 keeps its scale, so that the joint multiplier says NaN and not
  that a sum which may not be zero was noised.

  Args:
    bounds: [K] of what one record contributes.
    scales: [K] of the noise for it.
  """
  return jnp.where(bounds > 0, jnp.maximum(scales, _LEAST_STDDEV), scales)


def as_prefix(values: Array, l2_sensitivity: PyTree,
              adaptive: Adaptive | None) -> PyTree:
  """Values [K] of all blocks as a tree prefix of what is released.

  That is the sums, or with adaptive radii the pair (sums, indicators).
  """
  structure = jax.tree.structure(l2_sensitivity)
  prefix = structure.unflatten(list(values[:structure.num_leaves]))
  return prefix if adaptive is None else (prefix, values[-1])


def draw_ahead(key: PRNGKey, step: Array, num_steps: int,
               params: PyTree) -> PyTree:
  """The noise draws of the next steps, [num_steps, ...], in one kernel.

  Args:
    key: the privatizer's.
    step: number of releases so far.
    num_steps: how many to draw.
    params: gives structure and shapes of what is released: the parameters, or
      with adaptive radii the pair (parameters, radii).
  """
  steps = step + jnp.arange(num_steps, dtype=jnp.int32)
  keys = jax.vmap(lambda t: jax.random.fold_in(key, t))(steps)
  return jax.vmap(lambda k: additive.unit_noise(k, params))(keys)


def public_mean(
    expected_batch_size: float) -> optax.GradientTransformationExtraArgs:
  """Divides sums by the expected batch size; adds no noise, not private."""
  errors.check_positive('expected_batch_size', expected_batch_size)

  def init(params: PyTree) -> optax.EmptyState:
    del params
    return optax.EmptyState()

  def update(sums, state, params=None, *, l2_sensitivity=None, indicators=(),
             draws=None):
    del params, l2_sensitivity, indicators, draws
    return tree.scale(1 / expected_batch_size, sums), state

  return optax.GradientTransformationExtraArgs(init, update)
