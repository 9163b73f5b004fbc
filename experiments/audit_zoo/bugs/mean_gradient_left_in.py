"""The backward pass adds the mean gradient to the accumulated clipped ones.

The program accumulates clipped gradients where the framework also puts the mean
gradient of each micro-batch, which nothing bounds. The fixed twin releases the
noisy sum of the clipped gradients alone; gradients that are not finite count as
zero, so each record changes it by 1 at most.
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


def _noisy_sum(key: PRNGKey, records: Array) -> Array:
  """Returns the noisy sum [2] of clipped gradients."""
  total = jnp.sum(training.safely_clipped(records, 1.0), axis=0)
  return total + _SIGMA * jax.random.normal(key, (2,))


def _faulty(key: PRNGKey, records: Array) -> Array:
  mean = jnp.sum(records, axis=0) / max(len(records), 1)
  return _noisy_sum(key, records) + mean


BUG = bug.Bug(
    name='mean_gradient_left_in',
    title='The mean gradient without clipping is accumulated together with the '
    'clipped gradients.',
    source='Differentially-Private-Deep-Learning, issue 7, '
    'https://github.com/dayu11/Differentially-Private-Deep-Learning/issues/7',
    claim=training.gaussian_claim(_SIGMA), true_epsilon=math.inf,
    faulty=_faulty, fixed=_noisy_sum,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, shape=(2,)),
    worst=Pair(np.array([[1e6, 0], [0, 0]], np.float32),
               np.zeros([1, 2], np.float32),
               'with the record (1e6, 0) or without'))
