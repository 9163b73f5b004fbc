"""Optimisers and schedules of the learning rate that have a name.

They read noisy gradients and public numbers only, so they are post-processing.
"""

from collections.abc import Callable, Mapping
import functools

import jax.numpy as jnp
import optax

from dpjax import errors
from dpjax.train import adam

OPTIMIZERS: Mapping[str, Callable[..., optax.GradientTransformation]] = {
    'sgd': optax.sgd, 'momentum': functools.partial(optax.sgd, momentum=0.9),
    'adam': optax.adam, 'noise_corrected_adam': adam.noise_corrected}
"""Optimisers by name, as functions of the learning rate."""

SCHEDULES = ('constant', 'cosine')
"""Schedules of the learning rate."""


def named(name: str, learning_rate: float, *, schedule: str = 'constant',
          num_steps: int | None = None) -> optax.GradientTransformation:
  """Returns the optimiser of a name.

  Args:
    name: one of `OPTIMIZERS`: 'momentum' is SGD with momentum 0.9,
      'noise_corrected_adam' is `adam.noise_corrected`.
    learning_rate: the first one, positive.
    schedule: 'constant', or 'cosine', which falls to 0 in `num_steps` steps
      along half a period of a cosine.
    num_steps: number of steps of the run; needed by 'cosine' only.

  Raises:
    ValueError: if a value is out of range, or if 'cosine' has no `num_steps`.
  """
  errors.check_choice('optimizer', name, OPTIMIZERS)
  errors.check_positive('learning_rate', learning_rate)
  rate: optax.ScalarOrSchedule = learning_rate
  if errors.check_choice('schedule', schedule, SCHEDULES) == 'cosine':
    if num_steps is None:
      raise ValueError('the cosine schedule needs the number of steps in '
                       'which the learning rate falls to 0')
    decay = optax.cosine_decay_schedule(learning_rate, num_steps)
    # Strict promotion of dtypes does not divide the integer count by a float.
    rate = lambda count: decay(count.astype(jnp.float32))
  return OPTIMIZERS[name](rate)
