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

from collections.abc import Callable
import contextlib
import functools
import hashlib
import json
import pathlib
import socket
import threading
import time
import traceback

import numpy as np

from dpjax import errors
from dpjax.mpc import nodes
from dpjax.mpc import packing
from dpjax.mpc.parties import certificates
from dpjax.mpc.parties import channel
from dpjax.mpc.parties import links
from dpjax.mpc.parties import noising
from dpjax.mpc.parties import storage as stored
from dpjax.mpc.parties import wire
from dpjax.mpc.parties.channel import Channel
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.channel import Kind
from dpjax.mpc.parties.inbox import Inbox
from dpjax.mpc.parties.inbox import Refusals
from dpjax.mpc.parties.parameters import Parameters
from dpjax.report import files

MAX_CONNECTIONS = 64
"""Connections that a server accepts at the same time."""


class Server:
  """One server of a study, reached at its `address` after `start`.

  Attributes:
    name: name of the server, `server<j>`.
    parameters: parameters of the study.
    refusals: counts of refused messages and connections.
    address: host and port, once started.
  """

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
    self.name, self.parameters = parameters.servers[index], parameters
    self._index, self._timeout = index, timeout
    self._addresses = addresses
    self._scheme = parameters.build_scheme()
    self._draw = noise or noising.draw
    self.refusals = Refusals()
    self._storage = stored.Storage(folder, parameters)
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
    self._tls = {server: certificates.context(folder, server=server)
                 for server in (True, False)}
    self._preparing = threading.Lock()
    self._arrived = threading.Condition()
    self._calls: dict[str, Channel] = {}
    self._traffic: list[tuple[str, channel.Traffic]] = []
    self._seconds: dict[str, float] = {}
    self._noise: np.ndarray | None = None
    self._curve: np.ndarray | None = None
    self._used: np.ndarray | None = None
    self._stopping = False
    self._live: set[Channel] = set()
    self._reporting = threading.Lock()

  def start(self, host: str = '127.0.0.1') -> None:
    """Listens at a free port and publishes the address in `addresses`."""
    self._listener = socket.create_server((host, 0), backlog=MAX_CONNECTIONS)
    self.address = self._listener.getsockname()[:2]
    self._addresses.mkdir(exist_ok=True)
    files.replace(self._addresses / self.name,
                  f'{self.address[0]}:{self.address[1]}'.encode())
    self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
    threading.Thread(target=self._listen, daemon=True).start()

  def stop(self) -> None:
    """Closes all connections and writes the report."""
    self._stopping = True
    with contextlib.suppress(OSError):
      self._listener.shutdown(socket.SHUT_RDWR)
    self._listener.close()
    for link in list(self._live):
      link.close()
    self._report()
    self._storage.close()

  def _report(self) -> None:
    with self._reporting:
      self._storage.write_report(self._facts())

  def _facts(self) -> dict[str, object]:
    """Returns the content of the report: refusals, counts, times, traffic."""
    by_peer: dict[str, list[channel.Traffic]] = {}
    for peer, traffic in list(self._traffic):
      by_peer.setdefault(peer, []).append(traffic)
    return {
        'server': self.name, 'refused': self.refusals.to_json(),
        'accepted': int(self._inbox.accepted.sum()),
        'used': None if self._used is None else int(self._used.sum()),
        'seconds': self._seconds,
        'traffic': {peer: channel.total(parts).to_json()
                    for peer, parts in by_peer.items()}}

  def _listen(self) -> None:
    """Accepts connections, each served by its own thread."""
    while not self._stopping:
      try:
        connection, address = self._listener.accept()
      except OSError:
        return
      if not self._slots.acquire(blocking=False):
        self.refusals.add(f'a stranger at {address[0]}', 'too many connections')
        connection.close()
        continue
      threading.Thread(target=self._serve, args=(connection, address),
                       daemon=True).start()

  def _serve(self, connection: socket.socket, address: tuple[str, int]
             ) -> None:
    """Serves one connection by the role of the party that called."""
    link, stays_open = None, False
    try:
      link = Channel(connection, self._tls[True], name=self.name,
                     session=self.parameters.session, timeout=self._timeout)
      self._live.add(link)
      links.welcome(link, self.parameters)
      stays_open = bool(self._role(link.peer)(link))
    except Fault as fault:
      stranger = link is None
      self.refusals.add(f'a stranger at {address[0]}' if stranger
                        else fault.party, fault.reason)
    except Exception as error:  # ends this connection, not the server
      traceback.print_exc()
      self.refusals.add(self.name, f'failed: {errors.one_line(error)}')
    finally:
      self._slots.release()
      if link is not None and not stays_open:
        link.close()
        self._traffic.append((link.peer, link.traffic))
        self._live.discard(link)

  def _role(self, peer: str) -> Callable[[Channel], bool | None]:
    """Returns the method that serves a party; raises for unknown ones."""
    if peer.startswith('owners'):
      return self._serve_owners
    if peer.startswith('client'):
      return self._serve_client
    if peer == 'dealer' and self.parameters.noise == 'joint':
      return self._serve_dealer
    if peer in self.parameters.servers[self._index + 1:]:
      return self._take_call
    raise Fault(peer, 'has no role that this server knows')

  def _take_call(self, link: Channel) -> bool:
    """Stores the connection of another server until `_connect` takes it."""
    with self._arrived:
      replaced = self._calls.get(link.peer)
      self._calls[link.peer] = link
      self._arrived.notify_all()
    if replaced is not None:
      replaced.close()
    return True

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

  def _spent(self, phase: str, start: float) -> None:
    """Adds the seconds since `start` to those of a phase."""
    self._seconds[phase] = (self._seconds.get(phase, 0.) + time.monotonic() -
                            start)

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

  def _connect(self) -> links.Links:
    """Calls servers with lower numbers and waits for those with higher ones."""
    names = self.parameters.servers
    channels = {}
    try:
      for peer in names[:self._index]:
        channels[peer] = channel.call(
            read_address(self._addresses, peer), self._tls[False], peer=peer,
            name=self.name, session=self.parameters.session,
            timeout=self._timeout)
        links.greet(channels[peer], self.parameters)
      for peer in names[self._index + 1:]:
        channels[peer] = self._wait_for(peer)
    except Fault:
      links.Links(self.name, channels).close()
      raise
    return links.Links(self.name, channels)

  def _wait_for(self, peer: str) -> Channel:
    """Waits for the call of another server and returns the connection."""
    with self._arrived:
      while True:
        if not self._arrived.wait_for(lambda: peer in self._calls,
                                      self._timeout):
          raise Fault(peer, f'did not call within {self._timeout:g} seconds')
        call = self._calls.pop(peer)
        if not call.gone:  # a server that died since may call again
          return call
        call.close()

  def _same(self, mesh: links.Links, kind: Kind, mine: bytes,
            what: str) -> None:
    """Raises a `Fault` of a server that does not hold the same value."""
    for peer, theirs in mesh.exchange(kind, mine).items():
      if theirs != mine:
        raise Fault(peer, f'does not agree on {what}')

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


def read_address(folder: pathlib.Path, name: str) -> tuple[str, int]:
  """Returns host and port that a server has published.

  Raises:
    Fault: if it has published none.
  """
  try:
    host, port = (folder / name).read_text().rsplit(':', 1)
    return host, int(port)
  except (OSError, ValueError):
    raise Fault(name, 'has not started') from None
