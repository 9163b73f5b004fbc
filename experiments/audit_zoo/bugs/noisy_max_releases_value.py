"""Report noisy max releases the largest noisy number (Ding et al. 2018).

The largest of w noisy numbers is below t only if all w are, so a move of all
numbers costs w epsilon / 2 in the lower tail: its density is w f F^(w-1), and
f and F both change by the factor exp(epsilon / 2) there, at most.

The twin releases the place alone: for fixed noise of the others, a place wins
if its noise exceeds a bound that a neighbour moves by 2, at most.
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

EPSILON, WIDTH = 1.0, 4


def _noisy(key: PRNGKey, data: Array) -> Array:
  """Returns the numbers with Laplace noise of scale 2 / epsilon."""
  return data + 2 / EPSILON * jax.random.laplace(key, data.shape)


BUG = bug.Bug(
    name='noisy_max_releases_value',
    title='Report noisy max releases the largest noisy number instead of its '
          'place.',
    source='Ding et al. (2018, Algorithm 7), https://arxiv.org/abs/1805.10277',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0,
                       adjacency=Adjacency.REPLACE_ONE),
    true_epsilon=WIDTH * EPSILON / 2,
    faulty=lambda key, data: jnp.max(_noisy(key, data)),
    fixed=lambda key, data: jnp.argmax(_noisy(key, data)),
    space=spaces.Sums(adjacency=Adjacency.REPLACE_ONE, sensitivity=1.0,
                      order=math.inf, width=WIDTH),
    worst=Pair(np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32),
               'all numbers up'))
