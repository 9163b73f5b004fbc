"""Geometric noise stops at the range of a count, and the sum is not clamped.

The noise of a count in 0..n is censored at -n and n. The release n + n is then
possible for the count n alone. The twin clamps the release to 0..n: that is
discrete Laplace noise followed by a clamp, because censored noise leaves 0..n
like noise beyond it.
"""

import math

import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug

EPSILON = 1.0
_REPLACE = Adjacency.REPLACE_ONE


def faulty(key: PRNGKey, data: Array) -> Array:
  """Returns the number of ones plus censored noise."""
  size = data.shape[0]
  noise = draws.discrete_laplace(key, (), 1 / EPSILON)
  count = jnp.sum(data).astype(noise.dtype)
  return count + jnp.clip(noise, -size, size)


def fixed(key: PRNGKey, data: Array) -> Array:
  """Returns the same, clamped to the possible counts."""
  return jnp.clip(faulty(key, data), 0, data.shape[0])


BUG = bug.Bug(
    name='geometric_without_clamp',
    title='Censored geometric noise is added to a count without a clamp of the '
          'sum.',
    source='smartnoise-core, pull request 318 and issue 319, '
           'https://github.com/opendp/smartnoise-core/pull/318',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_REPLACE),
    true_epsilon=math.inf, faulty=faulty, fixed=fixed,
    space=spaces.Records(adjacency=_REPLACE, num_categories=2,
                         sizes=(4, 1, 2)),
    worst=Pair(np.int32([1, 1, 1, 1]), np.int32([0, 1, 1, 1]),
               'a count of 4 or 3'))
