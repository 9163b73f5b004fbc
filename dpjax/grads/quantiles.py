"""Adaptive radii: public bounds that follow private quantiles of norms.

A radius (a clip norm, or the bound of an activation) should lie at a quantile
of the norms that it bounds, but these norms are private. So each step counts
the records of its batch whose norm is below each radius, and releases the noisy
counts together with the noisy gradient. The updated radii serve the *next*
step: the noise scales of a step never depend on that step's batch (rule R1).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import tree
from dpjax.typing import Array, PyTree

INDICATOR_SENSITIVITY = 0.5
"""Sensitivity of a sum of centred indicators under add-or-remove-one."""


class Adaptive(NamedTuple):
  """K adaptive radii, the noise on their counts, and their update rule.

  Attributes:
    init: radii before the first step; a pytree with K float32 scalars, public.
    noise_stddev: standard deviation sigma_b of the noise on each *sum* of
      centred indicators, in records; fixed and public. At a twentieth of the
      expected batch size the privacy cost is very small.
    update: (radii, noisy means of the centred indicators) -> radii; both with
      the structure of `init`. Post-processing.
  """
  init: PyTree
  noise_stddev: float
  update: Callable[[PyTree, PyTree], PyTree]


def geometric(init: PyTree, *, target_quantile: float, learning_rate: float,
              noise_stddev: float, span: float = 1e4) -> Adaptive:
  """Returns radii with the update B <- B exp(-learning_rate (bhat - target)).

  bhat = 1/2 + the noisy mean of (1[norm <= B] - 1/2) estimates the fraction of
  records within B (LDP-06). The centred indicator has sensitivity 1/2 instead
  of 1, so half the noise gives the same privacy.
  Source: Andrew et al. (2021, Algorithm 1), who adapt one radius, the clip norm
  of DP-SGD.

  Args:
    init: pytree of K positive radii, chosen without looking at the data.
    target_quantile: fraction of records that should lie within, in (0, 1).
    learning_rate: positive; 0.2 in the paper.
    noise_stddev: sigma_b, see `Adaptive`.
    span: radii stay within a factor `span` >= 1 of `init`, so that none
      vanishes on data of norm zero.
  """
  if not span >= 1:
    raise ValueError(f'span must be at least 1, got {span}')
  # All radii that updates can give must be safe to square.
  for radius in jax.tree.leaves(init):
    for end in (radius / span, radius, radius * span):
      errors.check_scale('radius', float(end))
  errors.check_open_unit('target_quantile', target_quantile)
  errors.check_positive('learning_rate', learning_rate)
  errors.check_scale('noise_stddev', noise_stddev)
  start = jax.tree.map(jnp.float32, init)

  def updated(first: Array, radius: Array, mean: Array) -> Array:
    radius = radius * jnp.exp(-learning_rate * (0.5 + mean - target_quantile))
    return jnp.clip(radius, first / span, first * span)

  return Adaptive(start, noise_stddev, lambda radii, means: jax.tree.map(
      updated, start, radii, means))


def centred_indicators(norms: PyTree, radii: PyTree, kept: Array) -> PyTree:
  """Returns sums over the kept records of 1[norm <= radius] - 1/2.

  Sensitivity: adding or removing a record changes each sum by 1/2, whatever the
  norm of the record. A record that is not kept changes no sum.

  Args:
    norms: pytree of [b] norms, *before* any clipping or projection.
    radii: pytree of scalars with the same structure, public.
    kept: [b] bool, True for records that are finite and not masked.

  Returns:
    A pytree of K float32 scalars with the structure of `radii`.
  """

  def count(norm: Array, radius: Array) -> Array:
    centred = jnp.where(norm <= radius, 0.5, -0.5)
    return jnp.sum(jnp.where(kept, centred, 0.0), dtype=jnp.float32)

  return jax.tree.map(count, norms, radii)


def gradient_noise_multiplier(noise_multiplier: Array | float,
                              adaptive: Adaptive) -> Array | float:
  """Returns the multiplier of the gradient, z_grad, given the joint one, z.

  z_grad^-2 = z^-2 - K / (2 sigma_b)^2. By rule R3 the K indicators and the
  gradient blocks together are then one Gaussian mechanism of multiplier z
  (LDP-06; Andrew et al., 2021, Theorem 1, for K = 1).

  Args:
    noise_multiplier: z; an array must have been checked by `check_budget`.
    adaptive: gives K and sigma_b.
  """
  indicator_cost = _indicator_cost(adaptive)
  # Inverse squares of the multipliers of all blocks of a release add up.
  return (noise_multiplier**-2 - indicator_cost)**-0.5


def check_budget(noise_multiplier: float, adaptive: Adaptive) -> None:
  """Checks that the indicators alone do not use up the budget of a step.

  Args:
    noise_multiplier: z, the joint multiplier of the step.
    adaptive: gives K and sigma_b.

  Raises:
    ValueError: if K / (2 sigma_b)^2 >= z^-2, so that no noise on the gradient
      gives the joint multiplier z.
  """
  errors.check_positive('noise_multiplier', noise_multiplier)
  indicator_cost = _indicator_cost(adaptive)
  if indicator_cost >= noise_multiplier**-2:
    raise ValueError(
        f'noise_stddev of {tree.count(adaptive.init)} adaptive radii must be '
        'above '
        f'{adaptive.noise_stddev * indicator_cost**0.5 * noise_multiplier:.6g} '
        f'for noise multiplier {noise_multiplier}, got '
        f'{adaptive.noise_stddev}')


def _indicator_cost(adaptive: Adaptive) -> float:
  """Returns K / (2 sigma_b)^2, the inverse squared multiplier of indicators."""
  return tree.count(adaptive.init) * (
      INDICATOR_SENSITIVITY / adaptive.noise_stddev)**2
