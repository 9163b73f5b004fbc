"""Algorithm 8 divides all gradients by the largest input norm of the batch.

With a large record in the batch the contributions of all others shrink, so that
the sum changes by far more than the claimed bound of one record. The fixed twin
divides each gradient by its own norm if that exceeds 1.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _LARGEST = 3.0, 100.0


def _faulty(key: PRNGKey, records: Array) -> Array:
  # The loss has Lipschitz constant 1, so input norms bound gradient norms.
  largest = jnp.max(jnp.abs(records), initial=0.0)
  total = jnp.sum(records) / jnp.maximum(largest, 1e-30)
  return total + _SIGMA * jax.random.normal(key, (1,))


def _fixed(key: PRNGKey, records: Array) -> Array:
  total = jnp.sum(training.clipped(records[:, None], 1.0))
  return total + _SIGMA * jax.random.normal(key, (1,))


BUG = bug.Bug(
    name='lipschitz_batch_maximum',
    title='All gradients are divided by the largest input norm of the batch, '
    'through which one record changes all contributions.',
    source='Barczewski (2025), Algorithm 8',
    claim=training.gaussian_claim(_SIGMA),
    # Eight ones sum to 8; with -100 the sum is -92 / 100.
    true_epsilon=training.shift_epsilon((8 + 0.92) / _SIGMA),
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE,
                         bounds=(-_LARGEST, _LARGEST)),
    worst=Pair(np.array([-_LARGEST] + [1] * 8, np.float32),
               np.ones([8], np.float32),
               'with -100 or without, beside eight ones'))
