"""Records are clipped, and the covariance is computed from the raw ones.

One raw record moves the covariance without bound. With n records in [0, 1]^2,
n public, a replaced record changes each of the three covariances by 1 / n at
most, so their l1 sensitivity is 3 / n; the twin uses the clipped records, with
0 for NaN.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug

EPSILON = 1.0
_REPLACE = Adjacency.REPLACE_ONE


def _released(key: PRNGKey, data: Array) -> Array:
  """Returns the noisy covariances [3] of records [n, 2], n > 1."""
  size = data.shape[0]
  residuals = data - jnp.mean(data, axis=0, keepdims=True)
  exact = (residuals.T @ residuals)[jnp.tril_indices(2)] / (size - 1)
  return exact + 3 / (size * EPSILON) * jax.random.laplace(key, (3,))


def _clipped(data: Array) -> Array:
  """Returns records in [0, 1]^2, with 0 for NaN."""
  return jnp.clip(jnp.where(jnp.isnan(data), 0.0, data), 0.0, 1.0)


def faulty(key: PRNGKey, data: Array) -> Array:
  """Clips the records into a copy, which it forgets."""
  _ = _clipped(data)
  return _released(key, data)


BUG = bug.Bug(
    name='clipped_copy_unused',
    title='A covariance is computed from the raw records instead of the '
          'clipped ones.',
    source='smartnoise-sdk, issue 622 (found by Cebere et al. 2026), '
           'https://github.com/opendp/smartnoise-sdk/issues/622',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_REPLACE),
    true_epsilon=math.inf, faulty=faulty,
    fixed=lambda key, data: _released(key, _clipped(data)),
    space=spaces.Records(adjacency=_REPLACE, shape=(2,), sizes=(8, 2)),
    worst=Pair(np.float32([[1e3, 1e3], [0, 0]]), np.zeros([2, 2], np.float32),
               'a huge record or zero'))
