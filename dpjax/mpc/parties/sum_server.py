"""A server of a study of sums: collects a round, adds noise, opens its share.

A client opens a round with a public message, such as the parameters of a model.
Owners fetch it and send their messages. When the client asks for the sum, the
servers wait until all owners have sent or the client's patience ends. They
exchange lists of the owners whose messages they hold and keep those that all
hold; each adds its own noise, once, and sends its share of the noisy sum to the
client. Owners who have dropped out are left out.

Each round has one answer: a server that was asked for it refuses a second
question, and numbers of rounds only grow. A round that failed, such as one with
too few owners, is lost, and the next one can be opened. Nothing of a round is
stored, so a server that has ended is not restarted: the study is over, and the
rounds until then keep their guarantee.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
import threading
import time

import numpy as np

from dpjax.mpc.parties import links
from dpjax.mpc.parties import listening
from dpjax.mpc.parties import storage as stored
from dpjax.mpc.parties import wire
from dpjax.mpc.parties.channel import Channel
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.channel import Kind
from dpjax.mpc.parties.inbox import Inbox
from dpjax.mpc.parties.sum_parameters import SumParameters

NUMBER_BYTES = 8
"""Length of the number of a round in front of its message."""


@dataclasses.dataclass
class _Round:
  """The state of one round.

  Attributes:
    number: number of the round, from 0.
    message: its public message.
    digest: what owners' messages must be sealed for.
    inbox: the owners' messages.
    asked: whether the client has asked for the sum.
  """
  number: int
  message: bytes
  digest: bytes
  inbox: Inbox
  asked: bool = False


class SumServer(listening.Listener):
  """One server of a study of sums, reached at its `address` after `start`.

  Attributes:
    name: name of the server, `server<j>`.
    parameters: parameters of the study.
    refusals: counts of refused messages and connections.
    address: host and port, once started.
  """
  parameters: SumParameters

  def __init__(self, folder: pathlib.Path, addresses: pathlib.Path, index: int,
               parameters: SumParameters, *, timeout: float):
    """Opens the server's folder; Args as for `Listener`.

    Raises:
      ValueError: if a server has run in this folder before.
    """
    super().__init__(folder, addresses, index, parameters, timeout=timeout)
    self._sum = parameters.vector_sum
    self._key = stored.enrolment_key(folder)
    self._round: _Round | None = None
    self._changed = threading.Condition()
    self._answering = threading.Lock()
    self._rounds: list[dict[str, object]] = []
    try:
      self._storage.mark_started()
    except ValueError:
      self._storage.close()
      raise

  def _facts(self) -> dict[str, object]:
    """Returns the content of the report, with the owners of each round."""
    return super()._facts() | {'rounds': self._rounds}

  def _role(self, peer: str) -> listening.Role:
    if peer.startswith('owners'):
      return self._serve_owners
    if peer.startswith('client'):
      return self._serve_client
    return self._role_of_server(peer)

  def _serve_owners(self, link: Channel) -> None:
    """Sends rounds to a relay, and receipts for its owners' messages."""
    while (frame := link.next_one(Kind.ROUND, Kind.OWNERS)) is not None:
      kind, payload = frame
      if kind is Kind.ROUND:
        links.send_long(link, Kind.ROUND, self._await_round(
            _number(link, payload)))
        continue
      current = self._round
      if current is None:
        raise Fault(link.peer, 'sent messages before the first round')
      start = time.monotonic()
      count, refused, torn = current.inbox.put(payload)
      with self._changed:
        self._changed.notify_all()
      self._spent('collect', start)
      link.send(Kind.RECEIPT, json.dumps(
          {'accepted': count, 'refused': refused, 'torn': torn}).encode())
      if torn:
        raise Fault(link.peer, torn)

  def _await_round(self, number: int) -> bytes:
    """Returns number and message of the newest round, once it is `number`.

    Empty if it does not come in half of the timeout: the relay asks again.
    """
    ready = lambda: self._stopping or (
        self._round is not None and self._round.number >= number)
    with self._changed:
      self._changed.wait_for(ready, self._timeout / 2)
      current = self._round
    if current is None or current.number < number:
      return b''
    return current.number.to_bytes(NUMBER_BYTES) + current.message

  def _serve_client(self, link: Channel) -> None:
    """Opens rounds and answers them with this server's share of the sum."""
    while (frame := link.next_one(Kind.OPEN, Kind.ASK)) is not None:
      kind, payload = frame
      number = _number(link, payload) if kind is Kind.OPEN else 0
      try:
        if kind is Kind.OPEN:
          self._open(link, number)
          link.send(Kind.RECEIPT, b'')
          continue
        with self._answering:
          used, share = self._answer(link, payload)
      except Fault as fault:
        self.refusals.add(fault.party, fault.reason)
        link.send(Kind.ERROR, str(fault).encode())
        continue
      link.send(Kind.STATUS, np.packbits(used).tobytes())
      links.send_long(link, Kind.SHARES, wire.pack(
          share, self.parameters.value_bits))

  def _open(self, link: Channel, number: int) -> None:
    """Receives the message of a round and opens it.

    The round after the last one has no owners: it tells them to leave.

    Raises:
      Fault: if the number is not above that of all earlier rounds, or if it is
        above `num_rounds`.
    """
    message = links.receive_long(link, Kind.OPEN)
    digest = self.parameters.round_digest(number, message)
    inbox = Inbox(
        None, self.parameters, server=self.name, key=self._key, digest=digest,
        message_bytes=self._sum.message_bytes(self._index),
        malformed=functools.partial(self._sum.faults, self._index),
        refusals=self.refusals)
    with self._changed:
      if self._round is not None and number <= self._round.number:
        raise Fault(link.peer, f'opened round {number} after round '
                    f'{self._round.number}')
      if number > self.parameters.num_rounds:
        raise Fault(link.peer, f'opened round {number} of '
                    f'{self.parameters.num_rounds}')
      if self._round is not None:
        self._round.inbox.close()
      self._round = _Round(number, message, digest, inbox)
      if number == self.parameters.num_rounds:
        self._round.asked = True
        inbox.close()
      self._changed.notify_all()

  def _answer(self, link: Channel, payload: bytes
              ) -> tuple[np.ndarray, np.ndarray]:
    """Returns which owners took part [n] and a share [d] of their noisy sum.

    Raises:
      Fault: if the question is not allowed, a server fails, or too few owners
        have sent. The round is lost unless the question was refused.
    """
    current, patience = self._asked(link, payload)
    inbox, start = current.inbox, time.monotonic()
    with self._changed:
      self._changed.wait_for(lambda: self._stopping or inbox.accepted.all(),
                             patience)
    self._spent('wait', start)
    start = time.monotonic()
    mesh = self._connect()
    try:
      self._same(mesh, Kind.COMMIT, current.digest, 'the round')
      used = inbox.common(mesh.exchange(Kind.ACCEPTED, inbox.close()))
      self._same(mesh, Kind.READY, hashlib.sha256(used.tobytes()).digest(),
                 'the owners')
    finally:
      self._traffic += mesh.close()
    self._spent('agree', start)
    if used.sum() < self.parameters.min_owners:
      raise Fault(self.name, f'only {used.sum()} owners sent to all servers, '
                  f'fewer than min_owners = {self.parameters.min_owners}')
    start = time.monotonic()
    # Drawn once, since `_asked` lets one question per round pass.
    noise = self._sum.draw_noise()
    self._spent('noise', start)
    start = time.monotonic()
    share = self._sum.add_noise(
        self._sum.aggregate(self._index, inbox.messages[used]), noise)
    self._spent('add', start)
    self._rounds.append({'round': current.number, 'used': int(used.sum())})
    return used, share

  def _asked(self, link: Channel, payload: bytes) -> tuple[_Round, float]:
    """Returns the round that a client asks for, and its patience in seconds."""
    try:
      number, patience = json.loads(payload)
      if not 0 <= patience < self._timeout:
        # Other servers would take the silence for a fault.
        raise ValueError(f'asked for a patience of {patience} seconds, not '
                         f'below the timeout of {self._timeout:g}')
    except (ValueError, TypeError, RecursionError) as error:
      raise Fault(link.peer, str(error)) from None
    with self._changed:
      current = self._round
      if current is None or current.number != number:
        raise Fault(link.peer, f'asked for round {number}, which is not open')
      if current.asked:
        raise Fault(link.peer, f'asked again for round {number}: a round has '
                    'one answer')
      current.asked = True
    return current, patience


def _number(link: Channel, payload: bytes) -> int:
  """Returns the number of a round that a party has sent."""
  if len(payload) != NUMBER_BYTES:
    raise Fault(link.peer, f'sent {len(payload)} bytes where the number of a '
                'round was due')
  return int.from_bytes(payload)
