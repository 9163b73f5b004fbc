"""Adam for noisy gradients: the variance of the noise is subtracted.

Adam divides the mean of the gradients by the root of the mean of their squares.
With private gradients these squares contain the variance of the noise, which is
much larger than the squares of the gradients: Adam then divides by about the
same number everywhere, and so behaves as SGD with momentum. The variance is
known and public, so it can be subtracted. Source: Tang and Lécuyer (2023).
"""

from typing import NamedTuple

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
                    noise_stddev: float, b1: float = 0.9, b2: float = 0.999,
                    floor: float | None = None
                    ) -> optax.GradientTransformation:
  """Returns Adam whose second moment is freed of the variance of the noise.

  Guarantee: it reads noisy gradients and public numbers only, so it is
  post-processing. `make_private` takes a function of the noise:

      optimizer = lambda stddev: noise_corrected(1e-3, noise_stddev=stddev)

  Args:
    learning_rate: a number or a schedule of optax.
    noise_stddev: standard deviation of the noise in each entry of the mean
      gradient; 0 gives Adam.
    b1: decay of the mean of gradients, in [0, 1).
    b2: decay of the mean of squares, in [0, 1).
    floor: least value of the corrected second moment, positive. It may be
      negative before, because the squares of the noise fluctuate. By default
      1e-8, or if that is larger the square of a tenth of the noise.
  """
  return optax.chain(
      scale_by_noise_corrected_adam(noise_stddev=noise_stddev, b1=b1, b2=b2,
                                    floor=floor),
      optax.scale_by_learning_rate(learning_rate))


def scale_by_noise_corrected_adam(
    *, noise_stddev: float, b1: float = 0.9, b2: float = 0.999,
    floor: float | None = None) -> optax.GradientTransformation:
  """Returns the update m / sqrt(max(v - noise_stddev^2, floor)).

  m and v are the means of gradients and of their squares, each divided by one
  minus its decay to the power of the number of updates.

  Args: see `noise_corrected`.

  Examples:
    >>> from dpjax.train import adam
    >>> scale = adam.scale_by_noise_corrected_adam(noise_stddev=3.0)
    >>> gradient = jnp.array([5.0, -5.0])
    >>> updates, _ = scale.update(gradient, scale.init(gradient))
    >>> [round(float(value), 3) for value in updates]  # 5 / sqrt(25 - 9).
    [1.25, -1.25]
  """
  errors.check_non_negative('noise_stddev', noise_stddev)
  for name, decay in (('b1', b1), ('b2', b2)):
    if not 0 <= decay < 1:
      raise ValueError(f'{name} must lie in [0, 1), got {decay}')
  least = (max(1e-8, (noise_stddev / 10)**2) if floor is None
           else errors.check_positive('floor', floor))

  def init(params: PyTree) -> NoiseCorrectedState:
    return NoiseCorrectedState(jnp.int32(0), tree.zeros_like(params),
                               tree.zeros_like(params))

  def update(updates: PyTree, state: NoiseCorrectedState,
             params: PyTree = None) -> tuple[PyTree, NoiseCorrectedState]:
    del params
    step = state.step + 1
    mean = lambda decay: lambda old, new: decay * old + (1 - decay) * new
    first = jax.tree.map(mean(b1), state.first, updates)
    second = jax.tree.map(mean(b2), state.second, jax.tree.map(jnp.square,
                                                               updates))
    # The means start at zero; these weights make them means of gradients.
    weights = [1 / (1 - decay**step.astype(jnp.float32)) for decay in (b1, b2)]
    scaled = jax.tree.map(lambda m, v: weights[0] * m / jnp.sqrt(jnp.maximum(
        weights[1] * v - noise_stddev**2, least)), first, second)
    return scaled, NoiseCorrectedState(step, first, second)

  return optax.GradientTransformation(init, update)
