"""Secret keys that this process has used: each is for one fit.

Two fits with one key draw the same batches and the same noise. If anything else
differs, a learning rate say, the difference of what they release has no noise
on it. Keys of `keys.system_keys` are new at each call, so that a second fit
with one of them is a mistake, and is refused. Seen is what happens in one
process, and nothing of a key is kept but its SHA-256 digest. Not seen are: keys
that another process has used, keys of seeds, which research uses again and
again, and fits with checkpoints, which have the same key when they are resumed.
"""

import hashlib

import jax
import numpy as np

from dpjax.privacy import keys as key_lib
from dpjax.train import state as states
from dpjax.typing import PRNGKey

_USED: set[bytes] = set()


def check(keys: PRNGKey) -> None:
  """Refuses secret keys of which one, or a stream of one, was used before.

  Args:
    keys: [L] typed keys of a fit; of seeds, they pass.

  Raises:
    ValueError: if a fit of this process was given one of them.
  """
  if not _USED.isdisjoint(_digests(keys)):
    raise ValueError(
        'keys were used by another fit of this process: both would have the '
        'same batches and noise, and the difference of their results no noise '
        'at all; take new keys of keys.system_keys for each fit')


def add(keys: PRNGKey) -> None:
  """Remembers the keys of a fit that has a result.

  Args:
    keys: [L] typed keys; those of seeds are not remembered.
  """
  _USED.update(_digests(keys))


def _digests(keys: PRNGKey) -> set[bytes]:
  """Returns the SHA-256 of each secret key and of the streams of each."""
  if not key_lib.is_secret(keys):
    return set()
  return {hashlib.sha256(row.tobytes()).digest()
          for part in (keys, *jax.vmap(states.streams)(keys))
          for row in np.asarray(jax.random.key_data(part))}
