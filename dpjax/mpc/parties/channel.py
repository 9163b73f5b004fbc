"""Frames over TLS: who sent what, in which study, as the how-manieth.

A frame is a header of 50 bytes and a payload. Whatever is not the next whole
frame of this study by the party of the certificate is a `Fault` of that party,
and ends the connection and nothing else. Bytes are counted twice:
payloads, by kind, and what went over the wire, with headers and TLS.
"""

import collections
from collections.abc import Callable, Iterable
import contextlib
import dataclasses
import enum
import socket
import ssl
import struct

from dpjax.mpc.parties import certificates

MAX_PAYLOAD = 1 << 22

_HEADER = struct.Struct('>4sBB16s16sQI')
_MAGIC, _VERSION = b'dpjx', 1
_CLOSED = 'closed the connection'


class Kind(enum.IntEnum):
  """What a payload is."""
  HELLO = 1      # parameters, of who connects
  WELCOME = 2    # parameters, of who accepts
  OWNERS = 3     # sealed messages of owners
  RECEIPT = 4    # which of them were refused, and why
  DEALT = 5      # a part of a dealer's keys
  STATUS = 6     # between servers: what each has drawn
  ACCEPTED = 7   # between servers: whose messages arrived
  COMMIT = 8     # between servers: digest of a seed
  REVEAL = 9     # between servers: the seed
  MASKS = 10     # between servers: sharings of zero and of noise
  READY = 11     # between servers: noise is on disk
  ASK = 12       # how many thresholds, of a client
  POINTS = 13    # which
  SHARES = 14    # a server's share of the noisy counts
  ERROR = 15     # one line


class Fault(ValueError):
  """What a party did wrong; `party` is its name."""

  def __init__(self, party: str, reason: str):
    super().__init__(f'{party}: {reason}')
    self.party, self.reason = party, reason


class Disagreement(Fault):
  """Of a party with other parameters; trying again does not help."""


@dataclasses.dataclass
class Traffic:
  """Bytes that passed through one end of a connection."""
  sent: collections.Counter = dataclasses.field(
      default_factory=collections.Counter)
  received: collections.Counter = dataclasses.field(
      default_factory=collections.Counter)
  wire_sent: int = 0
  wire_received: int = 0

  def to_json(self) -> dict[str, object]:
    """Payloads by kind, and bytes on the wire."""
    named = lambda counter: {Kind(k).name.lower(): counter[k]
                             for k in sorted(counter)}
    return {'payload_sent': named(self.sent),
            'payload_received': named(self.received),
            'wire_sent': self.wire_sent, 'wire_received': self.wire_received}


def total(parts: Iterable[Traffic]) -> Traffic:
  """Their sum."""
  found = Traffic()
  for part in parts:
    found.sent.update(part.sent)
    found.received.update(part.received)
    found.wire_sent += part.wire_sent
    found.wire_received += part.wire_received
  return found


