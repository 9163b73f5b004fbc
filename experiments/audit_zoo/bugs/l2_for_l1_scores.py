"""Scores that change by the l1 distance are accounted by the l2 distance.

The MST algorithm selects a marginal by its l1 distance from a model. A user
with k rows moves this distance by k, not by sqrt(k). The fixed twin divides by
twice k: the exponential mechanism with scores of sensitivity k.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_EPSILON, _ROWS = 1.0, 4
# The public model: half of 16 rows have a one in each of the two columns.
_MODEL = 8.0


def _log_weights(users: Array, sensitivity: float) -> Array:
  """Returns log-weights [2] of the columns, from rows [n, k] in 0..3."""
  columns = jnp.stack([users % 2, users // 2]).reshape(2, -1)
  ones = columns.sum(axis=1).astype(jnp.float32)
  zeros = columns.shape[1] - ones
  distances = jnp.abs(ones - _MODEL) + jnp.abs(zeros - _MODEL)
  return _EPSILON * distances / (2 * sensitivity)


def _faulty(key: PRNGKey, users: Array) -> Array:
  return jax.random.categorical(key, _log_weights(users, math.sqrt(_ROWS)))


def _fixed(key: PRNGKey, users: Array) -> Array:
  return jax.random.categorical(key, _log_weights(users, _ROWS))


# The first column matches the model, the second has two ones only. One user
# more with the rows (0, 1) moves both distances by 4, in opposite directions.
_BASE = np.array([[0, 1, 0, 1]] * 3 + [[2, 3, 0, 1]], np.int32)
_WITH = np.concatenate([np.array([[2, 2, 2, 2]], np.int32), _BASE])


def _true_epsilon() -> float:
  """Returns the largest log-ratio of the probabilities of a column."""
  logs = [jax.nn.log_softmax(_log_weights(jnp.asarray(users), _ROWS**0.5))
          for users in (_WITH, _BASE)]
  return float(jnp.max(jnp.abs(logs[0] - logs[1])))


BUG = bug.Bug(
    name='l2_for_l1_scores',
    title='The sensitivity of l1 scores is taken to be the l2 distance of the '
    'marginals, sqrt(k) instead of k for a user with k rows.',
    source='OpenDP, issue 2951 (MST), '
    'https://github.com/opendp/opendp/issues/2951',
    claim=training.pure_claim(_EPSILON, training.ADD_OR_REMOVE),
    true_epsilon=_true_epsilon(), faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, shape=(_ROWS,),
                         num_categories=4, sizes=(4, 8, 1, 2, 0)),
    worst=Pair(_WITH, _BASE, 'with a user of four rows or without'))
