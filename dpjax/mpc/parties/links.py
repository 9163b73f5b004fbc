"""Connections among the servers of a study, and the greeting of all parties.

A server calls the servers with lower numbers and waits for calls of those with
higher numbers. Exchanges avoid deadlock: all servers go through the others in
the order of their numbers, and in each pair the lower number sends first.
"""

from collections.abc import Mapping
import pathlib

from dpjax.mpc.parties import channel
from dpjax.mpc.parties.agreement import Agreement
from dpjax.mpc.parties.channel import Channel
from dpjax.mpc.parties.channel import Disagreement
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.channel import Kind


def greet(connection: Channel, parameters: Agreement) -> None:
  """Sends this party's parameters to the called side and compares its own.

  Raises:
    Disagreement: if they differ; names the fields. The connection is closed.
  """
  try:
    connection.send(Kind.HELLO, parameters.to_bytes())
    kind, received = connection.receive(Kind.WELCOME)
    if kind is Kind.ERROR:
      raise Disagreement(connection.peer,
                         received.decode(errors='replace')[:500])
    _compare(connection.peer, received, parameters)
  except Fault:
    connection.close()
    raise


def welcome(connection: Channel, parameters: Agreement) -> None:
  """Answers `greet` on the called side.

  Raises:
    Disagreement: if the parameters differ; the caller gets the same message.
  """
  received = connection.expect(Kind.HELLO)
  try:
    _compare(connection.peer, received, parameters)
  except Disagreement as fault:
    connection.send(Kind.ERROR, fault.reason.encode())
    raise
  connection.send(Kind.WELCOME, parameters.to_bytes())


def _compare(peer: str, received: bytes, parameters: Agreement) -> None:
  """Raises a `Disagreement` unless a peer has sent the same parameters."""
  try:
    names = parameters.differences(received)
  except ValueError as error:
    raise Disagreement(peer, f'sent {error}') from None
  if names:
    raise Disagreement(peer, f'does not agree on {", ".join(names)}')


class Links:
  """One connection to each other server."""

  def __init__(self, name: str, channels: Mapping[str, Channel]):
    """Takes this server's name and the connections by the others' names."""
    self._name = name
    self._channels = dict(sorted(channels.items(),
                                 key=lambda item: number(item[0])))

  def exchange(self, kind: Kind, mine: bytes | Mapping[str, bytes]
               ) -> dict[str, bytes]:
    """Exchanges messages with all other servers.

    Args:
      kind: kind of the frames.
      mine: message to all servers, or messages by name of the receiver.

    Returns:
      The other servers' messages by their names.
    """
    theirs = {}
    for peer, link in self._channels.items():
      part = mine if isinstance(mine, bytes) else mine[peer]
      if number(self._name) < number(peer):
        send_long(link, kind, part)
        theirs[peer] = receive_long(link, kind)
      else:
        theirs[peer] = receive_long(link, kind)
        send_long(link, kind, part)
    return theirs

  def close(self) -> list[tuple[str, channel.Traffic]]:
    """Closes the connections; returns (name, traffic) of each."""
    for link in self._channels.values():
      link.close()
    return [(peer, link.traffic) for peer, link in self._channels.items()]


def number(name: str) -> int:
  """Returns j for the name `server<j>`."""
  return int(name.removeprefix('server'))


def send_long(link: Channel, kind: Kind, data: bytes) -> None:
  """Sends bytes as several frames; a frame that is not full marks the end."""
  # The + 1 sends an empty frame after data that fill the frame before.
  for start in range(0, len(data) + 1, channel.MAX_PAYLOAD):
    link.send(kind, data[start:start + channel.MAX_PAYLOAD])


def receive_long(link: Channel, kind: Kind, limit: int = 1 << 28) -> bytes:
  """Returns bytes sent by `send_long`.

  Raises:
    Fault: if there are more than `limit` bytes.
  """
  parts: list[bytes] = []
  size = 0
  while not parts or len(parts[-1]) == channel.MAX_PAYLOAD:
    parts.append(link.expect(kind))
    size += len(parts[-1])
    if size > limit:
      raise Fault(link.peer, f'sent more than {limit} bytes')
  return b''.join(parts)


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
