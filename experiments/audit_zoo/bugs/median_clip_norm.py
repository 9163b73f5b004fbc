"""The clip norm is the median of the batch's gradient norms, without noise.

The noise is scaled to this norm, so that its width reveals the median; where
the median is zero, there is no noise at all. The fixed twin has a public clip
norm.
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


def _step(key: PRNGKey, records: Array, norm: Array | float) -> Array:
  """Returns the noisy sum [1] of gradients that are clipped to `norm`."""
  total = jnp.sum(training.clipped(records[:, None], norm), axis=0)
  return total + _SIGMA * norm * jax.random.normal(key, (1,))


def _faulty(key: PRNGKey, records: Array) -> Array:
  norm = jnp.median(jnp.abs(records)) if len(records) else jnp.zeros(())
  return _step(key, records, norm)


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _step(key, records, 1.0)


BUG = bug.Bug(
    name='median_clip_norm',
    title='The clip norm is the median of the gradient norms, which scales the '
    'noise and is used without noise.',
    source='advised in Abadi et al. (2016), Deep learning with differential '
    'privacy, Section 5, https://arxiv.org/abs/1607.00133',
    claim=training.gaussian_claim(_SIGMA), true_epsilon=math.inf,
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, bounds=(-1.0, 1.0)),
    worst=Pair(np.array([1, 0], np.float32), np.array([0], np.float32),
               'with 1 or without, beside 0'))
