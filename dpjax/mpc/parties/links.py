"""Connections between the servers of a study, while they agree.

A server calls those before it and waits for those behind it. Exchanges of two
servers follow one order over all pairs, and of a pair the first one speaks
first, so that none waits for one that waits for it.
"""

from collections.abc import Mapping

from dpjax.mpc.parties import channel
from dpjax.mpc.parties.channel import Channel, Disagreement, Fault, Kind
from dpjax.mpc.parties.parameters import Parameters


def greet(connection: Channel, parameters: Parameters) -> None:
  """Tells the side that was called the parameters, and compares its own.

  Raises:
    Disagreement: if they differ, with the names of the fields; the connection
      is closed.
  """
  try:
    connection.send(Kind.HELLO, parameters.to_bytes())
    kind, said = connection.receive(Kind.WELCOME)
    if kind is Kind.ERROR:
      raise Disagreement(connection.peer, said.decode(errors='replace')[:500])
    _compare(connection.peer, said, parameters)
  except Fault:
    connection.close()
    raise


def welcome(connection: Channel, parameters: Parameters) -> None:
  """The same, of the side that was called; who differs is told so."""
  said = connection.expect(Kind.HELLO)
  try:
    _compare(connection.peer, said, parameters)
  except Disagreement as fault:
    connection.send(Kind.ERROR, fault.reason.encode())
    raise
  connection.send(Kind.WELCOME, parameters.to_bytes())


def _compare(peer: str, said: bytes, parameters: Parameters) -> None:
  try:
    names = parameters.differences(said)
  except ValueError as error:
    raise Disagreement(peer, f'sent {error}') from None
  if names:
    raise Disagreement(peer, f'does not agree on {", ".join(names)}')


class Links:
  """One connection to each other server."""

  def __init__(self, name: str, channels: Mapping[str, Channel]):
    """Connections by the other's name, which ends with its number."""
    self._name = name
    self._channels = dict(sorted(channels.items(),
                                 key=lambda item: number(item[0])))

  def exchange(self, kind: Kind, mine: bytes | Mapping[str, bytes]
               ) -> dict[str, bytes]:
    """Sends every other server its part, or all the same; returns theirs."""
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
    """Ends the connections; returns what passed through them."""
    for link in self._channels.values():
      link.close()
    return [(peer, link.traffic) for peer, link in self._channels.items()]


def number(name: str) -> int:
  """j of `server<j>`."""
  return int(name.removeprefix('server'))


def send_long(link: Channel, kind: Kind, data: bytes) -> None:
  """Sends bytes as frames, of which the last one is not full."""
  for start in range(0, len(data) + 1, channel.MAX_PAYLOAD):
    link.send(kind, data[start:start + channel.MAX_PAYLOAD])


def receive_long(link: Channel, kind: Kind, limit: int = 1 << 28) -> bytes:
  """What `send_long` sent; `Fault` if that is more than `limit` bytes."""
  parts, size = [], 0
  while not parts or len(parts[-1]) == channel.MAX_PAYLOAD:
    parts.append(link.expect(kind))
    size += len(parts[-1])
    if size > limit:
      raise Fault(link.peer, f'sent more than {limit} bytes')
  return b''.join(parts)
