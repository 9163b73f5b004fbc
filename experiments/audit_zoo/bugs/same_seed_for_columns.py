"""The noise of two columns has the same seed.

The difference of the two released sums has no noise. The twin splits the key:
then a record changes the sums by 2 in l1 norm, and the scale is 2 / epsilon.
"""

import math

import jax
import jax.numpy as jnp

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array
from experiments.audit_zoo import arrays
from experiments.audit_zoo import bug

EPSILON = 1.0
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def _sums(keys: Array, data: Array) -> Array:
  """Returns sums [2] of the columns, each with the noise of its key."""
  noise = jax.vmap(jax.random.laplace)(keys)
  return jnp.sum(data, axis=0) + 2 / EPSILON * noise


BUG = bug.Bug(
    name='same_seed_for_columns',
    title='Two columns get the same noise, because they have the same seed.',
    source='diffprivlib, issue 31, '
           'https://github.com/IBM/differential-privacy-library/issues/31',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=math.inf,
    faulty=lambda key, data: _sums(jnp.stack([key, key]), data),
    fixed=lambda key, data: _sums(jax.random.split(key), data),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, shape=(2,),
                         bounds=(0.0, 1.0)),
    worst=Pair(arrays.float32([[0, 1], [0, 0]]), arrays.float32([[0, 0]]),
               'a record with different columns'))
