"""PrivBayes: the noise for probabilities is added to counts.

A probability changes by 2 / n in l1 norm when a record is replaced, a count by
2. The noise is too small by the factor n. The fixed twin has noise of scale 2
over epsilon on the counts.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_CELLS, _EPSILON, _NUM_RECORDS = 3, 1.0, 8


def _noisy_counts(key: PRNGKey, records: Array, scale: float) -> Array:
  """Returns counts [cells] with Laplace noise."""
  counts = jnp.sum(records[:, None] == jnp.arange(_CELLS)[None], axis=0,
                   dtype=jnp.float32)
  return counts + scale * jax.random.laplace(key, (_CELLS,))


def _faulty(key: PRNGKey, records: Array) -> Array:
  return _noisy_counts(key, records, 2 / (len(records) * _EPSILON))


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _noisy_counts(key, records, 2 / _EPSILON)


BUG = bug.Bug(
    name='counts_as_probabilities',
    title='Counts get the noise that is calibrated for probabilities, which is '
    'smaller by the number of records.',
    source='DataSynthesizer, issue 34 (PrivBayes), '
    'https://github.com/DataResponsibly/DataSynthesizer/issues/34',
    claim=training.pure_claim(_EPSILON, training.REPLACE),
    true_epsilon=_NUM_RECORDS * _EPSILON, faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.REPLACE, num_categories=_CELLS,
                         sizes=(_NUM_RECORDS, 2, 1)),
    worst=Pair(np.array([0] * _NUM_RECORDS, np.int32),
               np.array([1] + [0] * (_NUM_RECORDS - 1), np.int32), '0 or 1'))
