"""The classical Gaussian scale is used for a large epsilon.

sqrt(2 ln(1.25 / delta)) / epsilon is proven for epsilon below 1, and at delta =
1e-5 it is too small above 8.4. The twin has the exact scale of Balle and Wang
(2018). No count of 2^15 runs can refute a claim of epsilon = 15 at one point,
because e^15 is larger than 2^15: this bug needs an auditor that looks inside.
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

EPSILON, DELTA = 15.0, 1e-5
FAULTY_SIGMA = math.sqrt(2 * math.log(1.25 / DELTA)) / EPSILON
FIXED_SIGMA = 1 / accounting.gaussian_shift(epsilon=EPSILON, delta=DELTA)
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def _released(key: PRNGKey, data: Array, stddev: float) -> Array:
  """Returns the sum of numbers in [0, 1] with Gaussian noise."""
  return jnp.sum(data) + stddev * jax.random.normal(key)


BUG = bug.Bug(
    name='classical_gaussian',
    title='The classical scale of Gaussian noise is used for an epsilon for '
          'which it is not proven.',
    source='Balle and Wang (2018, Section 2.3), '
           'https://arxiv.org/abs/1805.06530',
    claim=claims.Claim(epsilon=EPSILON, delta=DELTA, adjacency=_ADD_OR_REMOVE),
    true_epsilon=accounting.gaussian_epsilon(shift=1 / FAULTY_SIGMA,
                                             delta=DELTA),
    faulty=lambda key, data: _released(key, data, FAULTY_SIGMA),
    fixed=lambda key, data: _released(key, data, FIXED_SIGMA),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, bounds=(0.0, 1.0)),
    worst=Pair(arrays.float32([0, 1]), arrays.float32([0]),
               'with 1 or without'))
