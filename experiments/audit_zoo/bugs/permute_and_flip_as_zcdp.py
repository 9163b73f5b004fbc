"""Permute-and-flip is accounted as the exponential mechanism, in zCDP.

The exponential mechanism has a bounded range, so at epsilon it is rho-zCDP with
rho = epsilon^2 / 8. Permute-and-flip is epsilon-DP but has no bounded range.
Scores (0, 0) give the second place with probability 1/2; scores (1, -1) with
e^-epsilon / 2. The twin is the exponential mechanism.
"""

import math

import jax
import jax.numpy as jnp

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import arrays
from experiments.audit_zoo import bug

EPSILON, DELTA = 1.0, 0.05
_REPLACE = Adjacency.REPLACE_ONE


def faulty(key: PRNGKey, data: Array) -> Array:
  """Permute-and-flip, as the place of the largest score with exponential noise.

  The two have one distribution (Ding et al. 2021).
  """
  return jnp.argmax(data + 2 / EPSILON * jax.random.exponential(key,
                                                                data.shape))


def fixed(key: PRNGKey, data: Array) -> Array:
  """The exponential mechanism, by Gumbel noise."""
  return jnp.argmax(data + 2 / EPSILON * jax.random.gumbel(key, data.shape))


BUG = bug.Bug(
    name='permute_and_flip_as_zcdp',
    title='Permute-and-flip is accounted with the zCDP of the exponential '
          'mechanism, which is too low.',
    source='OpenDP, issue 2911, https://github.com/opendp/opendp/issues/2911',
    claim=claims.of_event(
        accounting.concentrated_event(rho=EPSILON**2 / 8, adjacency=_REPLACE),
        delta=DELTA, adjacency=_REPLACE),
    true_epsilon=EPSILON + math.log(1 - 2 * DELTA), faulty=faulty, fixed=fixed,
    space=spaces.Scores(adjacency=_REPLACE, sensitivity=1.0, width=2),
    worst=Pair(arrays.float32([1, -1]), arrays.float32([0, 0]),
               'one score up, one down'))
