"""Adam for noisy gradients: the variance of the noise is subtracted.

Adam divides the mean of the gradients by the root of the mean of their squares.
With private gradients these squares contain the variance of the noise, which is
much larger than the squares of the gradients: Adam then divides by about the
same number everywhere, and so behaves as SGD with momentum. The variance is
known and public, so it can be subtracted. Source: Tang and Lécuyer (2023).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpjax import errors
from dpjax import tree
from dpjax.typing import Array, PyTree


class NoiseCorrectedState(NamedTuple):
  """State of `scale_by_noise_corrected_adam`.

  Attributes:
    step: number of updates so far, int32.
    first: running means of gradients.
    second: running means of squared gradients, with the noise in them.
  """
  step: Array
  first: PyTree
  second: PyTree


def noise_corrected(learning_rate: optax.ScalarOrSchedule, *,
                    noise_stddev: float | None = None, b1: float = 0.9,
                    b2: float = 0.999, floor: float | None = None
                    ) -> optax.GradientTransformationExtraArgs:
  """Returns Adam whose second moment is freed of the variance of the noise.

  Guarantee: it reads noisy gradients and public numbers only, so it is
  post-processing.

  Args:
    learning_rate: a number or a schedule of optax.
    noise_stddev: standard deviation of the noise in each entry of the mean
      gradient; 0 gives Adam. None takes that of each step, which `make_private`
      and `loop.fit` pass to the optimiser; it may differ by layer and by step.
    b1: decay of the mean of gradients, in [0, 1).
    b2: decay of the mean of squares, in [0, 1).
    floor: least value of the corrected second moment, positive. It may be
      negative before, because the squares of the noise fluctuate. By default
      1e-8, or if that is larger the square of a tenth of the noise.

  Raises:
    ValueError: if a value is out of range; or in an update, if the noise is not
      known.
  """
  return optax.chain(
      scale_by_noise_corrected_adam(noise_stddev=noise_stddev, b1=b1, b2=b2,
                                    floor=floor),
      optax.scale_by_learning_rate(learning_rate))


def scale_by_noise_corrected_adam(
    *, noise_stddev: float | None = None, b1: float = 0.9, b2: float = 0.999,
    floor: float | None = None) -> optax.GradientTransformationExtraArgs:
  """Returns the update m / sqrt(max(v - noise_stddev^2, floor)).

  The noise of a step is the argument `noise_stddev` of `update`, a tree prefix
  of the gradients, unless it is given here. m and v are the means of gradients
  and of their squares, each divided by one minus its decay to the power of the
  number of updates.

  Args: see `noise_corrected`.

  Examples:
    >>> from dpjax.train import adam
    >>> scale = adam.scale_by_noise_corrected_adam(noise_stddev=3.0)
    >>> gradient = jnp.array([5.0, -5.0])
    >>> updates, _ = scale.update(gradient, scale.init(gradient))
    >>> [round(float(value), 3) for value in updates]  # 5 / sqrt(25 - 9).
    [1.25, -1.25]
  """
  if noise_stddev is not None:
    errors.check_non_negative('noise_stddev', noise_stddev)
  if floor is not None:
    errors.check_positive('floor', floor)
  for name, decay in (('b1', b1), ('b2', b2)):
    if not 0 <= decay < 1:
      raise ValueError(f'{name} must lie in [0, 1), got {decay}')

  def init(params: PyTree) -> NoiseCorrectedState:
    return NoiseCorrectedState(jnp.int32(0), tree.zeros_like(params),
                               tree.zeros_like(params))

  fixed = noise_stddev

  def update(updates: PyTree, state: NoiseCorrectedState, params: PyTree = None,
             *, noise_stddev: PyTree = None, **others: Any
             ) -> tuple[PyTree, NoiseCorrectedState]:
    del params, others
    noise = noise_stddev if fixed is None else fixed
    if noise is None:
      raise ValueError('the noise of this step is not known: make_private and '
                       'loop.fit pass that of independent Gaussian noise, not '
                       'of correlated noise; elsewhere, give noise_stddev')
    step = state.step + 1
    mean = lambda decay: lambda old, new: decay * old + (1 - decay) * new
    first = jax.tree.map(mean(b1), state.first, updates)
    second = jax.tree.map(mean(b2), state.second, jax.tree.map(jnp.square,
                                                               updates))
    # The means start at zero; these weights make them means of gradients.
    weights = [1 / (1 - decay**step.astype(jnp.float32)) for decay in (b1, b2)]
    scaled = tree.map_blocks(
        lambda stddev, m, v: weights[0] * m / jnp.sqrt(jnp.maximum(
            weights[1] * v - stddev**2, _least(stddev, floor))),
        noise, first, second)
    return scaled, NoiseCorrectedState(step, first, second)

  return optax.GradientTransformationExtraArgs(init, update)


def _least(stddev: Array | float, floor: float | None) -> Array | float:
  """Returns the least value of the corrected second moment."""
  return jnp.maximum(1e-8, (stddev / 10)**2) if floor is None else floor
