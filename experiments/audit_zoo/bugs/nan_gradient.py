"""A gradient of NaN passes the clipping and makes the released sum NaN.

Every comparison with NaN is false, so no clip factor bounds it. The fixed twin
replaces gradients that are not finite by zero: each record changes the sum by 1
at most.
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

_SIGMA = 2.0


def _faulty(key: PRNGKey, records: Array) -> Array:
  total = jnp.sum(training.clipped(records, 1.0), axis=0)
  return total + _SIGMA * jax.random.normal(key, (2,))


def _fixed(key: PRNGKey, records: Array) -> Array:
  total = jnp.sum(training.safely_clipped(records, 1.0), axis=0)
  return total + _SIGMA * jax.random.normal(key, (2,))


BUG = bug.Bug(
    name='nan_gradient',
    title='A gradient that is not a number passes the clipping, and the whole '
    'release becomes NaN.',
    source='Cebere et al. (2026), Section 4.3.9, on Opacus, dpmm, SmartNoise '
    'Synth, Synthcity and diffprivlib, https://arxiv.org/abs/2602.17454',
    claim=training.gaussian_claim(_SIGMA), true_epsilon=math.inf,
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, shape=(2,)),
    worst=Pair(np.array([[math.nan, 0], [0, 0]], np.float32),
               np.zeros([1, 2], np.float32), 'with NaN or without'))
