"""A median with noise of the size of its local sensitivity.

The local sensitivity is the distance from the median to the next record, so the
scale of the noise is a statistic of the data. Where three records are equal in
the middle there is no noise, and a neighbour has some. The twin uses the global
sensitivity of a median of numbers in [0, 1], which is 1.
"""

import math

import jax
import jax.numpy as jnp

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import arrays
from experiments.audit_zoo import bug

EPSILON = 1.0
_REPLACE = Adjacency.REPLACE_ONE


def _median_and_sensitivity(data: Array) -> tuple[Array, Array]:
  """Returns the median of an odd number of records, and its largest change."""
  # The ends are where replaced records may go.
  ordered = jnp.concatenate([jnp.zeros(1), jnp.sort(data), jnp.ones(1)])
  middle = ordered.size // 2
  gaps = ordered[middle:middle + 2] - ordered[middle - 1:middle + 1]
  return ordered[middle], jnp.max(gaps)


def faulty(key: PRNGKey, data: Array) -> Array:
  """Returns the median with noise for its local sensitivity."""
  median, sensitivity = _median_and_sensitivity(data)
  return median + sensitivity / EPSILON * jax.random.laplace(key)


def fixed(key: PRNGKey, data: Array) -> Array:
  """Returns the median with noise for its global sensitivity."""
  return (_median_and_sensitivity(data)[0] +
          jax.random.laplace(key) / EPSILON)


BUG = bug.Bug(
    name='median_local_sensitivity',
    title='The noise of a median is scaled to its local sensitivity.',
    source='Nissim, Raskhodnikova and Smith (2007), '
           'https://doi.org/10.1145/1250790.1250803',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_REPLACE),
    true_epsilon=math.inf, faulty=faulty, fixed=fixed,
    space=spaces.Records(adjacency=_REPLACE, bounds=(0.0, 1.0),
                         sizes=(7, 1, 3)),
    worst=Pair(arrays.float32([0, 0, 1]), arrays.float32([0, 0, 0]),
               'noise or none'))
