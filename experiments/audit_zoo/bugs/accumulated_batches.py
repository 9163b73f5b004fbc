"""The accountant gets the sampling rate of a micro-batch, not of a step.

With gradient accumulation a step uses the records of several micro-batches. The
validation of jax_privacy left this factor out and accepted epsilon 5.6 as 0.72.
The fixed twin draws a step's records at the accounted rate: the event of the
claim.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _RATE, _ACCUMULATED = 1.5, 0.05, 16


def _step(key: PRNGKey, records: Array, rate: float) -> Array:
  """Returns the noisy sum [2] of a step that draws records at a rate."""
  batch_key, noise_key = jax.random.split(key)
  batch = training.in_batch(batch_key, records, rate)
  total = jnp.sum(batch * training.clipped(records, 1.0), axis=0)
  return total + _SIGMA * jax.random.normal(noise_key, (2,))


def _faulty(key: PRNGKey, records: Array) -> Array:
  return _step(key, records, _ACCUMULATED * _RATE)


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _step(key, records, _RATE)


BUG = bug.Bug(
    name='accumulated_batches',
    title='The accountant uses the sampling rate of one micro-batch, while a '
    'step accumulates 16 of them.',
    source='jax_privacy, pull request 287, '
    'https://github.com/google-deepmind/jax_privacy/pull/287',
    claim=training.gaussian_claim(_SIGMA, sampling_prob=_RATE),
    true_epsilon=training.gaussian_claim(
        _SIGMA, sampling_prob=_ACCUMULATED * _RATE).epsilon,
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, shape=(2,),
                         bounds=(-1.0, 1.0)),
    worst=Pair(np.array([[1, 0], [0, 0]], np.float32),
               np.zeros([1, 2], np.float32),
               'with the record (1, 0) or without'))