class Channel:
  """One end of a connection; `peer` is the name in the other's certificate."""

  def __init__(self, connection: socket.socket, tls: ssl.SSLContext, *,
               name: str, session: str, timeout: float,
               server_name: str | None = None):
    """Shakes hands.

    Args:
      connection: a connected socket; it is closed with the channel.
      tls: from `certificates.context`.
      name: of this party.
      session: of the study.
      timeout: seconds of silence after which the other side is at fault.
      server_name: whom this side has called; None if it was called.

    Raises:
      Fault: if the other side cannot show a certificate of this study, or not
        the one of `server_name`.
    """
    self._socket, self.name, self.traffic = connection, name, Traffic()
    self._session = bytes.fromhex(session)
    self._timeout = timeout
    connection.settimeout(timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
    self._tls = tls.wrap_bio(self._in, self._out,
                             server_side=server_name is None,
                             server_hostname=server_name)
    self._next_sent = self._next_received = 0
    self._begun = False  # whether a part of a frame has come
    self.peer = server_name or 'a stranger'
    try:
      self._run(self._tls.do_handshake)
      self.peer = certificates.peer_name(self._tls)
    except BaseException:
      self.close()
      raise

  def _flush(self) -> None:
    data = self._out.read()
    if data:
      self._socket.sendall(data)
      self.traffic.wire_sent += len(data)

  def _run(self, call: Callable, *args):
    """Calls into TLS, carrying bytes to and fro until it is content."""
    try:
      while True:
        try:
          result = call(*args)
          self._flush()
          return result
        except ssl.SSLWantReadError:
          self._flush()
          data = self._socket.recv(1 << 18)
          if not data:
            raise Fault(self.peer, _CLOSED) from None
          self._in.write(data)
          self.traffic.wire_received += len(data)
    except TimeoutError:
      raise Fault(self.peer,
                  f'was silent for {self._timeout:g} seconds') from None
    except ssl.SSLError as error:
      with contextlib.suppress(OSError):
        self._flush()  # the alert that tells the other side
      raise Fault(self.peer, f'TLS: {_plain(error)}') from None
    except OSError:
      raise Fault(self.peer, _CLOSED) from None

  def send(self, kind: Kind, payload: bytes) -> None:
    """Sends one frame."""
    if len(payload) > MAX_PAYLOAD:
      raise ValueError(f'a payload of {len(payload)} bytes is too long')
    header = _HEADER.pack(_MAGIC, _VERSION, kind, self._session,
                          self.name.encode(), self._next_sent, len(payload))
    self._next_sent += 1
    self._run(self._tls.write, header + payload)
    self.traffic.sent[kind] += len(payload)

  def _exactly(self, size: int) -> bytes:
    parts, missing = [], size
    while missing:
      part = self._run(self._tls.read, missing)
      if not part:
        raise Fault(self.peer, _CLOSED)
      self._begun = True
      parts.append(part)
      missing -= len(part)
    return b''.join(parts)

  def receive(self, *kinds: Kind) -> tuple[Kind, bytes]:
    """The next frame.

    Args:
      *kinds: those that may come now. An ERROR may always.

    Raises:
      Fault: for anything else.
    """
    header = self._exactly(_HEADER.size)
    magic, version, kind, session, sender, number, size = _HEADER.unpack(header)
    if (magic, version) != (_MAGIC, _VERSION):
      raise Fault(self.peer, 'sent what is no frame of this version')
    if session != self._session:
      raise Fault(self.peer, 'sent a frame of another session')
    if sender.rstrip(b'\0') != self.peer.encode():
      raise Fault(self.peer, 'sent a frame in the name of another')
    if number != self._next_received:
      raise Fault(self.peer, f'sent frame {number} where '
                  f'{self._next_received} was due: repeated or lost')
    if size > MAX_PAYLOAD:
      raise Fault(self.peer, f'announced a payload of {size} bytes')
    if kind not in kinds and kind != Kind.ERROR:
      raise Fault(self.peer, f'sent kind {kind} where one of '
                  f'{", ".join(k.name for k in kinds)} was due')
    self._next_received += 1
    payload = self._exactly(size)
    self.traffic.received[kind] += size
    return Kind(kind), payload

  def expect(self, kind: Kind) -> bytes:
    """The payload of the next frame, which must be of this kind.

    Raises:
      Fault: for anything else, and for an ERROR, with what it says.
    """
    found, payload = self.receive(kind)
    if found is Kind.ERROR:
      raise Fault(self.peer, payload.decode(errors='replace')[:500])
    return payload

  def next(self, kind: Kind) -> bytes | None:
    """The same, or None if the other side has ended between frames."""
    self._begun = False
    try:
      return self.expect(kind)
    except Fault as fault:
      if self._begun or fault.reason != _CLOSED:
        raise
      return None

  @property
  def gone(self) -> bool:
    """Whether the other side has ended, as far as this one can see."""
    try:
      self._socket.setblocking(False)
      return not self._socket.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
      return False
    except OSError:
      return True
    finally:
      with contextlib.suppress(OSError):
        self._socket.settimeout(self._timeout)

  def close(self) -> None:
    """Ends the connection."""
    with contextlib.suppress(OSError):
      self._socket.shutdown(socket.SHUT_RDWR)
    self._socket.close()


def call(address: tuple[str, int], tls: ssl.SSLContext, *, peer: str,
         name: str, session: str, timeout: float) -> Channel:
  """Connects to a server; `Fault` of `peer` if that fails."""
  try:
    connection = socket.create_connection(address, timeout=timeout)
  except OSError:
    raise Fault(peer, f'cannot be reached at {address[0]}:{address[1]}'
                ) from None
  return Channel(connection, tls, name=name, session=session, timeout=timeout,
                 server_name=peer)


def _plain(error: ssl.SSLError) -> str:
  """What went wrong, without the line of the library it came from."""
  text = getattr(error, 'verify_message', None) or error.reason or str(error)
  return text.lower().replace('_', ' ')
