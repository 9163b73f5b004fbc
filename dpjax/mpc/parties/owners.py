"""Owners and dealer: simulates many owners in one process, with a relay.

Each owner shares its bin and seals one message for each server. The rest of the
process is a relay, which need not be trusted. An owner is done once all servers
have acknowledged its message. If a server crashes and restarts in time, it gets
the same bytes again: new shares would not match those of the other servers.
"""

from collections.abc import Callable, Sequence
import json
import pathlib
import time

import numpy as np

from dpjax.mpc import prg
from dpjax.mpc.parties import certificates
from dpjax.mpc.parties import channel
from dpjax.mpc.parties import enrolment
from dpjax.mpc.parties import inbox
from dpjax.mpc.parties import links
from dpjax.mpc.parties import noising
from dpjax.mpc.parties.channel import Channel
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.channel import Kind
from dpjax.mpc.parties.parameters import Parameters

BATCH = 1024
"""Owners whose messages are sent together."""

Change = Callable[[int, bytes], bytes]
"""Function (owner, entry) -> bytes sent instead, to demonstrate faults."""


class Courier:
  """Delivers batches to one server, and reconnects if it restarts.

  Attributes:
    peer: name of the server.
  """

  def __init__(self, parameters: Parameters, peer: str, *, name: str,
               folder: pathlib.Path, addresses: pathlib.Path, timeout: float):
    """Prepares the connection; the first batch opens it. Args as for `send`."""
    self.peer, self._parameters, self._timeout = peer, parameters, timeout
    self._name, self._addresses = name, addresses
    self._tls = certificates.context(folder, server=False)
    self._link: Channel | None = None
    self._traffic: list[channel.Traffic] = []

  def _call(self) -> Channel:
    """Returns the connection; retries until the timeout if there is none."""
    deadline = time.monotonic() + self._timeout
    while self._link is None:
      try:
        link = channel.call(
            links.read_address(self._addresses, self.peer), self._tls,
            peer=self.peer, name=self._name, timeout=self._timeout,
            session=self._parameters.session)
        self._traffic.append(link.traffic)
        links.greet(link, self._parameters)
        self._link = link
      except channel.Disagreement:
        raise
      except Fault:
        if time.monotonic() > deadline:
          raise
        time.sleep(.1)
    return self._link

  def post(self, batch: bytes) -> None:
    """Sends a batch; if sending fails, `receipt` sends it again."""
    try:
      self._call().send(Kind.OWNERS, batch)
    except channel.Disagreement:
      raise
    except Fault:
      self._drop()

  def receipt(self, batch: bytes) -> list[tuple[int, str]]:
    """Waits for the receipt; returns (owner, reason) of refused messages."""
    resent, deadline = False, time.monotonic() + self._timeout
    while True:
      try:
        link = self._link
        if link is None:
          resent = True
          link = self._call()
          link.send(Kind.OWNERS, batch)
        answer = json.loads(link.expect(Kind.RECEIPT))
        # After a restart, a message counted as repeated is one that arrived
        # before the server died: it is accepted.
        return [(owner, reason) for owner, reason in answer['refused']
                if not (resent and reason == inbox.REPEATED)]
      except Fault:
        self._drop()
        if time.monotonic() > deadline:
          raise

  def _drop(self) -> None:
    """Closes the connection, if there is one."""
    if self._link is not None:
      self._link.close()
      self._link = None

  def close(self) -> channel.Traffic:
    """Closes the connection; returns the traffic of all its connections."""
    self._drop()
    return channel.total(self._traffic)


