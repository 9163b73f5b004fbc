"""Public radii that follow private quantiles, paid for within each step.

A radius (a clip norm, the bound of an activation) should lie at a quantile of
the norms it meets, and those are private. So each step counts, on its own
subsample, the records on either side of every radius, and noises the counts
beside the gradient blocks. The moved radii serve the *next* step: the noise
scales of a step never read that step's batch (rule R1).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import tree
from dpjax.typing import Array, PyTree

INDICATOR_SENSITIVITY = 0.5
"""One record moves a sum of centred indicators by this much."""


class Adaptive(NamedTuple):
  """K radii, how precisely they are tracked, and how they move.

  Attributes:
    init: radii before the first step; a pytree with K float32 scalars, public.
    noise_stddev: standard deviation sigma_b of the noise on each *sum* of
      centred indicators, in records; fixed and public. A twentieth of the
      expected batch size costs next to nothing.
    update: (radii, noisy means of the centred indicators) -> radii; both of
      the structure of `init`. Post-processing.
  """
  init: PyTree
  noise_stddev: float
  update: Callable[[PyTree, PyTree], PyTree]


def geometric(init: PyTree, *, target_quantile: float, learning_rate: float,
              noise_stddev: float, span: float = 1e4) -> Adaptive:
  """LDP-06: radii B <- B exp(-learning_rate (bhat - target_quantile)).

  bhat = 1/2 + the noisy mean of 1[norm <= B] - 1/2: centred, an indicator has
  sensitivity 1/2 and not 1, which halves the noise that a given cost allows.
  Source: Andrew et al. 2021 (NeurIPS), Algorithm 1; theirs is one radius, the
  clip norm of DP-SGD.

  Args:
    init: pytree of K positive radii, chosen without looking at the data.
    target_quantile: share of the records that should lie within, in (0, 1).
    learning_rate: positive; 0.2 in the paper.
    noise_stddev: sigma_b, see `Adaptive`.
    span: radii stay within a factor `span` of `init`, so that none vanishes
      on data of norm zero.
  """
  if not span >= 1:
    raise ValueError(f'span must be at least 1, got {span}')
  for radius in jax.tree.leaves(init):
    for end in (radius / span, radius, radius * span):
      errors.check_scale('radius', float(end))
  errors.check_open_unit('target_quantile', target_quantile)
  errors.check_positive('learning_rate', learning_rate)
  errors.check_scale('noise_stddev', noise_stddev)
  start = jax.tree.map(jnp.float32, init)

  def move(first: Array, radius: Array, mean: Array) -> Array:
    moved = radius * jnp.exp(-learning_rate * (0.5 + mean - target_quantile))
    return jnp.clip(moved, first / span, first * span)

  return Adaptive(start, noise_stddev, lambda radii, means: jax.tree.map(
      move, start, radii, means))


def centred_indicators(norms: PyTree, radii: PyTree, kept: Array) -> PyTree:
  """Sums over the kept records of 1[norm <= radius] - 1/2, one per radius.

  Guarantee: one record moves each sum by at most 1/2, whatever its norm; one
  that is not kept moves none.

  Args:
    norms: pytree of [b] norms, *before* any clipping or projection.
    radii: pytree of scalars, of the same structure.
    kept: [b] bool; records that are finite and not masked.
  """

  def count(norm: Array, radius: Array) -> Array:
    centred = jnp.where(norm <= radius, 0.5, -0.5)
    return jnp.sum(jnp.where(kept, centred, 0.0), dtype=jnp.float32)

  return jax.tree.map(count, norms, radii)


def gradient_noise_multiplier(noise_multiplier: Array | float,
                              adaptive: Adaptive) -> Array | float:
  """What is left for the gradient: z_grad^-2 = z^-2 - K / (2 sigma_b)^2.

  By rule R3 the K indicators and the gradient blocks are one Gaussian
  mechanism of multiplier z when the gradient blocks alone have z_grad (LDP-06,
  Andrew et al. 2021, Theorem 1 for K = 1).

  Args:
    noise_multiplier: z; an array must have been checked by `check_budget`.
    adaptive: gives K and sigma_b.
  """
  share = _indicator_share(adaptive)
  return (noise_multiplier**-2 - share)**-0.5


def check_budget(noise_multiplier: float, adaptive: Adaptive) -> None:
  """Refuses indicators that alone cost as much as the whole step may.

  Raises:
    ValueError: if no noise on the gradient makes the joint multiplier z.
  """
  errors.check_positive('noise_multiplier', noise_multiplier)
  share = _indicator_share(adaptive)
  if share >= noise_multiplier**-2:
    raise ValueError(
        f'noise_stddev of {tree.count(adaptive.init)} adaptive radii must be '
        f'above {adaptive.noise_stddev * share**0.5 * noise_multiplier:.6g} '
        f'for noise multiplier {noise_multiplier}, got '
        f'{adaptive.noise_stddev}')


def _indicator_share(adaptive: Adaptive) -> float:
  """K / (2 sigma_b)^2, the inverse square multiplier of all indicators."""
  return tree.count(adaptive.init) * (
      INDICATOR_SENSITIVITY / adaptive.noise_stddev)**2
