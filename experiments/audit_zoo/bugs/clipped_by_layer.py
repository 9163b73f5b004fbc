"""Each of 16 layers is clipped to the norm that is meant for all of them.

A record then changes the gradient by four times the clip norm. The fixed twin
clips the joint norm of all layers, which the claim assumes.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _LAYERS = 2.0, 16


def _faulty(key: PRNGKey, records: Array) -> Array:
  # One parameter in each layer: its norm is its magnitude.
  total = jnp.sum(jnp.clip(records, -1.0, 1.0), axis=0)
  return total + _SIGMA * jax.random.normal(key, (_LAYERS,))


def _fixed(key: PRNGKey, records: Array) -> Array:
  total = jnp.sum(training.clipped(records, 1.0), axis=0)
  return total + _SIGMA * jax.random.normal(key, (_LAYERS,))


BUG = bug.Bug(
    name='clipped_by_layer',
    title='Each layer is clipped to the whole clip norm, and the layers are '
    'accounted as one.',
    source='Fed-BioMed, issue 1443, item 4, '
    'https://github.com/fedbiomed/fedbiomed/issues/1443',
    claim=training.gaussian_claim(_SIGMA),
    # A record of ones has norm sqrt(16).
    true_epsilon=training.shift_epsilon(_LAYERS**0.5 / _SIGMA),
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, shape=(_LAYERS,),
                         bounds=(-10.0, 10.0)),
    worst=Pair(np.ones([1, _LAYERS], np.float32),
               np.zeros([0, _LAYERS], np.float32), 'a record of ones or none'))
