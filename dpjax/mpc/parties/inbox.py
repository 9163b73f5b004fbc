"""The owners' messages that a server has accepted or refused.

Refusing a message does not affect other owners' messages. An owner whose
message was refused may send another one. Of several valid messages of an owner,
the first counts.
"""

import collections
from collections.abc import Callable
import threading
from typing import Any

import numpy as np

from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties.agreement import Agreement
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.storage import Storage

LOST = 'not accepted by another server'
MIXED = 'its messages to the servers do not belong together'
REPEATED = 'repeated: the first one counts'
CLOSED = 'the collection is closed'
LENGTH = 'its message has a wrong length'
MALFORMED = 'its message does not belong to this scheme'
UNKNOWN = 'no such owner'


class Refusals:
  """Counts of refusals by party and reason; safe to use from several threads.
  """

  def __init__(self) -> None:
    """Starts with no refusals."""
    self._lock = threading.Lock()
    self._counts: collections.Counter[tuple[str, str]] = (
        collections.Counter())

  def add(self, party: str, reason: str) -> None:
    """Adds one refusal of a party."""
    with self._lock:
      self._counts[party, reason] += 1

  def to_json(self) -> list[dict[str, object]]:
    """Returns party, reason and count of all refusals, sorted by party."""
    with self._lock:
      return [{'party': party, 'reason': reason, 'times': times}
              for (party, reason), times in sorted(self._counts.items())]


class Inbox:
  """The owners' messages of one server.

  With a storage, a message is on disk before its receipt is sent.

  Attributes:
    accepted: which owners' messages were accepted, bool [owners].
    messages: their messages, uint8 [owners, bytes]; zero for other owners.
    marks: their marks, uint8 [owners, 8]; see `enrolment.MARK_BYTES`.
  """

  def __init__(self, storage: Storage | None, parameters: Agreement, *,
               server: str, key: bytes, message_bytes: int,
               malformed: Callable[[np.ndarray], np.ndarray],
               refusals: Refusals, digest: bytes | None = None):
    """Loads the messages accepted earlier.

    Args:
      storage: the server's storage; None to keep messages in memory only.
      parameters: parameters of the study.
      server: name of the server.
      key: enrolment key of the server.
      message_bytes: length of an owner's message.
      malformed: messages [n, bytes] -> which [n] no honest owner could send.
      refusals: collects refusals.
      digest: what messages must be sealed for; None for the digest of the
        parameters.

    Raises:
      ValueError: if the stored messages were changed.
    """
    self._storage, self._key, self._malformed = storage, key, malformed
    self._digest, self._server = digest or parameters.digest, server
    self._lock = threading.Lock()
    self._refusals, self._open = refusals, True
    self.accepted = np.zeros(parameters.num_owners, bool)
    self.messages = np.zeros((parameters.num_owners, message_bytes), np.uint8)
    self.marks = np.zeros((parameters.num_owners, enrolment.MARK_BYTES),
                          np.uint8)
    for owner, sealed in storage.kept() if storage else ():
      try:
        self._accept(owner, self._unseal(owner, sealed))
      except ValueError as error:
        raise ValueError(f'inbox.log of {server} was changed after it was '
                         f'written: owner {owner}, {error}') from None

  def _unseal(self, owner: int, sealed: bytes) -> np.ndarray:
    """Returns mark and message; a ValueError gives the reason of a refusal."""
    if owner >= len(self.accepted):
      raise ValueError(UNKNOWN)
    if len(sealed) + enrolment.ENTRY_BYTES != (
        self.messages.shape[1] + enrolment.AROUND_BYTES):
      raise ValueError(LENGTH)
    return np.frombuffer(enrolment.unseal(
        enrolment.token(self._key, owner), sealed, owner=owner,
        digest=self._digest, server=self._server), np.uint8)

  def _accept(self, owner: int, message: np.ndarray) -> None:
    """Stores an owner's mark and message in memory."""
    self.marks[owner], self.messages[owner] = np.split(
        message, [enrolment.MARK_BYTES])
    self.accepted[owner] = True

  def put(self, batch: bytes) -> tuple[int, list[tuple[int, str]], str | None]:
    """Accepts or refuses each message of a batch of sealed messages.

    Returns:
      The number of messages accepted; (owner, reason) of those refused; and an
      error if the batch is cut off, else None. Its complete messages count.
    """
    opened, refused, torn = [], [], None
    try:
      for owner, sealed in enrolment.entries(batch):
        try:
          opened.append((owner, sealed, self._unseal(owner, sealed)))
        except ValueError as error:
          refused.append((owner, str(error)))
    except enrolment.TornBatch as error:
      torn = str(error)
    if opened:
      bad = self._malformed(np.stack([
          message[enrolment.MARK_BYTES:] for _, _, message in opened]))
      refused += [(opened[row][0], MALFORMED) for row in np.flatnonzero(bad)]
      opened = [entry for entry, is_bad in zip(opened, bad, strict=True)
                if not is_bad]
    with self._lock:
      count = self._keep(opened, refused)
    for owner, reason in refused:
      self._refusals.add(f'owner {owner}', reason)
    return count, refused, torn

  def _keep(self, opened: list[Any], refused: list[tuple[int, str]]) -> int:
    """Stores each owner's first message on disk; returns their number.

    Args:
      opened: (owner, sealed message, mark and message) of well-formed messages.
      refused: receives (owner, reason) of all others.
    """
    entries = []
    for owner, sealed, message in opened:
      if not self._open:
        refused.append((owner, CLOSED))
      elif self.accepted[owner]:
        refused.append((owner, REPEATED))
      else:
        self._accept(owner, message)
        entries.append(enrolment.entry(owner, sealed))
    if self._storage:
      self._storage.keep(b''.join(entries))
    return len(entries)

  def close(self) -> bytes:
    """Ends the collection; returns the accepted owners, for other servers.

    One bit for each owner, then the marks of all owners.
    """
    with self._lock:
      # Under the lock, no message can be accepted after the list is made.
      self._open = False
    return np.packbits(self.accepted).tobytes() + self.marks.tobytes()

  def common(self, lists: dict[str, bytes]) -> np.ndarray:
    """Returns which owners' messages all servers hold with equal marks, [n].

    Args:
      lists: results of `close` on the other servers, by their names.

    Raises:
      Fault: if a server's list has a wrong length.
    """
    used, size = self.accepted.copy(), -(-len(self.accepted) // 8)
    for peer, received in lists.items():
      if len(received) != size + self.marks.size:
        raise Fault(peer, 'sent a list of owners of a wrong length')
      accepted = np.unpackbits(np.frombuffer(received[:size], np.uint8),
                               count=len(used)).astype(bool)
      marks = np.frombuffer(received[size:], np.uint8).reshape(self.marks.shape)
      equal = (marks == self.marks).all(1)
      for bad, reason in ((~accepted, LOST), (accepted & ~equal, MIXED)):
        for owner in np.flatnonzero(used & bad):
          self._refusals.add(f'owner {owner}', reason)
      used &= accepted & equal
    return used
