"""Algorithm 3 of Lyu, Su and Li (2017): the compared noisy answer is released.

A released number v lies above the noisy threshold, so all answers `below` lie
below v too. For v far below all exact answers each of them costs epsilon / 2,
and v itself another epsilon / 2: together w epsilon / 2 for w queries. No
larger ratio exists, because each factor of the density changes by exp(epsilon /
2) at most and the noise of the threshold is the same.

The twin draws fresh noise for the released answer (Wang et al. 2019, numerical
sparse vector): a third of epsilon each pays for the threshold, the comparison
and the number.
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
from experiments.audit_zoo import sparse_vector

EPSILON, WIDTH = 2.0, 4
FAULTY = sparse_vector.Version(threshold_scale=2 / EPSILON,
                               query_scale=2 / EPSILON, cutoff=1)
FIXED = sparse_vector.Version(threshold_scale=3 / EPSILON,
                              query_scale=6 / EPSILON, cutoff=1)


def faulty(key: PRNGKey, data: Array) -> Array:
  """Returns 0 for each negative answer, and the number that was compared."""
  answers, noisy = sparse_vector.above(key, data, FAULTY)
  return jnp.where(answers == 1, noisy, 0.0)


def fixed(key: PRNGKey, data: Array) -> Array:
  """Returns the same with noise of its own for the number."""
  answer_key, number_key = jax.random.split(key)
  answers, _ = sparse_vector.above(answer_key, data, FIXED)
  fresh = data + 3 / EPSILON * jax.random.laplace(number_key, data.shape)
  return jnp.where(answers == 1, fresh, 0.0)


BUG = bug.Bug(
    name='svt_releases_noisy_answer',
    title='The sparse vector technique releases the noisy answer that it '
          'compared with the threshold.',
    source='Lyu, Su and Li (2017, Algorithm 3, after Roth 2011), '
           'https://arxiv.org/abs/1603.01699',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0,
                       adjacency=Adjacency.REPLACE_ONE),
    true_epsilon=WIDTH * EPSILON / 2,
    faulty=faulty, fixed=fixed,
    space=spaces.Sums(adjacency=Adjacency.REPLACE_ONE, sensitivity=1.0,
                      order=math.inf, width=WIDTH),
    worst=Pair(arrays.float32([0] * (WIDTH - 1) + [1]),
               arrays.float32([1] * (WIDTH - 1) + [2]), 'all answers up'))
