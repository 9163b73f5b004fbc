"""Scores that are differences of two errors have the sensitivity of one.

The JAM algorithm selects a marginal by the error of its model minus the error
of public data. A replaced record changes each of the two l1 errors by 2, and
where they move in opposite directions their difference by 4. The exponential
mechanism takes 2; its fixed twin takes 4.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import arrays
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_EPSILON = 1.0
_FAULTY, _CORRECT = 2.0, 4.0
# Share of ones in two columns, by the model and in the public data.
_MODEL, _PUBLIC = np.array([1, 0], np.float32), np.array([0, 1], np.float32)


def _log_weights(records: Array, sensitivity: float) -> Array:
  """Returns log-weights [2] of the columns, from records [n] in 0..3."""
  ones = jnp.stack([records % 2, records // 2]).sum(axis=1).astype(jnp.float32)
  # Zeros deviate by as much as ones, so an l1 error is twice that of the ones.
  model, public = (2 * jnp.abs(ones - len(records) * share)
                   for share in (_MODEL, _PUBLIC))
  return _EPSILON * (model - public) / (2 * sensitivity)


def _faulty(key: PRNGKey, records: Array) -> Array:
  return jax.random.categorical(key, _log_weights(records, _FAULTY))


def _fixed(key: PRNGKey, records: Array) -> Array:
  return jax.random.categorical(key, _log_weights(records, _CORRECT))


# A record 3 has a one in both columns: it moves both scores, apart.
_MORE, _LESS = (arrays.int32([3] * ones + [0] * (8 - ones)) for ones in (3, 2))


def _true_epsilon() -> float:
  """Returns the largest log-ratio of the probabilities of a column."""
  logs = [jax.nn.log_softmax(_log_weights(jnp.asarray(records), _FAULTY))
          for records in (_MORE, _LESS)]
  return float(jnp.max(jnp.abs(logs[0] - logs[1])))


BUG = bug.Bug(
    name='difference_of_errors',
    title='The sensitivity of a difference of two errors is taken to be that '
    'of one error.',
    source='mbi, issue 65 (JAM), https://github.com/ryan112358/mbi/issues/65',
    claim=training.pure_claim(_EPSILON, training.REPLACE),
    true_epsilon=_true_epsilon(), faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.REPLACE, num_categories=4),
    worst=Pair(_MORE, _LESS, 'a record 3 for a record 0'))
