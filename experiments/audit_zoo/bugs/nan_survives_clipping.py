"""Clipping keeps NaN, and one NaN makes the whole sum NaN.

The release is NaN if and only if a record is. The twin replaces NaN by 0 before
it clips, so that one record changes the sum by 1 at most.
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
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def faulty(key: PRNGKey, data: Array) -> Array:
  """Returns the noisy sum of records clipped to [0, 1]."""
  return jnp.sum(jnp.clip(data, 0.0, 1.0)) + jax.random.laplace(key) / EPSILON


def fixed(key: PRNGKey, data: Array) -> Array:
  """Returns the same with 0 for NaN."""
  return faulty(key, jnp.where(jnp.isnan(data), 0.0, data))


BUG = bug.Bug(
    name='nan_survives_clipping',
    title='A record of NaN passes the clipping and makes the release NaN.',
    source='Cebere et al. (2026, Section 4.3.9, on Diffprivlib, Opacus and '
           'others), https://arxiv.org/abs/2602.17454',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=math.inf, faulty=faulty, fixed=fixed,
    space=spaces.Records(adjacency=_ADD_OR_REMOVE),
    worst=Pair(np.float32([0, np.nan]), np.float32([0]), 'with NaN or without'))
