"""Secret keys for releases, drawn from the system's random source.

A privacy guarantee holds against everybody who does not know the key of the
noise. A key from `jax.random.key(seed)` has at most 32 bits of entropy. Since
code, configuration and most outputs of a run are known, an attacker can test
millions of seeds per second. So noise with a real guarantee needs a key that
nobody can guess: 256 bits of the system's random source, and a generator that
uses all of them (`chacha`).

Such a key is as private as the records:

* It stays in memory. Nothing in this module writes it. A training checkpoint
  must store it, in files that only its owner can read, and is removed at the
  end of the run.
* It is never printed. `repr` of a key array shows its words, so do not print a
  key or a state that holds one, and keep both out of error messages and logs.
* It is used for one release. `jax.random.split` makes as many keys as needed.

A result computed with such a key cannot be reproduced. A seed makes research
reproducible; use it only for runs whose guarantee nobody relies on.
"""

import hashlib
import secrets

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import chacha
from dpjax.typing import PRNGKey

_KEY_BYTES = 4 * chacha.KEY_WORDS


def system_keys(num: int) -> PRNGKey:
  """Returns `num` new ChaCha20 keys [num] from the system's random source.

  Every call returns different keys, of 256 secret bits each. If several
  processes compute one release, one of them must draw `system_words` and send
  the words to the others.

  Args:
    num: number of keys, at least 1.

  Examples:
    >>> from dpjax.privacy import keys
    >>> key, = keys.system_keys(1)
    >>> noise = jax.random.normal(key, (2,))  # Known to nobody beforehand.
  """
  return from_words(system_words(num))


def system_words(num: int) -> np.ndarray:
  """Returns the words [num, 8] uint32 of new keys, to send to processes."""
  errors.check_at_least('num', num, 1)
  content = bytearray(secrets.token_bytes(_KEY_BYTES * num))
  return np.frombuffer(content, np.uint32).reshape(num, chacha.KEY_WORDS)


def from_words(words: np.ndarray) -> PRNGKey:
  """Returns the keys [num] with these words [num, 8] uint32."""
  return jax.random.wrap_key_data(jnp.asarray(words, jnp.uint32),
                                  impl=chacha.GENERATOR)


def bound_to(keys: PRNGKey, *content: bytes) -> PRNGKey:
  """Returns keys of the same shape that belong to one content only.

  The same keys give unrelated keys for any other content, as long as nobody
  finds two contents with the same SHA-256 digest. So a key that is kept, to
  resume a release after an interruption, can never serve two different
  releases: for example two configurations, or two versions of a file.

  Args:
    keys: from `system_keys`, used for nothing else.
    *content: everything that determines the release, in parts.
  """
  # Parts are hashed one by one, so that moving bytes from one part to the next
  # changes the digest.
  digest = hashlib.sha256()
  for part in content:
    digest.update(hashlib.sha256(part).digest())
  words = np.frombuffer(digest.digest(), np.uint32)
  for word in words:
    keys = jax.vmap(jax.random.fold_in, (0, None))(keys, word)
  return keys


def is_secret(keys: PRNGKey) -> bool:
  """Returns whether the generator of these keys can hold 256 secret bits.

  It cannot tell how the keys were made: it also returns True for
  `jax.random.key(7, impl=chacha.GENERATOR)`.
  """
  return str(jax.random.key_impl(keys)) == chacha.NAME
