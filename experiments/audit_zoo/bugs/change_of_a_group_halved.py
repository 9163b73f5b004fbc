"""A group of at most k rows is said to change by at most k rows.

If all rows of a group are replaced, k leave and k others come: the sum changes
by 2 k bounds, and the noise is for k. The twin has noise for 2 k.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug

EPSILON, BOUND, ROWS = 1.0, 10.0, 3
_REPLACE = Adjacency.REPLACE_ONE


def _released(key: PRNGKey, data: Array, rows: int) -> Array:
  """Returns the sum of all rows, with noise for a change of `rows` rows.

  Args:
    key: fresh.
    data: [n, ROWS] the rows of n users.
    rows: number of rows that are said to change.
  """
  return jnp.sum(data) + rows * BOUND / EPSILON * jax.random.laplace(key)


BUG = bug.Bug(
    name='change_of_a_group_halved',
    title='A group of at most k rows is taken to change by k rows, where it '
          'may change by 2 k.',
    source='OpenDP, issue 2945, https://github.com/opendp/opendp/issues/2945',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_REPLACE),
    true_epsilon=2 * EPSILON,
    faulty=lambda key, data: _released(key, data, ROWS),
    fixed=lambda key, data: _released(key, data, 2 * ROWS),
    space=spaces.Records(adjacency=_REPLACE, shape=(ROWS,),
                         bounds=(-BOUND, BOUND)),
    worst=Pair(np.full([1, ROWS], BOUND, np.float32),
               np.full([1, ROWS], -BOUND, np.float32), 'all rows replaced'))
