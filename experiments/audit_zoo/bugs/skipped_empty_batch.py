"""A step whose Poisson batch is empty is skipped, with its noise.

An update of exactly zero then says that the batch was empty, and every other
update that there are records. The fixed twin adds noise to the empty sum too:
the event of the claim.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _RATE = 2.0, 0.5


def _step(key: PRNGKey, records: Array, skip: bool) -> Array:
  """Returns the update [1] of a step, zero if it is skipped."""
  batch_key, noise_key = jax.random.split(key)
  gradients = training.clipped(records[:, None], 1.0)
  batch = training.in_batch(batch_key, gradients, _RATE)
  noisy = jnp.sum(batch * gradients, axis=0) + (
      _SIGMA * jax.random.normal(noise_key, (1,)))
  return jnp.where(batch.any() | (not skip), noisy, 0.0)


def _faulty(key: PRNGKey, records: Array) -> Array:
  return _step(key, records, skip=True)


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _step(key, records, skip=False)


BUG = bug.Bug(
    name='skipped_empty_batch',
    title='A step with an empty batch is skipped without adding its noise.',
    source='Opacus, issue 161 and pull request 164, '
    'https://github.com/meta-pytorch/opacus/issues/161',
    claim=training.gaussian_claim(_SIGMA, sampling_prob=_RATE),
    true_epsilon=math.inf, faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, bounds=(-1.0, 1.0)),
    worst=Pair(np.array([1], np.float32), np.zeros([0], np.float32),
               'a record or none'))
