"""The Gaussian privatizer, an optax transform from sums to a noisy mean."""

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
from dpjax.privacy.strategies import Strategy
from dpjax.typing import Array, PRNGKey, PyTree

# Keeps float32 rounding of the scales on the side of more noise.
_ROUNDING_MARGIN = 1 + 4e-6

# Least noise scale for which float32 can represent the grid of the noise.
_LEAST_STDDEV = 2.0**-100


class PrivatizerState(NamedTuple):
  """State of a privatizer between two releases.

  Attributes:
    key: base key; the noise of step t comes from `fold_in(key, t)`. Secret.
    step: number of releases so far.
    joint_noise_multiplier: smallest joint multiplier of any release so far,
      computed from the sensitivities and standard deviations used; public.
    indicators: noisy means of the centred indicators in the last release;
      public. () without adaptive radii.
    history: of the noise, if a strategy correlates it, else (). Secret.
  """
  key: PRNGKey
  step: Array
  joint_noise_multiplier: Array
  indicators: PyTree = ()
  history: PyTree = ()


def gaussian_privatizer(
    key: PRNGKey, *, noise_multiplier: Array | float,
    expected_batch_size: float, allocation: str = 'optimal',
    adaptive: Adaptive | None = None, strategy: Strategy | None = None
    ) -> optax.GradientTransformationExtraArgs:
  """Adds Gaussian noise to bounded sums, then divides by a public constant.

  Guarantee: suppose the sums are over a batch of a `PoissonSampler` and each
  record's contribution to block k has l2 norm at most `l2_sensitivity[k]`.
  Then each update costs one `sampler.event(noise_multiplier=...)` (rules R2,
  R3, split DP-20), and all later transforms of the optax chain are
  post-processing. The privatizer must come first in the chain, otherwise
  nothing is private; `placement.check_chain` checks this.

  With a strategy C, noise is correlated over the steps. Step t releases, for a
  block of scale s_t, the sum g_t + s_t (C^-1 z)_t with standard normal z.
  Divided by the public s_t this is g_t / s_t + (C^-1 z)_t, so all steps are
  post-processing of C (g / s) + z. Contributions of a record to g_t / s_t have
  a joint norm of at most 1 / `noise_multiplier`, whatever the bounds of that
  step were. The run costs `correlated.event`, if the sampler keeps to its
  participation; `TrainingPlan` checks this.

  Noise is added at every step, also if the batch is empty (erratum E5). The
  divisor is the expected batch size, never the realised one (erratum E4).

  Args:
    key: secret, and used for nothing else.
    noise_multiplier: joint multiplier over all blocks, see
      `blocks.joint_noise_multiplier`.
    expected_batch_size: public divisor (`PoissonSampler.expected_batch_size`).
    allocation: how noise is split over blocks, see `blocks.allocate`.
    adaptive: radii whose indicators are released in the same step with noise
      of a fixed scale; the gradient gets the rest of the privacy budget of the
      step (LDP-06). The new state holds the noisy means of the indicators.
    strategy: correlates the noise of the steps; None for independent noise.

  Returns:
    An optax transform. Its `update(sums, state, params, l2_sensitivity=...,
    indicators=..., draws=...)` returns the noisy mean. `l2_sensitivity` is a
    tree prefix of the sums; `indicators` are given only with `adaptive`;
    `draws` may be this step's part of `draw_ahead`, which gives the same noise.

  Raises:
    ValueError: if the indicators alone use up the budget of a step. The
      transform's `init` raises if some parameters are hidden from it.
  """
  errors.check_positive('expected_batch_size', expected_batch_size)
  errors.check_choice('allocation', allocation, blocks.ALLOCATIONS)
  if adaptive is not None and isinstance(noise_multiplier, (int, float)):
    quantiles.check_budget(noise_multiplier, adaptive)

  def init(params: PyTree) -> PrivatizerState:
    check_whole(params)
    released = params if adaptive is None else (params, adaptive.init)
    return fresh_state(key, adaptive)._replace(
        history=() if strategy is None else strategy.init(released))

  def update(sums: PyTree, state: PrivatizerState, params: PyTree = None, *,
             l2_sensitivity: PyTree, indicators: PyTree = (),
             draws: PyTree | None = None) -> tuple[PyTree, PrivatizerState]:
    del params
    bounds, stddevs = scales(l2_sensitivity, sums, noise_multiplier,
                             allocation, adaptive)
    prefix = as_prefix(stddevs, l2_sensitivity, adaptive)
    # Both are noised under one joint multiplier, as one release.
    released = sums if adaptive is None else (sums, indicators)
    noisy, history = _noisy(state, released, prefix, draws, strategy)
    mean = tree.scale(1 / expected_batch_size, noisy)
    mean, indicator_means = (mean, ()) if adaptive is None else mean
    multiplier = blocks.joint_noise_multiplier(bounds, stddevs)
    return mean, PrivatizerState(
        state.key, state.step + 1,
        jnp.minimum(state.joint_noise_multiplier, multiplier), indicator_means,
        history)

  return optax.GradientTransformationExtraArgs(init, update)


