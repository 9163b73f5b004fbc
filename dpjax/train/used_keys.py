"""Rejects secret keys that this process has already used for a fit.

Two fits with one key draw the same batches and the same noise. If anything else
differs, such as the learning rate, the difference of their releases carries no
noise. Keys of `keys.system_keys` are fresh at each call, so using one twice is
a mistake, and the second fit is rejected.

Only the SHA-256 digest of a key is kept. The check does not see:
- keys that another process used;
- keys made from seeds, which research uses again on purpose;
- fits with checkpoints, which have the same key when they are resumed.
"""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy import keys as key_lib
from dpjax.train import processes
from dpjax.train import state as states
from dpjax.typing import PRNGKey

_USED: set[bytes] = set()  # Digests of keys, which do not reveal them.


def check(keys: PRNGKey) -> None:
  """Checks that no secret key was used before, and raises if one was.

  Args:
    keys: [L] typed keys of a fit; keys made from seeds always pass.

  Raises:
    ValueError: if an earlier fit of this process used one of the keys, or of
      the keys derived from them (`state.streams`).
  """
  if not _USED.isdisjoint(_digests(keys)):
    raise ValueError(
        'keys were used by another fit of this process: both fits would draw '
        'the same batches and noise, so the difference of their results would '
        'carry no noise; take new keys from keys.system_keys for each fit')


def add(keys: PRNGKey) -> None:
  """Records the keys of a fit that has finished.

  A fit that failed has no result, so it may use its keys again.

  Args:
    keys: [L] typed keys; keys made from seeds are not recorded.
  """
  _USED.update(_digests(keys))


def fresh(key: PRNGKey | None, mesh: jax.sharding.Mesh | None) -> PRNGKey:
  """Returns a key that this process has not used, and marks it as used.

  Args:
    key: one typed key; None for a new one from the system's random source.
    mesh: if it has devices of several processes, all get the same new key.

  Raises:
    ValueError: if `key` is no typed key, or a secret one that was used before.
  """
  if key is None and mesh is not None and mesh.is_multi_process:
    # The first process draws it for all that share the mesh.
    key, = key_lib.from_words(processes.from_first(
        lambda: key_lib.system_words(1)))
  elif key is None:
    key, = key_lib.system_keys(1)
  if not (isinstance(key, jax.Array) and key.shape == () and jnp.issubdtype(
      key.dtype, jax.dtypes.prng_key)):
    raise ValueError('key must be one typed key, such as jax.random.key(0), or '
                     f'None; got a {type(key).__name__}')
  check(key[None])
  add(key[None])
  return key


def _digests(keys: PRNGKey) -> set[bytes]:
  """Returns SHA-256 digests of the secret keys and of their derived keys."""
  if not key_lib.is_secret(keys):
    return set()
  return {hashlib.sha256(row.tobytes()).digest()
          for part in (keys, *states.streams_of_each(keys))
          for row in np.asarray(jax.random.key_data(part))}
