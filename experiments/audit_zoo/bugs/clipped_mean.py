"""The mean gradient of a mini-batch is clipped, as in training without privacy.

The noise is scaled to the clip norm over the batch size, which bounds one
record's part of a mean of clipped gradients, not a clipped mean. The fixed twin
clips the gradient of each record before it takes the mean.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _BATCH = 8.0, 4


def _with_noise(key: PRNGKey, mean: Array) -> Array:
  """Adds noise for a mean of clipped gradients over the public batch size."""
  return mean + _SIGMA / _BATCH * jax.random.normal(key, mean.shape)


def _faulty(key: PRNGKey, records: Array) -> Array:
  mean = jnp.sum(records, axis=0, keepdims=True) / _BATCH
  return _with_noise(key, training.clipped(mean[:, None], 1.0)[0])


def _fixed(key: PRNGKey, records: Array) -> Array:
  gradients = training.clipped(records[:, None], 1.0)
  return _with_noise(key, jnp.sum(gradients, axis=0) / _BATCH)


BUG = bug.Bug(
    name='clipped_mean',
    title='The gradient of the whole mini-batch is clipped instead of that of '
    'each record, with noise for a mean of clipped gradients.',
    source='APPFL, issue 349, https://github.com/APPFL/APPFL/issues/349',
    claim=training.gaussian_claim(_SIGMA),
    # The clipped mean moves from -1 to 1, the noise has deviation 2.
    true_epsilon=training.shift_epsilon(2 * _BATCH / _SIGMA),
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE,
                         bounds=(-10.0, 10.0)),
    worst=Pair(np.array([10, -5], np.float32), np.array([-5], np.float32),
               'with 10 or without, beside -5'))