def send(bins: np.ndarray, tokens: list[np.ndarray], *, first_owner: int,
         parameters: Parameters, name: str, folder: pathlib.Path,
         addresses: pathlib.Path, timeout: float,
         labels: np.ndarray | None = None, source: prg.Source = prg.system,
         change: Change | None = None) -> dict[str, object]:
  """Shares and sends the bins of owners `first_owner`, `first_owner` + 1, ...

  Args:
    bins: secret bins of these owners [n], 0 to N - 1.
    tokens: for each server the owners' tokens, uint8 [n, 32].
    first_owner: number of the first owner.
    parameters: parameters of the study that the owners were given.
    name: name of this relay in its certificate.
    folder: folder of this relay, with key and certificate.
    addresses: folder with the addresses of the servers.
    timeout: seconds to wait for a server that does not answer.
    labels: secret labels of these owners [n], 0 or 1, if there are two classes.
    source: randomness of shares and nonces.
    change: changes entries like a faulty relay; None for an honest one.

  Returns:
    The number of owners; refused messages by server; seconds of sharing and in
    all; traffic by server.

  Raises:
    Fault: if a server does not come back. The batches before are accepted.
  """
  start, sharing = time.monotonic(), 0.
  scheme = parameters.build_scheme()
  couriers = [Courier(parameters, peer, name=name, folder=folder,
                      addresses=addresses, timeout=timeout)
              for peer in parameters.servers]
  refused: dict[str, list[tuple[int, str]]] = {
      courier.peer: [] for courier in couriers}
  try:
    for low in range(0, len(bins), BATCH):
      part = slice(low, low + BATCH)
      sharing_start = time.monotonic()
      shares = scheme.shares(
          bins[part], source=source,
          labels=None if labels is None else labels[part])
      batches = sealed_batches(
          shares, [rows[part] for rows in tokens], first_owner + low,
          servers=parameters.servers, digest=parameters.digest, source=source,
          change=change)
      sharing += time.monotonic() - sharing_start
      for courier, batch in zip(couriers, batches, strict=True):
        courier.post(batch)
      for courier, batch in zip(couriers, batches, strict=True):
        refused[courier.peer] += courier.receipt(batch)
  finally:
    traffic = {courier.peer: courier.close() for courier in couriers}
  return {'owners': len(bins), 'refused': refused, 'seconds': {
      'sharing': sharing, 'all': time.monotonic() - start},
          'traffic': {peer: one.to_json() for peer, one in traffic.items()}}


def sealed_batches(messages: list[np.ndarray], tokens: list[np.ndarray],
                   first: int, *, servers: Sequence[str], digest: bytes,
                   source: prg.Source, change: Change | None) -> list[bytes]:
  """Returns one batch of sealed messages for each server.

  Args:
    messages: for each server the owners' messages, uint8 [n, bytes].
    tokens: for each server the owners' tokens, uint8 [n, 32].
    first: number of the first owner.
    servers: names of the servers.
    digest: what the messages are sealed for.
    source: randomness of marks and nonces.
    change: changes entries like a faulty relay; None for an honest one.
  """
  count = len(messages[0])
  marks = np.frombuffer(source(enrolment.MARK_BYTES * count),
                        np.uint8).reshape(count, -1)
  messages = [np.concatenate([marks, rows], 1) for rows in messages]
  batches = []
  for peer, rows, peer_tokens in zip(servers, messages, tokens, strict=True):
    entries = []
    for row in range(len(rows)):
      owner = first + row
      sealed = enrolment.seal(
          peer_tokens[row].tobytes(), rows[row].tobytes(), owner=owner,
          digest=digest, server=peer, source=source)
      entry = enrolment.entry(owner, sealed)
      entries.append(change(owner, entry) if change else entry)
    batches.append(b''.join(entries))
  return batches


def deal(parameters: Parameters, *, folder: pathlib.Path,
         addresses: pathlib.Path, timeout: float,
         source: prg.Source = prg.system) -> dict[str, channel.Traffic]:
  """Runs the dealer: gives the servers keys for noise that no party knows.

  Args as for `send`; `folder` is that of the dealer.

  Returns:
    Traffic by server.

  Raises:
    Fault: if a server cannot be reached or breaks the protocol.
  """
  traffic = {}
  for peer, keys in zip(parameters.servers,
                        noising.deal(parameters, source), strict=True):
    link = channel.call(
        links.read_address(addresses, peer),
        certificates.context(folder, server=False), peer=peer, name='dealer',
        session=parameters.session, timeout=timeout)
    try:
      links.greet(link, parameters)
      links.send_long(link, Kind.DEALT, keys)
      link.expect(Kind.RECEIPT)
    finally:
      link.close()
    traffic[peer] = link.traffic
  return traffic
