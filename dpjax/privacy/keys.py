"""Keys for releases: drawn from the random source of the system, kept secret.

The guarantee of a mechanism is about whoever does not know the key of its
noise. A key from `jax.random.key(seed)` has at most 32 bits in it, and code,
configuration and most of what a run publishes let an attacker score millions of
seeds a second. So noise that anybody is to rely on needs a key that nobody can
guess: 256 bits of the system's source, in a generator that uses all of them
(`chacha`).

Such a key is as private as the records:

* It is in memory only. Nothing here writes it; a training checkpoint has to,
  in files that only its owner may read, and is removed at the end of the run.
* It is never printed. `repr` of a key array shows its words, so neither print
  one, nor a state that holds one, nor put one into an error message or a log.
* It is used for one release. `jax.random.split` makes as many keys as needed.

What is made from such a key cannot be made again. A seed, which makes research
reproducible, is for runs whose guarantee nobody relies on.
"""

import hashlib
import secrets

import jax
import numpy as np

from dpjax import errors
from dpjax.privacy import chacha
from dpjax.typing import PRNGKey

_KEY_BYTES = 4 * chacha.KEY_WORDS


def system_keys(num: int) -> PRNGKey:
  """Returns `num` new ChaCha20 keys [num] from the system's random source.

  Every call gives other keys, of 256 secret bits each. Of several processes
  that compute one release, one has to draw `system_words` for all of them.

  Args:
    num: how many, at least 1.

  Examples:
    >>> from dpjax.privacy import keys
    >>> key, = keys.system_keys(1)
    >>> noise = jax.random.normal(key, (2,))  # Known to nobody beforehand.
  """
  return from_words(system_words(num))


def system_words(num: int) -> np.ndarray:
  """Returns the words [num, 8] uint32 of `system_keys`, to be handed on."""
  errors.check_at_least('num', num, 1)
  content = bytearray(secrets.token_bytes(_KEY_BYTES * num))
  return np.frombuffer(content, np.uint32).reshape(num, chacha.KEY_WORDS)


def from_words(words: np.ndarray) -> PRNGKey:
  """Returns the keys [num] of words [num, 8] uint32."""
  return jax.random.wrap_key_data(np.asarray(words, np.uint32),
                                  impl=chacha.GENERATOR)


def bound_to(keys: PRNGKey, *content: bytes) -> PRNGKey:
  """Returns keys of this shape that belong to one content alone.

  The same keys give unrelated ones for any other content, as long as nobody
  finds two contents of one SHA-256 digest. So a key that has to be kept, to go
  on with a release after an interruption, can never serve two of them: say,
  two configurations, or two versions of a file.

  Args:
    keys: from `system_keys`, used for nothing else.
    *content: what the release is made of, in parts.
  """
  digest = hashlib.sha256()
  for part in content:
    digest.update(hashlib.sha256(part).digest())
  words = np.frombuffer(digest.digest(), np.uint32)
  for word in words:
    keys = jax.vmap(jax.random.fold_in, (0, None))(keys, word)
  return keys


def is_secret(keys: PRNGKey) -> bool:
  """Whether these are keys of a generator that can hold 256 secret bits.

  Of what they were made it does not tell: `jax.random.key(7,
  impl=chacha.GENERATOR)` is of this kind, too.
  """
  return str(jax.random.key_impl(keys)) == chacha.NAME
