"""Opacus divides by the floor of n times the sampling rate, a secret size.

One record more can raise this floor. Then all coordinates of the released mean
have noise of another width, which many parameters reveal almost surely. The
fixed twin divides by a public constant: a noisy sum of clipped records,
Poisson sampled, is the event of the claim, and the division is post-processing.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _RATE, _SIZE = 2.0, 1 / 3, 16


def _noisy_sum(key: PRNGKey, records: Array) -> Array:
  """Returns the noisy sum of a Poisson batch's clipped gradients."""
  batch_key, noise_key = jax.random.split(key)
  batch = training.in_batch(batch_key, records, _RATE)
  total = jnp.sum(batch * training.clipped(records, 1.0), axis=0)
  return total + _SIGMA * jax.random.normal(noise_key, (_SIZE,))


def _faulty(key: PRNGKey, records: Array) -> Array:
  expected = max(int(len(records) * _RATE + 1e-9), 1)
  return _noisy_sum(key, records) / expected


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _noisy_sum(key, records) / 3.0


BUG = bug.Bug(
    name='floor_batch_size',
    title='The mean gradient is divided by the floor of the number of records '
    'times the sampling rate, which reveals the number of records.',
    source='Opacus, issues 819 and 571, '
    'https://github.com/meta-pytorch/opacus/issues/819',
    claim=training.gaussian_claim(_SIGMA, sampling_prob=_RATE),
    # Nine records of zeros are divided by 3, eight by 2.
    true_epsilon=training.widths_epsilon(3 / 2, _SIZE),
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, shape=(_SIZE,),
                         bounds=(-1.0, 1.0)),
    worst=Pair(np.zeros([9, _SIZE], np.float32),
               np.zeros([8, _SIZE], np.float32), 'nine records or eight'))
