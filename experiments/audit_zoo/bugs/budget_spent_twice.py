"""A sum and a count each spend the whole budget.

Both change by 1 with one record, so that together they cost epsilon 2. The
fixed twin gives half of the budget to each of them.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training


def _answers(key: PRNGKey, records: Array, epsilon: float) -> Array:
  """Returns a noisy sum and a noisy count, each for `epsilon`."""
  exact = jnp.stack([jnp.sum(records), jnp.float32(len(records))])
  return exact + jax.random.laplace(key, (2,)) / epsilon


def _faulty(key: PRNGKey, records: Array) -> Array:
  return _answers(key, records, 1.0)


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _answers(key, records, 0.5)


BUG = bug.Bug(
    name='budget_spent_twice',
    title='Two queries each spend the epsilon that is meant for both.',
    source='Cebere et al. (2026), artifact, the accounting fault of MOSTLY AI, '
    'https://github.com/ObliviousAI/dp-recorder',
    claim=training.pure_claim(1.0, training.ADD_OR_REMOVE), true_epsilon=2.0,
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, bounds=(0.0, 1.0)),
    worst=Pair(np.array([1], np.float32), np.zeros([0], np.float32),
               'the record 1 or none'))
