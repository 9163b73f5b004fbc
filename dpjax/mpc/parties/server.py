"""A server of a study: collects messages, draws noise once, answers clients.

Collection ends when a client asks and all servers are running and agree on the
parameters. The servers then exchange lists of the owners whose messages they
hold, keep those that all hold, draw noise jointly (`noising`), write it to
disk, and only then send shares of noisy counts. All answers contain the same
noise, so further queries cost no further budget.

A restarted server continues with its accepted messages and its noise. If it has
lost noise that may be part of an answer, the study is over, because answers
with fresh noise would be a second release.
"""

import functools
import hashlib
import json
import pathlib
import threading
import time

import numpy as np

from dpjax.mpc import nodes
from dpjax.mpc import packing
from dpjax.mpc.parties import links
from dpjax.mpc.parties import listening
from dpjax.mpc.parties import noising
from dpjax.mpc.parties import storage as stored
from dpjax.mpc.parties import wire
from dpjax.mpc.parties.channel import Channel
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.channel import Kind
from dpjax.mpc.parties.inbox import Inbox
from dpjax.mpc.parties.parameters import Parameters


class Server(listening.Listener):
  """One server of a study, reached at its `address` after `start`.

  Attributes:
    name: name of the server, `server<j>`.
    parameters: parameters of the study.
    refusals: counts of refused messages and connections.
    address: host and port, once started.
  """
  parameters: Parameters

  def __init__(self, folder: pathlib.Path, addresses: pathlib.Path, index: int,
               parameters: Parameters, *, timeout: float,
               noise: noising.Draw | None = None):
    """Opens the server's folder; raises as `Storage` and `Inbox` do.

    Args:
      folder: folder of this server, with key and certificate.
      addresses: folder with the addresses of the servers.
      index: number j of the server, from 0.
      parameters: parameters of the study that this server was given.
      timeout: seconds after which a silent party is at fault.
      noise: replaces `noising.draw` in tests.
    """
    super().__init__(folder, addresses, index, parameters, timeout=timeout)
    self._scheme = parameters.build_scheme()
    self._draw = noise or noising.draw
    try:
      self._inbox = Inbox(
          self._storage, parameters, server=self.name,
          key=stored.enrolment_key(folder),
          message_bytes=packing.num_bytes(self._scheme.bits(index)),
          malformed=functools.partial(self._scheme.faults, index),
          refusals=self.refusals)
    except ValueError:
      self._storage.close()
      raise
    self._preparing = threading.Lock()
    self._noise: np.ndarray | None = None
    self._curve: np.ndarray | None = None
    self._used: np.ndarray | None = None

  def _facts(self) -> dict[str, object]:
    """Returns the content of the report, with the number of owners."""
    return super()._facts() | {
        'accepted': int(self._inbox.accepted.sum()),
        'used': None if self._used is None else int(self._used.sum())}

  def _role(self, peer: str) -> listening.Role:
    if peer.startswith('owners'):
      return self._serve_owners
    if peer.startswith('client'):
      return self._serve_client
    if peer == 'dealer' and self.parameters.noise == 'joint':
      return self._serve_dealer
    return self._role_of_server(peer)

  def _serve_owners(self, link: Channel) -> None:
    """Accepts batches of owners' messages and sends a receipt for each."""
    while (payload := link.next(Kind.OWNERS)) is not None:
      start = time.monotonic()
      count, refused, torn = self._inbox.put(payload)
      self._spent('collect', start)
      link.send(Kind.RECEIPT, json.dumps(
          {'accepted': count, 'refused': refused, 'torn': torn}).encode())
      if torn:
        raise Fault(link.peer, torn)

  def _serve_dealer(self, link: Channel) -> None:
    """Stores a dealer's keys, unless noise was drawn already."""
    size = noising.dealt_bytes(self.parameters)
    payload = links.receive_long(link, Kind.DEALT, size)
    if len(payload) != size:
      raise Fault(link.peer, f'dealt {len(payload)} bytes instead of {size}')
    if self._storage.noise() is None:
      self._storage.write_dealt(payload)
    link.send(Kind.RECEIPT, b'')

  def _serve_client(self, link: Channel) -> None:
    """Answers queries of a client with shares of noisy counts."""
    while (asked := link.next(Kind.ASK)) is not None:
      try:
        points = self._points(link, asked)
        with self._preparing:
          self._prepare()
          shares = self._shares(points)
      except Fault as fault:
        self.refusals.add(fault.party, fault.reason)
        link.send(Kind.ERROR, str(fault).encode())
        if fault.party == link.peer:
          raise
        continue
      self._report()
      assert self._used is not None  # since `_prepare`
      link.send(Kind.STATUS, json.dumps(
          int(self._used.sum()) if self.parameters.knows_total else None
      ).encode())
      links.send_long(link, Kind.SHARES, wire.pack(
          shares, self._scheme.answer_bits))

  def _points(self, link: Channel, asked: bytes) -> np.ndarray | None:
    """Receives the indices of the thresholds asked for; None for all."""
    num_thresholds = self.parameters.num_thresholds
    try:
      count = json.loads(asked)
      if count is None:
        return None
      if self.parameters.shape:
        raise ValueError('asked for thresholds; a tree answers all at once')
      if not isinstance(count, int) or not 0 < count <= num_thresholds:
        raise ValueError(f'asked for {count} of {num_thresholds} thresholds')
      return wire.unpack_points(link.expect(Kind.POINTS), count,
                                num_thresholds)
    except Fault:
      raise
    except (ValueError, RecursionError) as error:
      raise Fault(link.peer, str(error)) from None

  def _shares(self, points: np.ndarray | None) -> np.ndarray:
    """Returns this server's share of noisy ranks or, for a tree, counts."""
    start = time.monotonic()
    assert self._used is not None and self._noise is not None  # `_prepare`
    if self._curve is not None:
      exact = self._curve if points is None else self._curve[:, points]
    else:
      exact = self._scheme.aggregate(
          self._index, self._inbox.messages[self._used], points)
      if points is None:
        self._curve = exact
    if self.parameters.shape:
      exact = nodes.tree_counts(exact, self.parameters.shape, self._scheme)
    noise = self._noise if points is None else self._noise[:, points]
    self._spent('evaluate', start)
    return self._scheme.add(exact, noise)

  def _prepare(self) -> None:
    """Agrees on owners and noise, once; after a fault it can be repeated."""
    if self._noise is not None:
      return
    start = time.monotonic()
    mesh = self._connect()
    try:
      drawn = self._storage.noise()
      if not self._resume(mesh, drawn):
        drawn = self._agree(mesh)
      assert drawn is not None  # or `_resume` returns False
      identity, used, noise = drawn
      self._same(mesh, Kind.READY, identity.encode(), 'the noise')
      # By now the noise is on every server's disk, so answers may contain it.
      self._storage.mark_released(identity)
      self._used, self._noise = used, noise
    finally:
      self._traffic += mesh.close()
    self._spent('agree', start)

  def _resume(self, mesh: links.Links,
              drawn: tuple[str, np.ndarray, np.ndarray] | None) -> bool:
    """Returns whether all servers hold the same noise from an earlier run.

    Raises:
      Fault: if a server has lost noise that may have been released.
    """
    mine = json.dumps([drawn and drawn[0], self._storage.released()]).encode()
    statuses = {self.name: mine, **mesh.exchange(Kind.STATUS, mine)}
    states = {peer: _state(peer, text) for peer, text in statuses.items()}
    released = {state[1] for state in states.values() if state[1]}
    stored = {state[0] for state in states.values()}
    if len(stored) == 1 and None not in stored:
      return True
    for peer, state in states.items():
      # Fresh noise would make a second release, which the budget excludes.
      if released and state[0] not in released:
        raise Fault(peer, 'has lost noise that may have been released: this '
                    'study is over')
    return False

  def _agree(self, mesh: links.Links) -> tuple[str, np.ndarray, np.ndarray]:
    """Agrees on the owners, draws noise and writes it to disk.

    Returns:
      An identity of the noise, which owners are counted [owners], and this
      server's share of the noise.
    """
    used = self._inbox.common(
        mesh.exchange(Kind.ACCEPTED, self._inbox.close()))
    if used.sum() < self.parameters.min_owners:
      raise Fault(self.name, f'only {used.sum()} owners sent to all servers, '
                  f'fewer than min_owners = {self.parameters.min_owners}')
    coin = noising.coin(self._index, self.parameters, mesh)
    identity = hashlib.sha256(coin + used.tobytes()).hexdigest()
    noise = self._draw(self._index, self.parameters, mesh, coin,
                       self._storage.dealt())
    self._storage.write_noise(identity, used, noise)
    return identity, used, noise


def _state(peer: str, text: bytes) -> tuple[str | None, str | None]:
  """Returns the identities of the noise a server holds and has released."""
  try:
    stored, released = json.loads(text)
  except (ValueError, TypeError):
    raise Fault(peer, 'sent an invalid status') from None
  return stored, released
