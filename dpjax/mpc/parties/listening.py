"""The part of a server that all kinds of studies share.

A server listens, serves each connection on its own thread by the role of the
party that called, counts refusals and traffic, and connects to the other
servers. What a study computes is in `server` (a curve) and in `sum_server`
(sums of vectors).
"""

import abc
from collections.abc import Callable
import contextlib
import pathlib
import socket
import threading
import time
import traceback

from dpjax import errors
from dpjax.mpc.parties import certificates
from dpjax.mpc.parties import channel
from dpjax.mpc.parties import links
from dpjax.mpc.parties.agreement import Agreement
from dpjax.mpc.parties.channel import Channel
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.channel import Kind
from dpjax.mpc.parties.inbox import Refusals
from dpjax.mpc.parties.storage import Storage
from dpjax.report import files

MAX_CONNECTIONS = 64
"""Connections that a server accepts at the same time."""

Role = Callable[[Channel], bool | None]
"""Function that serves a connection; True if the connection stays open."""


class Listener(abc.ABC):
  """Base class of the servers; reached at its `address` after `start`.

  Attributes:
    name: name of the server, `server<j>`.
    parameters: public parameters of the study.
    refusals: counts of refused messages and connections.
    address: host and port, once started.
  """
  parameters: Agreement

  def __init__(self, folder: pathlib.Path, addresses: pathlib.Path, index: int,
               parameters: Agreement, *, timeout: float):
    """Opens the server's folder; raises as `Storage` does.

    Args:
      folder: folder of this server, with key and certificate.
      addresses: folder with the addresses of the servers.
      index: number j of the server, from 0.
      parameters: parameters of the study that this server was given.
      timeout: seconds after which a silent party is at fault.
    """
    self.name, self.parameters = parameters.servers[index], parameters
    self._index, self._timeout = index, timeout
    self._addresses = addresses
    self.refusals = Refusals()
    self._tls = {server: certificates.context(folder, server=server)
                 for server in (True, False)}
    self._arrived = threading.Condition()
    self._calls: dict[str, Channel] = {}
    self._traffic: list[tuple[str, channel.Traffic]] = []
    self._seconds: dict[str, float] = {}
    self._stopping = False
    self._live: set[Channel] = set()
    self._reporting = threading.Lock()
    self._storage = Storage(folder, parameters)

  @abc.abstractmethod
  def _role(self, peer: str) -> Role:
    """Returns the method that serves a party; raises for unknown ones."""

  def _role_of_server(self, peer: str) -> Role:
    """Returns how calls of other servers are served; raises for others."""
    if peer in self.parameters.servers[self._index + 1:]:
      return self._take_call
    raise Fault(peer, 'has no role that this server knows')

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
    """Returns the content of the report: refusals, times, traffic."""
    by_peer: dict[str, list[channel.Traffic]] = {}
    for peer, traffic in list(self._traffic):
      by_peer.setdefault(peer, []).append(traffic)
    return {
        'server': self.name, 'refused': self.refusals.to_json(),
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

  def _take_call(self, link: Channel) -> bool:
    """Stores the connection of another server until `_connect` takes it."""
    with self._arrived:
      replaced = self._calls.get(link.peer)
      self._calls[link.peer] = link
      self._arrived.notify_all()
    if replaced is not None:
      replaced.close()
    return True

  def _connect(self) -> links.Links:
    """Calls servers with lower numbers and waits for those with higher ones."""
    names = self.parameters.servers
    channels = {}
    try:
      for peer in names[:self._index]:
        channels[peer] = channel.call(
            links.read_address(self._addresses, peer), self._tls[False],
            peer=peer, name=self.name, session=self.parameters.session,
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

  def _spent(self, phase: str, start: float) -> None:
    """Adds the seconds since `start` to those of a phase."""
    self._seconds[phase] = (self._seconds.get(phase, 0.) + time.monotonic() -
                            start)
