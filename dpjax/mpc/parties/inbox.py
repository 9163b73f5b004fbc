"""Messages of owners that a server has accepted, and what it has refused.

A message is refused for its owner alone: whatever else came counts. What was
refused does not keep its owner from sending a good message, and of several good
ones the first counts.
"""

import collections
from collections.abc import Callable
import threading

import numpy as np

from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.parameters import Parameters
from dpjax.mpc.parties.storage import Storage

LOST = 'not accepted by another server'
MIXED = 'its messages to the servers do not belong together'
REPEATED = 'repeated: the first one counts'
CLOSED = 'the collection is closed'
LENGTH = 'its message has a wrong length'
MALFORMED = 'its message is none of this scheme'
UNKNOWN = 'no such owner'


class Refusals:
  """Who was refused, and why; by name, with how often."""

  def __init__(self):
    """None yet."""
    self._lock = threading.Lock()
    self._counts = collections.Counter()

  def add(self, party: str, reason: str) -> None:
    """Writes down one."""
    with self._lock:
      self._counts[party, reason] += 1

  def to_json(self) -> list[dict[str, object]]:
    """All of them, in the order of their names."""
    with self._lock:
      return [{'party': party, 'reason': reason, 'times': times}
              for (party, reason), times in sorted(self._counts.items())]


class Inbox:
  """One server's messages of owners, on disk before they are acknowledged."""

  def __init__(self, storage: Storage, parameters: Parameters, *, server: str,
               key: bytes, message_bytes: int,
               malformed: Callable[[np.ndarray], np.ndarray],
               refusals: Refusals):
    """Opens what was accepted before; ValueError if it was changed.

    Args:
      storage: of the server.
      parameters: of the study.
      server: its name.
      key: its enrolment key.
      message_bytes: length of an owner's message.
      malformed: messages [n, bytes] -> which [n] no owner would have sent.
      refusals: where refusals are written down.
    """
    self._storage, self._key, self._malformed = storage, key, malformed
    self._named = {'digest': parameters.digest, 'server': server}
    self._lock = threading.Lock()
    self._refusals, self._open = refusals, True
    self.accepted = np.zeros(parameters.num_owners, bool)
    self.messages = np.zeros((parameters.num_owners, message_bytes), np.uint8)
    self.marks = np.zeros((parameters.num_owners, enrolment.MARK_BYTES),
                          np.uint8)
    for owner, sealed in storage.kept():
      try:
        self._accept(owner, self._unseal(owner, sealed))
      except ValueError as error:
        raise ValueError(f'inbox.log of {server} is not what was written: '
                         f'owner {owner}, {error}') from None

  def _unseal(self, owner: int, sealed: bytes) -> np.ndarray:
    """The message, or ValueError with the reason that it is refused."""
    if owner >= len(self.accepted):
      raise ValueError(UNKNOWN)
    if len(sealed) + enrolment.ENTRY_BYTES != (
        self.messages.shape[1] + enrolment.AROUND_BYTES):
      raise ValueError(LENGTH)
    return np.frombuffer(enrolment.unseal(
        enrolment.token(self._key, owner), sealed, owner=owner, **self._named),
                         np.uint8)

  def _accept(self, owner: int, message: np.ndarray) -> None:
    self.marks[owner], self.messages[owner] = np.split(
        message, [enrolment.MARK_BYTES])
    self.accepted[owner] = True

  def put(self, batch: bytes) -> tuple[int, list[tuple[int, str]], str | None]:
    """Takes a batch of sealed messages.

    Returns:
      How many were accepted; (owner, reason) of those refused; what is wrong
      with the batch itself, if something is: messages before that count.
    """
    found, refused, torn = [], [], None
    try:
      for owner, sealed in enrolment.entries(batch):
        try:
          found.append((owner, sealed, self._unseal(owner, sealed)))
        except ValueError as error:
          refused.append((owner, str(error)))
    except enrolment.TornBatch as error:
      torn = str(error)
    if found:
      bad = self._malformed(np.stack([
          message[enrolment.MARK_BYTES:] for _, _, message in found]))
      refused += [(found[row][0], MALFORMED) for row in np.flatnonzero(bad)]
      found = [one for one, is_bad in zip(found, bad, strict=True)
               if not is_bad]
    with self._lock:
      count = self._keep(found, refused)
    for owner, reason in refused:
      self._refusals.add(f'owner {owner}', reason)
    return count, refused, torn

  def _keep(self, found: list, refused: list[tuple[int, str]]) -> int:
    kept = []
    for owner, sealed, message in found:
      if not self._open:
        refused.append((owner, CLOSED))
      elif self.accepted[owner]:
        refused.append((owner, REPEATED))
      else:
        self._accept(owner, message)
        kept.append(enrolment.entry(owner, sealed))
    self._storage.keep(b''.join(kept))
    return len(kept)

  def close(self) -> bytes:
    """Nothing is accepted from here on; what other servers are told of it."""
    with self._lock:
      self._open = False
    return np.packbits(self.accepted).tobytes() + self.marks.tobytes()

  def common(self, said: dict[str, bytes]) -> np.ndarray:
    """Owners [n] whose messages all servers hold, and that belong together.

    Args:
      said: what `close` returned, by the name of the other server.

    Raises:
      Fault: of a server that said something else.
    """
    used, size = self.accepted.copy(), -(-len(self.accepted) // 8)
    for peer, theirs in said.items():
      if len(theirs) != size + self.marks.size:
        raise Fault(peer, 'sent a list of owners of another length')
      held = np.unpackbits(np.frombuffer(theirs[:size], np.uint8),
                           count=len(used)).astype(bool)
      marks = np.frombuffer(theirs[size:], np.uint8).reshape(self.marks.shape)
      fitting = (marks == self.marks).all(1)
      for bad, reason in ((~held, LOST), (held & ~fitting, MIXED)):
        for owner in np.flatnonzero(used & bad):
          self._refusals.add(f'owner {owner}', reason)
      used &= held & fitting
    return used
