"""The mean gradient of a micro-batch of two records is clipped, not each one.

One record can turn the clipped mean around, from 1 to -1, which is twice the
accounted change. The fixed twin clips the gradient of each record.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _SIZE = 2.0, 2


def _noisy_sum(key: PRNGKey, gradients: Array) -> Array:
  """Returns the noisy sum [1] of clipped gradients."""
  total = jnp.sum(training.clipped(gradients, 1.0), axis=0)
  return total + _SIGMA * jax.random.normal(key, (1,))


def _faulty(key: PRNGKey, records: Array) -> Array:
  # The last micro-batch may have one record only.
  padding = -len(records) % _SIZE
  groups = jnp.pad(records, (0, padding)).reshape(-1, _SIZE)
  sizes = jnp.pad(jnp.ones(len(records)), (0, padding)).reshape(-1, _SIZE)
  means = groups.sum(axis=1) / sizes.sum(axis=1)
  return _noisy_sum(key, means[:, None])


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _noisy_sum(key, records[:, None])


BUG = bug.Bug(
    name='clipped_microbatches',
    title='The mean gradients of micro-batches are clipped instead of the '
    'gradients of records, with noise for the clip norm alone.',
    source='TensorFlow Privacy, issue 81, '
    'https://github.com/tensorflow/privacy/issues/81',
    claim=training.gaussian_claim(_SIGMA),
    # The mean of 1 and -10 is clipped to -1.
    true_epsilon=training.shift_epsilon(2 / _SIGMA),
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE,
                         bounds=(-10.0, 10.0)),
    worst=Pair(np.array([1, -10], np.float32), np.array([1], np.float32),
               'with -10 or without, beside 1'))
