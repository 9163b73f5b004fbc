"""Report noisy max with exponential noise releases the largest noisy number.

Exponential noise is positive, so no released number is below the largest exact
one: numbers between the two largest of two neighbours tell them apart.

The twin releases the place alone. It is permute-and-flip, which is epsilon-DP
(McKenna and Sheldon 2020, Ding et al. 2021).
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

EPSILON, WIDTH = 1.0, 3


def _noisy(key: PRNGKey, data: Array) -> Array:
  """Returns the numbers with exponential noise of mean 2 / epsilon."""
  return data + 2 / EPSILON * jax.random.exponential(key, data.shape)


BUG = bug.Bug(
    name='noisy_max_releases_exponential',
    title='Report noisy max releases the largest number with noise that is '
          'never negative.',
    source='Ding et al. (2018, Algorithm 8), https://arxiv.org/abs/1805.10277',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0,
                       adjacency=Adjacency.REPLACE_ONE),
    true_epsilon=math.inf,
    faulty=lambda key, data: jnp.max(_noisy(key, data)),
    fixed=lambda key, data: jnp.argmax(_noisy(key, data)),
    space=spaces.Sums(adjacency=Adjacency.REPLACE_ONE, sensitivity=1.0,
                      order=math.inf, width=WIDTH),
    worst=Pair(np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32),
               'all numbers up'))
