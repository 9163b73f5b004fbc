"""Gradients are clipped to the default norm, noise is scaled to the chosen one.

The engine forgot to hand the clip norm on to the module that clips. The fixed
twin clips to the norm that scales its noise.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _CHOSEN, _DEFAULT = 2.0, 0.125, 1.0


def _step(key: PRNGKey, records: Array, norm: float) -> Array:
  """Returns the noisy sum [3] of gradients that are clipped to `norm`."""
  total = jnp.sum(training.clipped(records, norm), axis=0)
  return total + _SIGMA * _CHOSEN * jax.random.normal(key, (3,))


def _faulty(key: PRNGKey, records: Array) -> Array:
  return _step(key, records, _DEFAULT)


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _step(key, records, _CHOSEN)


BUG = bug.Bug(
    name='ignored_clip_norm',
    title='Gradients are clipped to a default norm of 1, while the noise is '
    'scaled to the chosen norm of 1/8.',
    source='Opacus, pull request 664, '
    'https://github.com/meta-pytorch/opacus/pull/664',
    claim=training.gaussian_claim(_SIGMA),
    true_epsilon=training.shift_epsilon(_DEFAULT / _CHOSEN / _SIGMA),
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, shape=(3,),
                         bounds=(-10.0, 10.0)),
    worst=Pair(np.array([[1, 0, 0]], np.float32), np.zeros([0, 3], np.float32),
               'the record (1, 0, 0) or none'))
