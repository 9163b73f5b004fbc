"""The noise of measured counts is divided by the number of columns.

The MWEM algorithm measures one count in each of its rounds, with noise of scale
T / epsilon for all T rounds together. One implementation divided the scale by
the number of columns, on which the sensitivity of a count does not depend.
"""

import jax
import jax.numpy as jnp

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import arrays
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_EPSILON, _ROUNDS, _COLUMNS = 0.5, 2, 4


def _measured(key: PRNGKey, records: Array, scale: float) -> Array:
  """Returns noisy counts [T] of ones in the first column, one per round."""
  count = jnp.sum(records[:, 0]).astype(jnp.float32)
  return count + scale * jax.random.laplace(key, (_ROUNDS,))


def _faulty(key: PRNGKey, records: Array) -> Array:
  return _measured(key, records, _ROUNDS / (_EPSILON * _COLUMNS))


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _measured(key, records, _ROUNDS / _EPSILON)


BUG = bug.Bug(
    name='noise_over_dimensions',
    title='The noise of measured counts is divided by the number of columns.',
    source='smartnoise-sdk, issue 472 (MWEM), '
    'https://github.com/opendp/smartnoise-sdk/issues/472',
    claim=training.pure_claim(_EPSILON, training.ADD_OR_REMOVE),
    true_epsilon=_EPSILON * _COLUMNS, faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, shape=(_COLUMNS,),
                         num_categories=2),
    worst=Pair(arrays.int32([[1, 0, 0, 0]]),
               arrays.int32([]).reshape(0, _COLUMNS),
               'a record with a one or none'))
