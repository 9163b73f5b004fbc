"""The sensitivity of a sum of squares reads the lower bound twice.

For features in [1, 3] a record changes the sum of squares by 9; the code takes
max(|1|, |1|)^2 = 1. With a lower bound of 0 there would be no noise at all. The
twin takes both bounds.
"""

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
LOWER, UPPER = 1.0, 3.0
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def _released(key: PRNGKey, data: Array, bounds: tuple[float, float]) -> Array:
  """Returns the noisy sum of squares of a feature within `bounds`."""
  sensitivity = max(map(abs, bounds))**2
  return (jnp.sum(jnp.square(data)) +
          sensitivity / EPSILON * jax.random.laplace(key))


BUG = bug.Bug(
    name='lower_bound_twice',
    title='The sensitivity of a coefficient of linear regression uses the '
          'lower bound twice.',
    source='diffprivlib, issue 104 and pull request 110, '
           'https://github.com/IBM/differential-privacy-library/issues/104',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=EPSILON * UPPER**2 / LOWER**2,
    faulty=lambda key, data: _released(key, data, (LOWER, LOWER)),
    fixed=lambda key, data: _released(key, data, (LOWER, UPPER)),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, bounds=(LOWER, UPPER)),
    worst=Pair(arrays.float32([1, UPPER]), arrays.float32([1]),
               'with the upper bound or without'))
