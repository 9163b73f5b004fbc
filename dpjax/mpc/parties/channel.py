"""Frames over TLS, with sender, study and sequence number.

A frame is a header of 50 bytes and a payload. If anything arrives but the next
complete frame of this study from the party named in the certificate, a `Fault`
of that party is raised, and only this connection ends. Traffic is counted in
two ways: payload bytes by kind, and bytes on the wire with headers and TLS.
"""

import collections
from collections.abc import Callable, Iterable
import contextlib
import dataclasses
import enum
import socket
import ssl
import struct
from typing import TypeVar

from dpjax.mpc.parties import certificates

MAX_PAYLOAD = 1 << 22
"""Largest payload of a frame, in bytes."""

# Magic, version, kind, session, sender, sequence number, payload size.
_HEADER = struct.Struct('>4sBB16s16sQI')
_MAGIC, _VERSION = b'dpjx', 1
_CLOSED = 'closed the connection'
_Result = TypeVar('_Result')


class Kind(enum.IntEnum):
  """The kinds of frames, by the meaning of their payload."""
  HELLO = 1      # parameters of the party that connects
  WELCOME = 2    # parameters of the party that accepts
  OWNERS = 3     # sealed messages of owners
  RECEIPT = 4    # which of them were refused, and why
  DEALT = 5      # a part of a dealer's keys
  # STATUS: between servers, which noise each has drawn; to a client, the
  # number of owners whose records are counted, or null.
  STATUS = 6
  ACCEPTED = 7   # between servers: whose messages arrived
  COMMIT = 8     # between servers: digest of a seed
  REVEAL = 9     # between servers: the seed
  MASKS = 10     # between servers: shares of noise, or the mark of dealt keys
  READY = 11     # between servers: noise is on disk
  ASK = 12       # from a client: number of thresholds, or null for all
  POINTS = 13    # from a client: the thresholds
  SHARES = 14    # a server's share of the noisy counts
  ERROR = 15     # an error message of one line
  OPEN = 16      # from a client: number of a round and its public message
  ROUND = 17     # from a relay: number of a round; to it, number and message


class Fault(ValueError):
  """A failure of another party.

  Attributes:
    party: name of the party at fault.
    reason: what it did wrong.
  """

  def __init__(self, party: str, reason: str):
    super().__init__(f'{party}: {reason}')
    self.party, self.reason = party, reason


class Disagreement(Fault):
  """A party has other parameters of the study; retrying does not help."""


@dataclasses.dataclass
class Traffic:
  """Bytes that passed through one end of a connection.

  Attributes:
    sent: payload bytes sent, by kind.
    received: payload bytes received, by kind.
    wire_sent: bytes sent, with headers and TLS.
    wire_received: bytes received, with headers and TLS.
  """
  sent: collections.Counter[Kind] = dataclasses.field(
      default_factory=collections.Counter)
  received: collections.Counter[Kind] = dataclasses.field(
      default_factory=collections.Counter)
  wire_sent: int = 0
  wire_received: int = 0

  def to_json(self) -> dict[str, object]:
    """Returns payload bytes by kind and bytes on the wire, for JSON."""
    named = lambda counter: {Kind(k).name.lower(): counter[k]
                             for k in sorted(counter)}
    return {'payload_sent': named(self.sent),
            'payload_received': named(self.received),
            'wire_sent': self.wire_sent, 'wire_received': self.wire_received}


def total(parts: Iterable[Traffic]) -> Traffic:
  """Returns the sum of several counts of traffic."""
  traffic = Traffic()
  for part in parts:
    traffic.sent.update(part.sent)
    traffic.received.update(part.received)
    traffic.wire_sent += part.wire_sent
    traffic.wire_received += part.wire_received
  return traffic


