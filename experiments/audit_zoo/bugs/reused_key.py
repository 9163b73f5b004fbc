"""All parameters get their noise from the same key, so the noise is the same.

The difference of two parameters of one shape is then released without noise.
The fixed twin splits the key; its noise is independent in all coordinates,
which is the event of the claim.
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

_SIGMA = 2.0


def _faulty(key: PRNGKey, records: Array) -> dict[str, Array]:
  kernel, bias = jnp.sum(training.clipped(records, 1.0), axis=0)
  return dict(kernel=kernel + _SIGMA * jax.random.normal(key, (1,)),
              bias=bias + _SIGMA * jax.random.normal(key, (1,)))


def _fixed(key: PRNGKey, records: Array) -> dict[str, Array]:
  kernel, bias = jnp.sum(training.clipped(records, 1.0), axis=0)
  first, second = jax.random.split(key)
  return dict(kernel=kernel + _SIGMA * jax.random.normal(first, (1,)),
              bias=bias + _SIGMA * jax.random.normal(second, (1,)))


BUG = bug.Bug(
    name='reused_key',
    title='One random key draws the noise of all parameters, so that their '
    'differences have no noise.',
    source='JAX, pull request 3646, https://github.com/jax-ml/jax/pull/3646',
    claim=training.gaussian_claim(_SIGMA), true_epsilon=math.inf,
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, shape=(2,),
                         bounds=(-1.0, 1.0)),
    worst=Pair(np.array([[1, -1], [0.5, 0.5]], np.float32),
               np.array([[0.5, 0.5]], np.float32),
               'with the record (1, -1) or without'))
