"""Noisy counts of classes are moved until they sum to the exact total.

The exact number of records is then public, although it is private under
addition and removal. The twin leaves the noisy counts alone: a record changes
one of them by 1.
"""

import math

import jax.numpy as jnp

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import arrays
from experiments.audit_zoo import bug

EPSILON, CLASSES = 1.0, 3
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def fixed(key: PRNGKey, data: Array) -> Array:
  """Returns noisy counts [CLASSES]."""
  counts = jnp.zeros(CLASSES).at[data].add(1.0)
  return counts + draws.discrete_laplace(key, (CLASSES,), 1 / EPSILON)


def faulty(key: PRNGKey, data: Array) -> Array:
  """Returns noisy counts whose largest takes up the error of the total."""
  noisy = fixed(key, data)
  error = data.shape[0] - jnp.sum(noisy)
  return noisy.at[jnp.argmax(noisy)].add(error)


BUG = bug.Bug(
    name='class_counts_exact_total',
    title='Noisy counts of classes are adjusted to the exact number of '
          'records.',
    source='diffprivlib, GaussianNB, whose test_noisy_count demands the exact '
           'total, https://github.com/IBM/differential-privacy-library/blob/'
           'main/tests/models/test_GaussianNB.py',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=math.inf, faulty=faulty, fixed=fixed,
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, num_categories=CLASSES),
    worst=Pair(arrays.int32([0, 1, 2]), arrays.int32([0, 1]),
               'three records or two'))
