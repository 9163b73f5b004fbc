"""Keys are published above a threshold for Laplace noise, in Gaussian noise.

A key of one record must be published with probability delta / 2 at most. The
threshold 1 - ln(delta) / epsilon does that for Laplace noise of scale 1 /
epsilon. Gaussian noise for delta / 2 is several times as wide and exceeds it
far more often, and without the record the key is never published.

The twin uses the quantile of the Gaussian noise, and the other delta / 2 for
its counts. A record has one key.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import arrays
from experiments.audit_zoo import bug

EPSILON, DELTA, KEYS = 1.0, 1e-5, 3
# The classical scale, which is proven for epsilon <= 1 (Dwork and Roth 2014).
SIGMA = math.sqrt(2 * math.log(1.25 / (DELTA / 2))) / EPSILON
FAULTY_THRESHOLD = 1 - math.log(DELTA) / EPSILON
FIXED_THRESHOLD = 1 + SIGMA * float(stats.norm.isf(DELTA / 2))
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def _published(key: PRNGKey, data: Array, threshold: float) -> Array:
  """Returns noisy counts [KEYS] of published keys, and 0 for the others."""
  counts = jnp.zeros(KEYS).at[data].add(1.0)
  noisy = counts + SIGMA * jax.random.normal(key, (KEYS,))
  return jnp.where((counts > 0) & (noisy > threshold), noisy, 0.0)


BUG = bug.Bug(
    name='laplace_threshold_for_gaussian',
    title='The threshold of private keys is computed for Laplace noise, but '
          'the noise is Gaussian.',
    source='smartnoise-sdk, issue 204, '
           'https://github.com/opendp/smartnoise-sdk/issues/204',
    claim=claims.Claim(epsilon=EPSILON, delta=DELTA, adjacency=_ADD_OR_REMOVE),
    true_epsilon=math.inf,
    faulty=lambda key, data: _published(key, data, FAULTY_THRESHOLD),
    fixed=lambda key, data: _published(key, data, FIXED_THRESHOLD),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, num_categories=KEYS),
    worst=Pair(arrays.int32([0]), np.zeros([0], np.int32),
               'the only record of a key, or none'))
