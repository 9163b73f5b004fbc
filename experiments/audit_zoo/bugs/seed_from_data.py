"""The noise is seeded by a fingerprint of the data.

The release is then a deterministic function of the data, so that two data sets
never have a release in common unless their noise happens to cancel their
difference. Whoever guesses the data computes the release and compares. The twin
uses the key of the call.
"""

import math

import jax
import jax.numpy as jnp

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import arrays
from experiments.audit_zoo import bug

EPSILON, BINS = 1.0, 4
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def fixed(key: PRNGKey, data: Array) -> Array:
  """Returns noisy counts [BINS]."""
  counts = jnp.zeros(BINS).at[data].add(1.0)
  return counts + draws.discrete_laplace(key, (BINS,), 1 / EPSILON)


def faulty(key: PRNGKey, data: Array) -> Array:
  """Returns noisy counts whose noise is a function of the counts."""
  del key  # The mistake.
  counts = jnp.zeros(BINS, jnp.uint32).at[data].add(1)
  weights = jnp.uint32(31) ** jnp.arange(BINS, dtype=jnp.uint32)
  return fixed(jax.random.key(jnp.sum(counts * weights)), data)


BUG = bug.Bug(
    name='seed_from_data',
    title='The seed of the noise is a fingerprint of the private data.',
    source='cross-media-measurement, issue 4387, https://github.com/'
           'world-federation-of-advertisers/cross-media-measurement/issues/4387',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=math.inf, faulty=faulty, fixed=fixed,
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, num_categories=BINS),
    worst=Pair(arrays.int32([0, 1, 2]), arrays.int32([0, 1]),
               'three records or two'))
