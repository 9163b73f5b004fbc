"""PrivBayes: the noise scale is proportional to columns minus parents.

With as many parents as columns the scale is zero, and tables leave without
noise. The fixed twin counts at least one table: replacing a record changes its
counts by 2 in l1 norm, so Laplace noise of scale 2 gives epsilon 1.
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

_COLUMNS = _PARENTS = 2


def _noisy_table(key: PRNGKey, records: Array, tables: int) -> Array:
  """Returns the noisy counts of two binary columns, flattened to [4]."""
  counts = jnp.sum(records[:, None] == jnp.arange(4)[None], axis=0,
                   dtype=jnp.float32)
  return counts + 2.0 * tables * jax.random.laplace(key, (4,))


def _faulty(key: PRNGKey, records: Array) -> Array:
  return _noisy_table(key, records, _COLUMNS - _PARENTS)


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _noisy_table(key, records, max(_COLUMNS - _PARENTS, 1))


BUG = bug.Bug(
    name='noise_scale_of_zero',
    title='The noise scale of the tables is zero when the number of parents '
    'equals the number of columns.',
    source='Cebere et al. (2026), Section 4.3.3, on Synthcity (PrivBayes), '
    'https://arxiv.org/abs/2602.17454',
    claim=training.pure_claim(1.0, training.REPLACE),
    true_epsilon=math.inf, faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.REPLACE, num_categories=4),
    worst=Pair(np.array([0, 3, 3], np.int32),
               np.array([1, 3, 3], np.int32), '0 or 1'))
