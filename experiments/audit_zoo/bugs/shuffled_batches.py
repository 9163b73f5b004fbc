"""One epoch of shuffled batches is accounted as Poisson samples.

A shuffled record is in exactly one of the batches, a Poisson sampled one may be
in none, which happens with probability 1/4 here. With little noise a shuffled
record is therefore recognised almost surely. The claim's event covers all
deltas; its epsilon is stated at delta = 1/2, because shuffling costs more at
large deltas only. The fixed twin draws each batch by Poisson sampling, which is
the event of the claim.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug
from experiments.audit_zoo import training

_SIGMA, _STEPS, _DELTA = 0.3, 2, 0.5


def _noisy(key: PRNGKey, batches: Array, records: Array) -> Array:
  """Returns noisy sums [steps] of the batches, given as masks [steps, n]."""
  gradients = training.clipped(records[:, None], 1.0)[:, 0]
  return batches @ gradients + _SIGMA * jax.random.normal(key, (_STEPS,))


def _faulty(key: PRNGKey, records: Array) -> Array:
  order_key, noise_key = jax.random.split(key)
  # Ranks of random numbers are a random order; few are counted fast.
  draws = jax.random.uniform(order_key, (len(records),))
  place = jnp.sum(draws[None] < draws[:, None], axis=1)
  batches = place[None] % _STEPS == jnp.arange(_STEPS)[:, None]
  return _noisy(noise_key, batches.astype(jnp.float32), records)


def _fixed(key: PRNGKey, records: Array) -> Array:
  batch_key, noise_key = jax.random.split(key)
  batches = jax.random.bernoulli(batch_key, 1 / _STEPS,
                                 (_STEPS, len(records)))
  return _noisy(noise_key, batches.astype(jnp.float32), records)


def _true_epsilon() -> float:
  """Returns epsilon of a record 1 among zeros: it moves one of two sums."""
  step = 0.02
  points = np.arange(-3.0, 4.0, step)
  absent = np.exp(-np.square(points / _SIGMA) / 2)
  present = np.exp(-np.square((points - 1) / _SIGMA) / 2)
  scale = 2 * np.pi * _SIGMA**2
  inside = (np.outer(present, absent) + np.outer(absent, present)) / 2 / scale
  return training.densities_epsilon(
      inside, np.outer(absent, absent) / scale, step**2, _DELTA)


BUG = bug.Bug(
    name='shuffled_batches',
    title='The epsilon of Poisson sampling is reported for shuffled batches.',
    source='Opacus, issue 80, '
    'https://github.com/meta-pytorch/opacus/issues/80; private-transformers, '
    'issue 7, https://github.com/lxuechen/private-transformers/issues/7; '
    'Chua et al. (2024), How private are DP-SGD implementations?',
    claim=training.gaussian_claim(_SIGMA, sampling_prob=1 / _STEPS,
                                  num_steps=_STEPS, delta=_DELTA),
    true_epsilon=_true_epsilon(), faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, bounds=(-1.0, 1.0)),
    worst=Pair(np.eye(8, dtype=np.float32)[0], np.zeros([7], np.float32),
               'a record 1 among seven zeros, or only these'))
