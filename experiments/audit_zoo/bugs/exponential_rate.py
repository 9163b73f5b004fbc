"""The exponential mechanism at twice its rate."""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug

_ADJACENCY = Adjacency.REPLACE_ONE
_EPSILON = 1.0
# A candidate that is rarely chosen: its weight hardly moves the normaliser,
# which the two others move by a factor of its own.
_SCORES = np.float32([-3.0, 1.0, 1.0])
_SHIFTED = np.float32([-2.0, 0.0, 0.0])


def _choice(key: PRNGKey, logits: Array) -> Array:
  """Draws one candidate with the probabilities softmax(logits)."""
  return jnp.argmax(logits + draws.standard_gumbel(key, logits.shape))


def faulty(key: PRNGKey, data: Array) -> Array:
  """Draws a candidate of score s with weight exp(epsilon s)."""
  # If one score rises and the others fall, the weight and the normaliser each
  # give a factor exp(epsilon).
  return _choice(key, _EPSILON * data)


def fixed(key: PRNGKey, data: Array) -> Array:
  """Draws a candidate of score s with weight exp(epsilon s / 2)."""
  return _choice(key, _EPSILON * data / 2)


def _true_epsilon() -> float:
  """Returns the largest log ratio of the probabilities of a candidate."""
  one, other = (jax.nn.log_softmax(_EPSILON * scores)
                for scores in (_SCORES, _SHIFTED))
  return float(jnp.max(jnp.abs(one - other)))


BUG = bug.Bug(
    name='exponential_rate',
    title='The exponential mechanism takes weights exp(epsilon s) instead of '
    'exp(epsilon s / 2), although its scores are not monotone.',
    source='McSherry and Talwar (2007, Theorem 6), '
    'https://doi.org/10.1109/FOCS.2007.66',
    claim=claims.Claim(epsilon=_EPSILON, delta=0.0, adjacency=_ADJACENCY),
    true_epsilon=_true_epsilon(), faulty=faulty, fixed=fixed,
    space=spaces.Scores(adjacency=_ADJACENCY, sensitivity=1.0),
    worst=Pair(_SHIFTED, _SCORES, 'the first up, the others down'))
