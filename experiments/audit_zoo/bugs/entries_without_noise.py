"""Selected entries that are not drawn for noise leave without noise.

The filter selects entries above a noisy threshold and publishes a random one of
them. Those selected but not drawn keep their value, only clipped.
The fixed twin sets them to zero. Its proof: a record changes the sums by 1 in
l1 norm, so the noisy magnitudes cost epsilon 1, and the noisy values cost
another 1; which of them are shown is post-processing.
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

_ENTRIES, _THRESHOLD = 3, 0.5


def _filtered(key: PRNGKey, records: Array, leaky: bool) -> Array:
  """Returns one noisy entry of the summed updates, and the others."""
  select_key, choose_key, noise_key = jax.random.split(key, 3)
  norms = jnp.abs(records).sum(axis=1, keepdims=True)
  update = jnp.sum(records / jnp.maximum(norms, 1.0), axis=0)
  noisy = jnp.abs(update) + jax.random.laplace(select_key, (_ENTRIES,))
  selected = noisy > _THRESHOLD
  # Uniform among the selected entries, if there are any.
  order = jnp.where(selected, jax.random.uniform(choose_key, (_ENTRIES,)), -1.0)
  chosen = selected & (order == order.max())
  released = update + jax.random.laplace(noise_key, (_ENTRIES,))
  rest = jnp.where(selected, update, 0.0) if leaky else 0.0
  return jnp.where(chosen, released, rest)


def _faulty(key: PRNGKey, records: Array) -> Array:
  return _filtered(key, records, leaky=True)


def _fixed(key: PRNGKey, records: Array) -> Array:
  return _filtered(key, records, leaky=False)


BUG = bug.Bug(
    name='entries_without_noise',
    title='Entries above the threshold that are not drawn for the release are '
    'published without noise.',
    source='NVIDIA FLARE, issue 343 (SVTPrivacy), '
    'https://github.com/NVIDIA/NVFlare/issues/343',
    claim=training.pure_claim(2.0, training.ADD_OR_REMOVE),
    true_epsilon=math.inf, faulty=_faulty, fixed=_fixed,
    space=spaces.Records(adjacency=training.ADD_OR_REMOVE, shape=(_ENTRIES,),
                         bounds=(-1.0, 1.0)),
    worst=Pair(np.array([[1, 0, 0], [0, 0.5, 0.5]], np.float32),
               np.array([[0, 0.5, 0.5]], np.float32),
               'with the record (1, 0, 0) or without'))
