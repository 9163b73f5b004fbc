"""Noisy counts are released for the classes that occur in the data.

A class with a single record disappears from the release with that record. The
twin counts all public classes: a record changes one count by 1.
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

EPSILON, CLASSES = 1.0, 5
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def _counts(data: Array) -> Array:
  """Returns the exact counts [CLASSES]."""
  return jnp.zeros(CLASSES).at[data].add(1.0)


def fixed(key: PRNGKey, data: Array) -> Array:
  """Returns noisy counts of all classes."""
  return _counts(data) + jax.random.laplace(key, (CLASSES,)) / EPSILON


def faulty(key: PRNGKey, data: Array) -> Array:
  """Returns noisy counts of the classes in the data; NaN is no entry."""
  return jnp.where(_counts(data) > 0, fixed(key, data), jnp.nan)


BUG = bug.Bug(
    name='classes_from_data',
    title='The classes of a histogram are those that occur in the private '
          'data.',
    source='Cebere et al. (2026, on Diffprivlib and dpmm), '
           'https://arxiv.org/abs/2602.17454',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=math.inf, faulty=faulty, fixed=fixed,
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, num_categories=CLASSES),
    worst=Pair(arrays.int32([0, 0, 3]), arrays.int32([0, 0]),
               'the only record of a class, or none'))
