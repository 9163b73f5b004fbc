"""A process that plays many owners, and sends their messages in batches.

Each owner splits its bin and seals one message for each server; from there on
the process is a relay that could be anybody's. An owner is done when all
servers have acknowledged its message: if a server dies and comes back in time,
the same bytes are sent again, never new shares, which would not fit to those
that the others have.
"""

from collections.abc import Callable
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
from dpjax.mpc.parties import server
from dpjax.mpc.parties.channel import Channel, Fault, Kind
from dpjax.mpc.parties.parameters import Parameters

BATCH = 1024

Change = Callable[[int, bytes], bytes]
"""(owner, entry) -> what is sent instead; for demonstrations of faults."""


class Courier:
  """Brings batches to one server, and calls it again when it comes back."""

  def __init__(self, parameters: Parameters, peer: str, *, name: str,
               folder: pathlib.Path, addresses: pathlib.Path, timeout: float):
    """Calls the server; arguments as `send`."""
    self.peer, self._parameters, self._timeout = peer, parameters, timeout
    self._name, self._addresses = name, addresses
    self._tls = certificates.context(folder, server=False)
    self._link: Channel | None = None
    self._traffic: list[channel.Traffic] = []

  def _call(self) -> Channel:
    deadline = time.monotonic() + self._timeout
    while self._link is None:
      try:
        link = channel.call(
            server.read_address(self._addresses, self.peer), self._tls,
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
    """Sends a batch; if that fails, `receipt` sends it again."""
    try:
      self._call().send(Kind.OWNERS, batch)
    except channel.Disagreement:
      raise
    except Fault:
      self._drop()

  def receipt(self, batch: bytes) -> list[tuple[int, str]]:
    """(owner, reason) of the messages that the server has refused."""
    again, deadline = False, time.monotonic() + self._timeout
    while True:
      try:
        if self._link is None:
          again = True
          self._call().send(Kind.OWNERS, batch)
        told = json.loads(self._link.expect(Kind.RECEIPT))
        # What came before the server died is there already.
        return [(owner, reason) for owner, reason in told['refused']
                if not (again and reason == inbox.REPEATED)]
      except Fault:
        self._drop()
        if time.monotonic() > deadline:
          raise

  def _drop(self) -> None:
    if self._link is not None:
      self._link.close()
      self._link = None

  def close(self) -> channel.Traffic:
    """Ends the connection; returns what passed."""
    self._drop()
    return channel.total(self._traffic)


def send(bins: np.ndarray, tokens: list[np.ndarray], *, first_owner: int,
         parameters: Parameters, name: str, folder: pathlib.Path,
         addresses: pathlib.Path, timeout: float,
         labels: np.ndarray | None = None, source: prg.Source = prg.system,
         change: Change | None = None) -> dict[str, object]:
  """Plays owners `first_owner`, ... and returns what came of it.

  Args:
    bins: of these owners, [n], 0 to N - 1.
    tokens: from each server, [n, 32] uint8.
    first_owner: number of the first.
    parameters: of the study, as they were told them.
    name: of this relay, in its certificate.
    folder: of this relay, with key and certificate.
    addresses: where servers say where they are.
    timeout: seconds to wait for a server that does not answer.
    labels: of these owners, [n] of 0 and 1, if there are two classes.
    source: of shares and nonces.
    change: what a relay that is at fault does.

  Returns:
    refused, by server; seconds of sharing and in all; traffic by server.

  Raises:
    Fault: of a server that does not come back. Owners so far are done.
  """
  start, sharing = time.monotonic(), 0.
  scheme = parameters.build_scheme()
  couriers = [Courier(parameters, peer, name=name, folder=folder,
                      addresses=addresses, timeout=timeout)
              for peer in parameters.servers]
  refused = {courier.peer: [] for courier in couriers}
  try:
    for low in range(0, len(bins), BATCH):
      part = slice(low, low + BATCH)
      begun = time.monotonic()
      shares = scheme.shares(
          bins[part], source=source,
          labels=None if labels is None else labels[part])
      batches = _batches(shares, [rows[part] for rows in tokens],
                         first_owner + low, parameters, source, change)
      sharing += time.monotonic() - begun
      for courier, batch in zip(couriers, batches, strict=True):
        courier.post(batch)
      for courier, batch in zip(couriers, batches, strict=True):
        refused[courier.peer] += courier.receipt(batch)
  finally:
    traffic = {courier.peer: courier.close() for courier in couriers}
  return {'owners': len(bins), 'refused': refused, 'seconds': {
      'sharing': sharing, 'all': time.monotonic() - start},
          'traffic': {peer: one.to_json() for peer, one in traffic.items()}}


def _batches(messages: list[np.ndarray], tokens: list[np.ndarray], first: int,
             parameters: Parameters, source: prg.Source,
             change: Change | None) -> list[bytes]:
  """One batch of sealed messages for each server."""
  count = len(messages[0])
  marks = np.frombuffer(source(enrolment.MARK_BYTES * count),
                        np.uint8).reshape(count, -1)
  messages = [np.concatenate([marks, rows], 1) for rows in messages]
  batches = []
  for peer, rows, known in zip(parameters.servers, messages, tokens,
                               strict=True):
    entries = []
    for row in range(len(rows)):
      owner = first + row
      sealed = enrolment.seal(
          known[row].tobytes(), rows[row].tobytes(), owner=owner,
          digest=parameters.digest, server=peer, source=source)
      made = enrolment.entry(owner, sealed)
      entries.append(change(owner, made) if change else made)
    batches.append(b''.join(entries))
  return batches


def deal(parameters: Parameters, *, folder: pathlib.Path,
         addresses: pathlib.Path, timeout: float,
         source: prg.Source = prg.system) -> dict[str, channel.Traffic]:
  """Plays the dealer: gives the servers keys for noise that nobody knows.

  Args:
    parameters: of the study.
    folder: of the dealer, with key and certificate.
    addresses: where servers say where they are.
    timeout: seconds after which a silent server is at fault.
    source: of the keys.

  Raises:
    Fault: of a server that is at fault.
  """
  traffic = {}
  for peer, keys in zip(parameters.servers,
                        noising.deal(parameters, source), strict=True):
    link = channel.call(
        server.read_address(addresses, peer),
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
