"""A user answers four times by randomised response, and pays for one.

Each answer is epsilon-DP by itself. Four independent answers on the same truth
cost 4 epsilon. The twin draws one noisy answer and repeats it, which costs no
more than one.
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

EPSILON, ANSWERS = 1.0, 4
_REPLACE = Adjacency.REPLACE_ONE


def _answers(key: PRNGKey, data: Array, number: int) -> Array:
  """Returns independent randomised responses [number] on the only record."""
  lies = jax.random.bernoulli(key, 1 / (1 + math.exp(EPSILON)), (number,))
  return jnp.where(lies, 1 - data[0], data[0])


BUG = bug.Bug(
    name='responses_counted_once',
    title='Repeated randomised responses of a user are counted as one.',
    source='Tang et al. (2017, on macOS), '
           'https://arxiv.org/abs/1709.02753',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_REPLACE),
    true_epsilon=ANSWERS * EPSILON,
    faulty=lambda key, data: _answers(key, data, ANSWERS),
    fixed=lambda key, data: jnp.tile(_answers(key, data, 1), ANSWERS),
    space=spaces.Records(adjacency=_REPLACE, num_categories=2, sizes=(1,)),
    worst=Pair(arrays.int32([1]), arrays.int32([0]), '1 or 0'))