def _noisy(state: PrivatizerState, released: PyTree, stddevs: PyTree,
           draws: PyTree | None, strategy: Strategy | None
           ) -> tuple[PyTree, PyTree]:
  """Returns the values with the noise of a step, and the history after it."""
  # One key per step: the draws of two steps must be independent.
  key, history = jax.random.fold_in(state.key, state.step), state.history
  if strategy is None and draws is None:
    return additive.add_gaussian_noise(key, released, stddevs), history
  draws = additive.unit_noise(key, released) if draws is None else draws
  if strategy is not None:
    draws, history = strategy.correlate(draws, history, state.step)
  return additive.add_drawn_noise(draws, released, stddevs), history


def check_whole(params: PyTree) -> None:
  """Checks that no parameter is hidden from the privatizer.

  `optax.masked` and `optax.partition` hide parameters, and pass on their exact
  sums without noise.

  Raises:
    ValueError: if the parameters contain an `optax.MaskedNode`.
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
  """Returns the state before the first step."""
  return PrivatizerState(
      key, jnp.int32(0), jnp.float32(jnp.inf),
      () if adaptive is None else tree.zeros_like(adaptive.init))


def scales(l2_sensitivity: PyTree, sums: PyTree,
           noise_multiplier: Array | float, allocation: str,
           adaptive: Adaptive | None) -> tuple[Array, Array]:
  """Returns sensitivities [K] and noise standard deviations [K] of all blocks.

  The gradient blocks come first, then the indicators, if there are any. For
  the arguments see `gaussian_privatizer`.
  """
  if adaptive is not None:
    noise_multiplier = quantiles.gradient_noise_multiplier(noise_multiplier,
                                                           adaptive)
  bounds = jnp.stack(jax.tree.leaves(l2_sensitivity))
  # Margin and floor only raise the noise, so the multiplier is at least z.
  stddevs = at_least_visible(bounds, _ROUNDING_MARGIN * blocks.allocate(
      bounds, noise_multiplier=noise_multiplier, rule=allocation,
      sizes=tree.block_sizes(l2_sensitivity, sums)))
  if adaptive is None:
    return bounds, stddevs
  # The K indicators are K more blocks, of sensitivity 1/2 and fixed noise.
  count = tree.count(adaptive.init)
  stddev = jnp.float32(_ROUNDING_MARGIN * adaptive.noise_stddev)
  return (
      jnp.concatenate([bounds, jnp.full(
          [count], quantiles.INDICATOR_SENSITIVITY, bounds.dtype)]),
      jnp.concatenate([stddevs, jnp.full([count], stddev)]))


def at_least_visible(bounds: Array, scales: Array) -> Array:
  """Raises noise scales [K] to the least that float32 can represent, 2^-100.

  A block of bound 0 keeps its scale. The joint multiplier then becomes NaN,
  instead of claiming noise for a sum that may not be zero.

  Args:
    bounds: [K] bounds on one record's contribution to each block.
    scales: [K] scales of the noise of each block.
  """
  return jnp.where(bounds > 0, jnp.maximum(scales, _LEAST_STDDEV), scales)


def as_prefix(values: Array, l2_sensitivity: PyTree,
              adaptive: Adaptive | None) -> PyTree:
  """Returns values [K] of all blocks as a tree prefix of the released values.

  Released are the sums, or with adaptive radii the pair (sums, indicators).
  """
  leaves, structure = jax.tree.flatten(l2_sensitivity)
  prefix = jax.tree.unflatten(structure, list(values[:len(leaves)]))
  return prefix if adaptive is None else (prefix, values[-1])


def draw_ahead(key: PRNGKey, step: Array, num_steps: int,
               params: PyTree) -> PyTree:
  """Draws standard normal noise [num_steps, ...] for the next steps at once.

  Args:
    key: the privatizer's key.
    step: number of releases so far.
    num_steps: number of steps.
    params: gives structure and shapes of the released values: the parameters,
      or with adaptive radii the pair (parameters, radii).
  """
  steps = step + jnp.arange(num_steps, dtype=jnp.int32)
  keys = jax.vmap(lambda t: jax.random.fold_in(key, t))(steps)
  return jax.vmap(lambda k: additive.unit_noise(k, params))(keys)


def public_mean(
    expected_batch_size: float) -> optax.GradientTransformationExtraArgs:
  """Returns a transform that divides sums by a constant; NOT private.

  It adds no noise: the non-private counterpart of `gaussian_privatizer`.
  """
  errors.check_positive('expected_batch_size', expected_batch_size)

  def init(params: PyTree) -> optax.EmptyState:
    del params
    return optax.EmptyState()

  def update(sums: PyTree, state: optax.EmptyState, params: PyTree = None, *,
             l2_sensitivity: PyTree = None, indicators: PyTree = (),
             draws: PyTree = None) -> tuple[PyTree, optax.EmptyState]:
    del params, l2_sensitivity, indicators, draws
    return tree.scale(1 / expected_batch_size, sums), state

  return optax.GradientTransformationExtraArgs(init, update)
