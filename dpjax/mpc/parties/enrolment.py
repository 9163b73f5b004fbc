"""Authenticated encryption of owners' messages for one server and one study.

Many owners may send through one relay, which must be able neither to read nor
to change what it carries. At enrolment, each server gives each owner a token,
derived from a key that the server keeps. The owner's message is encrypted and
authenticated (AES-256-GCM) under a key derived from the token, the study and
the server. It cannot be opened by another server, in another study, under other
parameters or in the name of another owner.
"""

from collections.abc import Iterator
import hmac
import os
import struct
from typing import TYPE_CHECKING

from dpjax.mpc import prg

if TYPE_CHECKING:
  from cryptography.hazmat.primitives.ciphers import aead

TOKEN_BYTES = 32
KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
MARK_BYTES = 8
"""Length of the random mark in front of an owner's messages to all servers.

Equal marks show the servers that messages belong together. Shares from two
different splittings would add up to an arbitrary number.
"""
SEAL_BYTES = NONCE_BYTES + TAG_BYTES

_ENTRY = struct.Struct('>II')
ENTRY_BYTES = _ENTRY.size
AROUND_BYTES = ENTRY_BYTES + SEAL_BYTES + MARK_BYTES
"""Bytes that an owner sends in addition to its message."""


def token(enrolment_key: bytes, owner: int) -> bytes:
  """Returns the token of 32 bytes by which a server recognises an owner."""
  return hmac.digest(enrolment_key, b'owner' + owner.to_bytes(4), 'sha256')


def _cipher(owner_token: bytes, digest: bytes, server: str) -> 'aead.AESGCM':
  from cryptography.hazmat.primitives.ciphers import aead
  return aead.AESGCM(
      hmac.digest(owner_token, digest + server.encode(), 'sha256'))


def seal(owner_token: bytes, payload: bytes, *, owner: int, digest: bytes,
         server: str, source: prg.Source = os.urandom) -> bytes:
  """Encrypts a message so that only `server` in the study `digest` opens it.

  Args:
    owner_token: the owner's token from this server.
    payload: the message.
    owner: number of the owner.
    digest: digest of the study's parameters.
    server: name of the server.
    source: n -> n random bytes, for the nonce.
  """
  # A key seals few messages, so random nonces do not repeat. The tag also
  # covers the owner's number, which is sent in the clear.
  nonce = source(NONCE_BYTES)
  return nonce + _cipher(owner_token, digest, server).encrypt(
      nonce, payload, owner.to_bytes(4))


def unseal(owner_token: bytes, sealed: bytes, *, owner: int, digest: bytes,
           server: str) -> bytes:
  """Decrypts a sealed message; arguments as `seal`.

  Raises:
    ValueError: if this owner did not seal it for this server and study.
  """
  from cryptography import exceptions
  try:
    return _cipher(owner_token, digest, server).decrypt(
        sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], owner.to_bytes(4))
  except (exceptions.InvalidTag, ValueError):
    raise ValueError('its seal does not hold for this server and session'
                     ) from None


def entry(owner: int, sealed: bytes) -> bytes:
  """Returns a sealed message with the owner's number and its length in front.
  """
  return _ENTRY.pack(owner, len(sealed)) + sealed


class TornBatch(ValueError):
  """A batch ends in the middle of an entry."""


def entries(batch: bytes) -> Iterator[tuple[int, bytes]]:
  """Yields (owner, sealed message) of a batch.

  Raises:
    TornBatch: after all complete entries, if the last one is incomplete.
  """
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
