"""The domain of a column ends at the largest value in the data.

A synthetic table then has no value above it. The fixed twin adds noise to the
counts of all values of a public domain: one record changes one count by 1, so
Laplace noise of scale 1 gives epsilon 1.
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

_VALUES = 5


def _noisy_counts(key: PRNGKey, records: Array) -> Array:
  """Returns the noisy counts of all values of the public domain."""
  counts = jnp.sum(records[:, None] == jnp.arange(_VALUES)[None], axis=0,
                   dtype=jnp.float32)
  return counts + jax.random.laplace(key, (_VALUES,))


def _faulty(key: PRNGKey, records: Array) -> Array:
  inside = jnp.arange(_VALUES) <= jnp.max(records, initial=0)
  # Values outside of the inferred domain are not in the table at all.
  return jnp.where(inside, _noisy_counts(key, records), 0.0)


BUG = bug.Bug(
    name='domain_of_data',
    title='The domain of a column is inferred from the largest private value.',
    source='dpmm, issue 18, https://github.com/sassoftware/dpmm/issues/18; '
    'Cebere et al. (2026), https://arxiv.org/abs/2602.17454',
    claim=training.pure_claim(1.0, training.ADD_OR_REMOVE),
    true_epsilon=math.inf, faulty=_faulty, fixed=_noisy_counts,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE,
                         num_categories=_VALUES),
    worst=Pair(np.array([_VALUES - 1, 0, 0], np.int32), np.zeros([2], np.int32),
               'with the largest value or without, beside zeros'))
