"""A sampler with weights is accounted with the average sampling rate.

Weights that balance the classes draw the only record of a rare class in every
step. The rate 'batch size over n', which the thread proposes, is an average
over all records. The fixed twin draws all records at this rate, which is the
event of the claim.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _RATE = 1.0, 0.25


def _noisy_sum(key: PRNGKey, records: Array, rates: Array | float) -> Array:
  """Returns the noisy sum [1] of records drawn with these probabilities."""
  batch_key, noise_key = jax.random.split(key)
  batch = jax.random.bernoulli(batch_key, rates, records.shape)
  total = jnp.sum(jnp.where(batch, records, 0.0))
  return total + _SIGMA * jax.random.normal(noise_key, (1,))


def _faulty(key: PRNGKey, records: Array) -> Array:
  positive = (records > 0).astype(jnp.float32)
  of_class = jnp.stack([positive, 1 - positive])
  sizes = of_class.sum(axis=1)
  # Each class that is there has the same part of the batch of n / 4 records.
  part = _RATE * len(records) / jnp.maximum((sizes > 0).sum(
      dtype=jnp.float32), 1.0)
  rates = part / jnp.maximum(sizes, 1.0) @ of_class
  return _noisy_sum(key, records, jnp.minimum(rates, 1.0))


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _noisy_sum(key, records, _RATE)


BUG = bug.Bug(
    name='weighted_sampler',
    title='A sampler with weights is accounted as if every record had the '
    'average sampling rate.',
    source='proposed in Opacus, issue 813 and pull request 814, '
    'https://github.com/meta-pytorch/opacus/issues/813',
    claim=training.gaussian_claim(_SIGMA, sampling_prob=_RATE),
    # The only positive record among eight others is always drawn.
    true_epsilon=training.shift_epsilon(1 / _SIGMA),
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, bounds=(-1.0, 1.0)),
    worst=Pair(np.eye(9, dtype=np.float32)[0], np.zeros([8], np.float32),
               'a record 1 among eight zeros, or only these'))
