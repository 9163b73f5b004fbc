"""A variance needs a sum of squares, whose noise is that of the values.

For values in [0, 50] a record changes the sum by 50 and the sum of squares by
2500. Both get noise of scale 2 * 50 / epsilon. The twin squares the bound too,
so that each sum costs epsilon / 2.
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

EPSILON, BOUND = 1.0, 50.0
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def _released(key: PRNGKey, data: Array, bounds: list[float]) -> Array:
  """Returns a noisy sum and sum of squares, for these sensitivities."""
  exact = jnp.array([jnp.sum(data), jnp.sum(jnp.square(data))])
  scales = 2 / EPSILON * jnp.array(bounds)
  return exact + scales * jax.random.laplace(key, (2,))


BUG = bug.Bug(
    name='squares_with_bounds_of_values',
    title='A sum of squares gets the noise of a sum of values.',
    source='smartnoise-sdk, issue 203, '
           'https://github.com/opendp/smartnoise-sdk/issues/203',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    # Both coordinates move towards the same tail: their costs add up.
    true_epsilon=EPSILON / 2 * (1 + BOUND),
    faulty=lambda key, data: _released(key, data, [BOUND, BOUND]),
    fixed=lambda key, data: _released(key, data, [BOUND, BOUND**2]),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, bounds=(0.0, BOUND)),
    worst=Pair(arrays.float32([0, BOUND]), arrays.float32([0]),
               'with the bound or without'))
