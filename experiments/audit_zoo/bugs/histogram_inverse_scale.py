"""A histogram with Laplace noise of scale epsilon instead of 1 / epsilon.

One record changes one count by 1, so noise of scale b costs 1 / b: here
1 / epsilon, which is more than epsilon below epsilon = 1. The twin has scale
1 / epsilon.
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

EPSILON, BINS = 0.5, 4
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def _histogram(key: PRNGKey, data: Array, scale: float) -> Array:
  """Returns noisy counts [BINS] of records in 0..BINS-1."""
  counts = jnp.zeros(BINS).at[data].add(1.0)
  return counts + scale * jax.random.laplace(key, (BINS,))


BUG = bug.Bug(
    name='histogram_inverse_scale',
    title='The Laplace noise of a histogram has scale epsilon instead of '
          '1 / epsilon.',
    source='Ding et al. (2018, Algorithm 10), '
           'https://arxiv.org/abs/1805.10277; also WICG '
           'attribution-reporting-api, issue 1329, '
           'https://github.com/WICG/attribution-reporting-api/issues/1329',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=1 / EPSILON,
    faulty=lambda key, data: _histogram(key, data, EPSILON),
    fixed=lambda key, data: _histogram(key, data, 1 / EPSILON),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, num_categories=BINS),
    worst=Pair(arrays.int32([0, 0]), arrays.int32([0]),
               'one record more in a bin'))
