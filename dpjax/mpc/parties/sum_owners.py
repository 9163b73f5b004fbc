"""Owners of a study of sums: many owners in one process, with a relay.

In each round the owners get a public message, compute their vectors from it,
share them and seal one message for each server. The rest of the process is a
relay, which need not be trusted: it cannot read or change messages, nor use
them in another round. An owner is done with a round once all servers have
acknowledged its message.
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
from dpjax.mpc.parties import links
from dpjax.mpc.parties import owners
from dpjax.mpc.parties import sum_server
from dpjax.mpc.parties.channel import Channel
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.channel import Kind
from dpjax.mpc.parties.sum_parameters import SumParameters

Vectors = Callable[[int, bytes], np.ndarray]
"""Function (number of the round, public message) -> the owners' secret vectors,
float [n, d]; each l2 norm must be at most `SumParameters.bound`.
"""


def take_part(vectors: Vectors, tokens: list[np.ndarray], *, first_owner: int,
              parameters: SumParameters, name: str, folder: pathlib.Path,
              addresses: pathlib.Path, timeout: float,
              source: prg.Source = prg.system,
              change: owners.Change | None = None) -> dict[str, object]:
  """Takes part in all rounds for owners `first_owner`, `first_owner` + 1, ...

  Args:
    vectors: computes the owners' vectors of a round.
    tokens: for each server the owners' tokens, uint8 [n, 32].
    first_owner: number of the first owner.
    parameters: parameters of the study that the owners were given.
    name: name of this relay in its certificate.
    folder: folder of this relay, with key and certificate.
    addresses: folder with the addresses of the servers.
    timeout: seconds after which a silent server is at fault. The servers'
      timeout must leave time to compute the vectors.
    source: randomness of shares and nonces.
    change: changes entries like a faulty relay; None for an honest one.

  Returns:
    The number of owners and rounds; refused messages by server; seconds of
    vectors (computing them), sharing and sending; traffic by server.

  Raises:
    Fault: if a server fails, or servers have sent different messages.
    ValueError: if a vector is above the bound.
  """
  tls = certificates.context(folder, server=False)
  channels: dict[str, Channel] = {}
  seconds = {'vectors': 0., 'sharing': 0., 'sending': 0.}
  refused: dict[str, list[tuple[int, str]]] = {
      peer: [] for peer in parameters.servers}
  rounds = number = 0
  try:
    for peer in parameters.servers:
      channels[peer] = channel.call(
          links.read_address(addresses, peer), tls, peer=peer, name=name,
          session=parameters.session, timeout=timeout)
      links.greet(channels[peer], parameters)
    while number < parameters.num_rounds:
      number, message = _next_round(channels, number)
      if number >= parameters.num_rounds:
        break
      start = time.monotonic()
      units = parameters.vector_sum.encode(vectors(number, message))
      seconds['vectors'] += time.monotonic() - start
      _send(units, tokens, first_owner, parameters,
            parameters.round_digest(number, message), channels, source, change,
            seconds, refused)
      number, rounds = number + 1, rounds + 1
  finally:
    for link in channels.values():
      link.close()
  return {'owners': len(tokens[0]), 'rounds': rounds, 'refused': refused,
          'seconds': seconds, 'traffic': {
              peer: link.traffic.to_json() for peer, link in channels.items()}}


def _next_round(channels: dict[str, Channel], number: int
                ) -> tuple[int, bytes]:
  """Waits for a round from `number` on; returns its number and message.

  Raises:
    Fault: if the servers do not send the same.
  """
  size = sum_server.NUMBER_BYTES
  while True:
    for link in channels.values():
      link.send(Kind.ROUND, number.to_bytes(size))
    sent = {links.receive_long(link, Kind.ROUND) for link in channels.values()}
    if b'' in sent:  # not open yet
      continue
    numbers = {int.from_bytes(received[:size]) for received in sent}
    if len(numbers) == len(sent) == 1:
      return numbers.pop(), sent.pop()[size:]
    if len(numbers) < len(sent):
      raise Fault(' and '.join(channels), 'have sent different messages for a '
                  'round')
    number = max(numbers)  # some servers have not opened it yet


def _send(units: np.ndarray, tokens: list[np.ndarray], first_owner: int,
          parameters: SumParameters, digest: bytes,
          channels: dict[str, Channel], source: prg.Source,
          change: owners.Change | None, seconds: dict[str, float],
          refused: dict[str, list[tuple[int, str]]]) -> None:
  """Shares and sends the integers [n, d] of one round, in batches."""
  summed = parameters.vector_sum
  longest = enrolment.AROUND_BYTES + summed.message_bytes(
      parameters.num_servers - 1)
  # A faulty relay may send entries twice; half of a frame is then enough.
  step = max(1, min(owners.BATCH, channel.MAX_PAYLOAD // (2 * longest)))
  for low in range(0, len(units), step):
    part = slice(low, low + step)
    start = time.monotonic()
    batches = owners.sealed_batches(
        summed.shares(units[part], source=source),
        [rows[part] for rows in tokens], first_owner + low,
        servers=parameters.servers, digest=digest, source=source, change=change)
    seconds['sharing'] += time.monotonic() - start
    start = time.monotonic()
    for link, batch in zip(channels.values(), batches, strict=True):
      link.send(Kind.OWNERS, batch)
    for peer, link in channels.items():
      receipt = json.loads(link.expect(Kind.RECEIPT))
      refused[peer] += [(owner, why) for owner, why in receipt['refused']]
    seconds['sending'] += time.monotonic() - start
