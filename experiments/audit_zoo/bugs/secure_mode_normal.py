"""Secure mode averages four floating-point normals, which is no defence.

The sum of a record and of the noise is rounded to the precision of its larger
term. With a record 1, every released number below 1/2 is a multiple of 2^-24;
without it, most are not. The fixed twin rounds to a public grid, on which the
low-order bits carry no information.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy import additive
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA = 1.3


def _total(records: Array) -> Array:
  """Returns the sum [1] of clipped gradients."""
  return jnp.sum(training.clipped(records[:, None], 1.0), axis=0)


def _faulty(key: PRNGKey, records: Array) -> Array:
  # Half the sum of four normals is standard normal.
  normal = jax.random.normal(key, (4, 1)).sum(axis=0) / 2
  return _total(records) + _SIGMA * normal


def _fixed(key: PRNGKey, records: Array) -> Array:
  return additive.add_gaussian_noise(key, _total(records), _SIGMA)


BUG = bug.Bug(
    name='secure_mode_normal',
    title='Noise made of four floating-point normals is added without '
    'rounding, and the low-order bits of the release reveal the sum.',
    source='Opacus, issue 616, '
    'https://github.com/meta-pytorch/opacus/issues/616',
    claim=training.gaussian_claim(_SIGMA), true_epsilon=math.inf,
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, bounds=(-1.0, 1.0)),
    worst=Pair(np.array([1], np.float32), np.zeros([0], np.float32),
               'the record 1 or none'), floating_point=True)