class Channel:
  """One end of a connection.

  Attributes:
    name: name of this party.
    peer: name in the certificate of the other side.
    traffic: bytes that have passed.
  """

  def __init__(self, connection: socket.socket, tls: ssl.SSLContext, *,
               name: str, session: str, timeout: float,
               server_name: str | None = None):
    """Performs the TLS handshake.

    Args:
      connection: a connected socket; the channel closes it.
      tls: TLS context from `certificates.context`.
      name: name of this party.
      session: identifier of the study, 32 hexadecimal digits.
      timeout: seconds of silence after which the other side is at fault.
      server_name: name of the party that this side called; None if this side
        was called.

    Raises:
      Fault: if the other side has no certificate of this study, or not that of
        `server_name`.
    """
    self._socket, self.name, self.traffic = connection, name, Traffic()
    self._session = bytes.fromhex(session)
    self._timeout = timeout
    connection.settimeout(timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # TLS runs on buffers in memory, so bytes on the wire can be counted.
    self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
    self._tls = tls.wrap_bio(self._in, self._out,
                             server_side=server_name is None,
                             server_hostname=server_name)
    self._next_sent = self._next_received = 0
    self._begun = False  # whether part of a frame has arrived
    self.peer = server_name or 'a stranger'
    try:
      self._run(self._tls.do_handshake)
      self.peer = certificates.peer_name(self._tls)
    except BaseException:
      self.close()
      raise

  def _flush(self) -> None:
    """Writes what TLS has encrypted to the socket."""
    data = self._out.read()
    if data:
      self._socket.sendall(data)
      self.traffic.wire_sent += len(data)

  def _run(self, call: Callable[..., _Result], *args: object) -> _Result:
    """Runs a TLS operation, moving bytes to and from the socket as it needs."""
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
        self._flush()  # sends the TLS alert to the other side
      raise Fault(self.peer, f'TLS: {_plain(error)}') from None
    except OSError:
      raise Fault(self.peer, _CLOSED) from None

  def send(self, kind: Kind, payload: bytes) -> None:
    """Sends one frame of at most `MAX_PAYLOAD` bytes."""
    if len(payload) > MAX_PAYLOAD:
      raise ValueError(f'a payload of {len(payload)} bytes is too long')
    header = _HEADER.pack(_MAGIC, _VERSION, kind, self._session,
                          self.name.encode(), self._next_sent, len(payload))
    self._next_sent += 1
    self._run(self._tls.write, header + payload)
    self.traffic.sent[kind] += len(payload)

  def _exactly(self, size: int) -> bytes:
    """Returns the next `size` bytes; raises a `Fault` if there are fewer."""
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
    """Returns kind and payload of the next frame.

    Args:
      *kinds: the kinds allowed now; ERROR is always allowed.

    Raises:
      Fault: if anything else arrives.
    """
    # The payload is read only after all checks of the header have passed.
    header = self._exactly(_HEADER.size)
    magic, version, kind, session, sender, number, size = _HEADER.unpack(header)
    if (magic, version) != (_MAGIC, _VERSION):
      raise Fault(self.peer, 'sent bytes that are not a frame of this version')
    if session != self._session:
      raise Fault(self.peer, 'sent a frame of another session')
    if sender.rstrip(b'\0') != self.peer.encode():
      raise Fault(self.peer, 'sent a frame in the name of another')
    if number != self._next_received:
      raise Fault(self.peer, f'sent frame {number} where '
                  f'{self._next_received} was due: one is repeated or lost')
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
    """Returns the payload of the next frame, which must be of this kind.

    Raises:
      Fault: if anything else arrives; for an ERROR, with its message.
    """
    return self._expect_one(kind)[1]

  def _expect_one(self, *kinds: Kind) -> tuple[Kind, bytes]:
    """Returns kind and payload of the next frame; raises as `expect`."""
    kind, payload = self.receive(*kinds)
    if kind is Kind.ERROR:
      raise Fault(self.peer, payload.decode(errors='replace')[:500])
    return kind, payload

  def next(self, kind: Kind) -> bytes | None:
    """Returns as `expect`, or None if the connection ended between frames."""
    frame = self.next_one(kind)
    return None if frame is None else frame[1]

  def next_one(self, *kinds: Kind) -> tuple[Kind, bytes] | None:
    """Returns kind and payload of the next frame, of one of these kinds.

    None if the connection ended between frames; raises as `expect`.
    """
    self._begun = False
    try:
      return self._expect_one(*kinds)
    except Fault as fault:
      if self._begun or fault.reason != _CLOSED:
        raise
      return None

  @property
  def gone(self) -> bool:
    """Returns whether the other side has visibly closed the connection."""
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
    """Closes the connection."""
    with contextlib.suppress(OSError):
      self._socket.shutdown(socket.SHUT_RDWR)
    self._socket.close()


def call(address: tuple[str, int], tls: ssl.SSLContext, *, peer: str,
         name: str, session: str, timeout: float) -> Channel:
  """Connects to the server `peer` at (host, port); other Args as for `Channel`.

  Raises:
    Fault: if the server cannot be reached or is not `peer`.
  """
  try:
    connection = socket.create_connection(address, timeout=timeout)
  except OSError:
    raise Fault(peer, f'cannot be reached at {address[0]}:{address[1]}'
                ) from None
  return Channel(connection, tls, name=name, session=session, timeout=timeout,
                 server_name=peer)


def _plain(error: ssl.SSLError) -> str:
  """Returns the reason of a TLS error in plain words, without source lines."""
  text = getattr(error, 'verify_message', None) or error.reason or str(error)
  return text.lower().replace('_', ' ')
