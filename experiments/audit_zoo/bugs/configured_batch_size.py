"""The noise is scaled to a batch four times as large as the one of a step.

The program divides the noise by the configured effective batch size, but takes
the mean over the batch that its loader yields. Its other mistakes, such as the
division that never happens, are left out. The fixed twin divides both by the
same public size.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _RATE, _LOADED, _CONFIGURED = 4.0, 0.25, 2, 8


def _step(key: PRNGKey, records: Array, noised: int) -> Array:
  """Returns a noisy mean gradient, whose noise is divided by `noised`."""
  batch_key, noise_key = jax.random.split(key)
  gradients = training.clipped(records[:, None], 1.0)
  batch = training.in_batch(batch_key, gradients, _RATE)
  return jnp.sum(batch * gradients, axis=0) / _LOADED + (
      _SIGMA / noised * jax.random.normal(noise_key, (1,)))


def _faulty(key: PRNGKey, records: Array) -> Array:
  return _step(key, records, _CONFIGURED)


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _step(key, records, _LOADED)


BUG = bug.Bug(
    name='configured_batch_size',
    title='The noise is divided by a configured batch size that is four times '
    'the size over which the gradients are averaged.',
    source='the code of Barczewski (2025), '
    'https://github.com/AntoineBarczewski/lip_dp_sgd',
    claim=training.gaussian_claim(_SIGMA, sampling_prob=_RATE),
    true_epsilon=training.gaussian_claim(
        _SIGMA * _LOADED / _CONFIGURED, sampling_prob=_RATE).epsilon,
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, bounds=(-1.0, 1.0)),
    worst=Pair(np.array([1], np.float32), np.zeros([0], np.float32),
               'the record 1 or none'))
