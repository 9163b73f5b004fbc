"""Values are scaled to [0, 1] by their own minimum and maximum.

The released sum is scaled back by the same numbers, which are secret. The fixed
twin scales by public bounds: a record changes the sum by 1 at most, so Laplace
noise of scale 1 gives epsilon 1.
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


def _scaled_sum(key: PRNGKey, records: Array, low: Array | float,
                high: Array | float) -> Array:
  """Returns the noisy sum of scaled records, in the records' unit again."""
  width = high - low
  scaled = (records - low) / jnp.maximum(width, 1e-30)
  return low + width * (jnp.sum(scaled) + jax.random.laplace(key))


def _faulty(key: PRNGKey, records: Array) -> Array:
  # No value is outside of [0, 1], so these initial values change nothing.
  low = jnp.min(records, initial=1.0)
  return _scaled_sum(key, records, low,
                     jnp.maximum(low, jnp.max(records, initial=0.0)))


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _scaled_sum(key, records, 0.0, 1.0)


BUG = bug.Bug(
    name='range_of_data',
    title='The range by which values are scaled is the minimum and maximum of '
    'the private data.',
    source='Synthcity, issue 278 (PATE-GAN), '
    'https://github.com/vanderschaarlab/synthcity/issues/278; dpart, pull '
    'request 6, https://github.com/hazy/dpart/pull/6',
    claim=training.pure_claim(1.0, training.ADD_OR_REMOVE),
    true_epsilon=math.inf, faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, bounds=(0.0, 1.0)),
    worst=Pair(np.array([1, 0, 0], np.float32), np.zeros([2], np.float32),
               'with 1 or without, beside zeros'))
