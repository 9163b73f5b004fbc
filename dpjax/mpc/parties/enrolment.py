"""Messages of owners, sealed for one server and one study.

Many owners may send through one relay, which must neither read nor change what
it carries. At enrolment each server gives an owner a token, derived from a key
that the server keeps. Under a key derived from the token, the study and the
server, an owner's message is encrypted and authenticated (AES-256-GCM): sent to
another server, in another study, under other parameters or in another's name it
does not open.
"""

from collections.abc import Iterator
import hmac
import os
import struct

from dpjax.mpc import prg

TOKEN_BYTES = 32
KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
MARK_BYTES = 8
"""Random bytes in front of an owner's messages to all servers.

By them servers see which messages belong together: shares of what was split
twice would add up to any number.
"""
SEAL_BYTES = NONCE_BYTES + TAG_BYTES

_ENTRY = struct.Struct('>II')
ENTRY_BYTES = _ENTRY.size
AROUND_BYTES = ENTRY_BYTES + SEAL_BYTES + MARK_BYTES
"""That an owner sends beside its message."""


def token(enrolment_key: bytes, owner: int) -> bytes:
  """What a server, by its key, gives an owner to know it by; 32 bytes."""
  return hmac.digest(enrolment_key, b'owner' + owner.to_bytes(4), 'sha256')


def _cipher(owner_token: bytes, digest: bytes, server: str):
  from cryptography.hazmat.primitives.ciphers import aead
  return aead.AESGCM(
      hmac.digest(owner_token, digest + server.encode(), 'sha256'))


def seal(owner_token: bytes, payload: bytes, *, owner: int, digest: bytes,
         server: str, source: prg.Source = os.urandom) -> bytes:
  """What only `server` opens, in the study of `digest`.

  Args:
    owner_token: of this owner and server.
    payload: the message.
    owner: its number.
    digest: of the parameters.
    server: its name.
    source: n -> n random bytes, for the nonce.
  """
  nonce = source(NONCE_BYTES)
  return nonce + _cipher(owner_token, digest, server).encrypt(
      nonce, payload, owner.to_bytes(4))


def unseal(owner_token: bytes, sealed: bytes, *, owner: int, digest: bytes,
           server: str) -> bytes:
  """The payload of a sealed message.

  Raises:
    ValueError: if it is not what this owner sealed for this server and study.
  """
  from cryptography import exceptions
  try:
    return _cipher(owner_token, digest, server).decrypt(
        sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], owner.to_bytes(4))
  except (exceptions.InvalidTag, ValueError):
    raise ValueError('its seal does not hold for this server and session'
                     ) from None


def entry(owner: int, sealed: bytes) -> bytes:
  """A sealed message with number and length in front."""
  return _ENTRY.pack(owner, len(sealed)) + sealed


class TornBatch(ValueError):
  """A batch that ends within an entry."""


def entries(batch: bytes) -> Iterator[tuple[int, bytes]]:
  """(owner, sealed message) of a batch; a torn last one is a `TornBatch`."""
  place = 0
  while place < len(batch):
    if len(batch) - place < _ENTRY.size:
      raise TornBatch('a batch ends within an entry')
    owner, size = _ENTRY.unpack_from(batch, place)
    place += _ENTRY.size
    if len(batch) - place < size:
      raise TornBatch(f'a batch ends within the message of owner {owner}')
    yield owner, batch[place:place + size]
    place += size
