"""The covariance is computed from the raw data, not from the clipped copy.

The function clips the data, and then forgets the result. The fixed twin uses
it: each of the three sums of products changes by 1 at most when a record is
added, so Laplace noise of scale 3 gives epsilon 1.
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


def _noisy_products(key: PRNGKey, records: Array) -> Array:
  """Returns noisy sums of the products xx, xy and yy."""
  products = (records.T @ records)[jnp.tril_indices(2)]
  return products + 3.0 * jax.random.laplace(key, (3,))


def _clipped(records: Array) -> Array:
  return jnp.clip(jnp.nan_to_num(records), -1.0, 1.0)


def _faulty(key: PRNGKey, records: Array) -> Array:
  _clipped(records)
  return _noisy_products(key, records)


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _noisy_products(key, _clipped(records))


BUG = bug.Bug(
    name='unused_clipped_copy',
    title='The covariance is computed from the raw data although the data were '
    'clipped before.',
    source='SmartNoise SDK, issue 622, '
    'https://github.com/opendp/smartnoise-sdk/issues/622; Cebere et al. '
    '(2026), https://arxiv.org/abs/2602.17454',
    claim=training.pure_claim(1.0, training.ADD_OR_REMOVE),
    true_epsilon=math.inf, faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, shape=(2,)),
    worst=Pair(np.array([[1000, 0], [0, 0]], np.float32),
               np.zeros([1, 2], np.float32),
               'with (1000, 0) or without'))
