"""A central limit theorem approximates the epsilon of a single sampled step.

The accountant takes the composition for Gaussian, with the limit's parameter mu
= q sqrt(T (exp(1 / sigma^2) - 1)), which says too little for few steps. The
fixed twin has the noise that an exact accountant asks for.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy import accounting
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _RATE, _DELTA = 0.7, 0.1, 1e-3
_CLAIM = claims.Claim(
    epsilon=accounting.gaussian_epsilon(
        shift=_RATE * math.sqrt(math.exp(_SIGMA**-2) - 1), delta=_DELTA),
    delta=_DELTA, adjacency=training.ADD_OR_REMOVE)
_EVENT = accounting.poisson_gaussian_event(
    sampling_prob=_RATE, noise_multiplier=_SIGMA, num_steps=1)
# The least noise that an exact accountant accepts.
_ENOUGH = accounting.calibrate_noise_multiplier(
    target_epsilon=_CLAIM.epsilon, target_delta=_DELTA, sampling_prob=_RATE,
    num_steps=1, adjacency=training.ADD_OR_REMOVE)


def _step(key: PRNGKey, records: Array, sigma: float) -> Array:
  """Returns the noisy sum [1] of a Poisson batch's clipped gradients."""
  batch_key, noise_key = jax.random.split(key)
  gradients = training.clipped(records[:, None], 1.0)
  batch = training.in_batch(batch_key, gradients, _RATE)
  return jnp.sum(batch * gradients, axis=0) + (
      sigma * jax.random.normal(noise_key, (1,)))


def _faulty(key: PRNGKey, records: Array) -> Array:
  return _step(key, records, _SIGMA)


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _step(key, records, _ENOUGH)


BUG = bug.Bug(
    name='central_limit_accountant',
    title='The accountant approximates the privacy of one sampled step by a '
    'central limit theorem for many steps.',
    source='Opacus, issue 715 (its Gaussian accountant), '
    'https://github.com/meta-pytorch/opacus/issues/715; Gopi, Lee and '
    'Wutschitz (2021), Numerical composition of differential privacy, Section '
    '1',
    claim=_CLAIM, true_epsilon=accounting.epsilon(
        _EVENT, delta=_DELTA, adjacency=training.ADD_OR_REMOVE),
    faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, bounds=(-1.0, 1.0)),
    worst=Pair(np.array([1], np.float32), np.zeros([0], np.float32),
               'the record 1 or none'))
