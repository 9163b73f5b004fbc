"""The client of a study of sums: opens rounds and combines the answers."""

from collections.abc import Callable
import dataclasses
import json
import pathlib
from typing import Self, TypeVar

import numpy as np

from dpjax.mpc.parties import certificates
from dpjax.mpc.parties import channel
from dpjax.mpc.parties import links
from dpjax.mpc.parties import sum_server
from dpjax.mpc.parties import wire
from dpjax.mpc.parties.channel import Channel
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.channel import Kind
from dpjax.mpc.parties.sum_parameters import SumParameters

_Result = TypeVar('_Result')


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisySum:
  """The released answer of one round.

  Attributes:
    units: noisy sum in units of the granularity, int64 [d].
    total: the same in the unit of the owners' vectors, float64 [d].
    mean: `total` divided by the public number of enrolled owners. The number of
      those who took part would make a single owner's weight depend on others.
    took_part: which enrolled owners are in the sum, bool [n]; public.
  """
  units: np.ndarray
  total: np.ndarray
  mean: np.ndarray
  took_part: np.ndarray


class SumClient:
  """Opens the rounds of a study of sums; a context that closes connections."""

  def __init__(self, parameters: SumParameters, *, folder: pathlib.Path,
               addresses: pathlib.Path, timeout: float, name: str = 'client'):
    """Connects to all servers.

    Args:
      parameters: parameters of the study that the client was given.
      folder: the client's folder, with key and certificate.
      addresses: folder with the addresses of the servers.
      timeout: seconds after which a silent server is at fault; above the
        patience of all rounds and the servers' own timeout together.
      name: the client's name in its certificate.

    Raises:
      Fault: if a server cannot be reached or has other parameters.
    """
    self._parameters = parameters
    self._links: dict[str, Channel] = {}
    tls = certificates.context(folder, server=False)
    try:
      for peer in parameters.servers:
        self._links[peer] = channel.call(
            links.read_address(addresses, peer), tls, peer=peer, name=name,
            session=parameters.session, timeout=timeout)
        links.greet(self._links[peer], parameters)
    except Fault:
      self.close()
      raise

  def __enter__(self) -> Self:
    return self

  def __exit__(self, *_: object) -> None:
    self.close()

  def close(self) -> dict[str, channel.Traffic]:
    """Closes the connections; returns the traffic by server."""
    for link in self._links.values():
      link.close()
    return {peer: link.traffic for peer, link in self._links.items()}

  def open(self, number: int, message: bytes) -> None:
    """Opens a round on all servers.

    Args:
      number: number of the round, above those of all rounds before and below
        `num_rounds`.
      message: public message for the owners, such as a model.

    Raises:
      Fault: if a server refuses the round; names the first one that does.
    """
    def send(link: Channel) -> None:
      link.send(Kind.OPEN, number.to_bytes(sum_server.NUMBER_BYTES))
      links.send_long(link, Kind.OPEN, message)

    self._with_each(send)
    self._with_each(lambda link: link.expect(Kind.RECEIPT))

  def ask(self, number: int, *, patience: float) -> NoisySum:
    """Ends the open round and returns its noisy sum.

    Args:
      number: number of the round.
      patience: seconds to wait for owners who have not sent; below the servers'
        timeout.

    Raises:
      Fault: if a server fails, refuses, or has too few owners. The round is
        lost, and the next one can be opened.
    """
    self._with_each(lambda link: link.send(
        Kind.ASK, json.dumps([number, patience]).encode()))
    # All servers are asked before one is read: they wait for each other.
    answers = self._with_each(self._listen)
    owners = {used for used, _ in answers.values()}
    if len(owners) != 1:
      raise Fault(' and '.join(answers), 'do not agree on the owners')
    summed = self._parameters.vector_sum
    units = summed.combine({links.number(peer): share
                            for peer, (_, share) in answers.items()})
    total = summed.decode(units)
    return NoisySum(
        units=units, total=total, mean=total / self._parameters.num_owners,
        took_part=np.unpackbits(
            np.frombuffer(owners.pop(), np.uint8),
            count=self._parameters.num_owners).astype(bool))

  def finish(self) -> None:
    """Tells owners that no further round will be opened."""
    self.open(self._parameters.num_rounds, b'')

  def _listen(self, link: Channel) -> tuple[bytes, np.ndarray]:
    """Returns the owners of a round, packed, and a server's share of the sum.
    """
    owners = link.expect(Kind.STATUS)
    try:
      if len(owners) != -(-self._parameters.num_owners // 8):
        raise ValueError('a list of owners of a wrong length')
      return owners, wire.unpack(links.receive_long(link, Kind.SHARES),
                                 (self._parameters.length,),
                                 self._parameters.value_bits)
    except Fault:
      raise
    except ValueError as error:
      raise Fault(link.peer, f'sent {error}') from None

  def _with_each(self, step: Callable[[Channel], _Result]
                 ) -> dict[str, _Result]:
    """Runs a step with each server, then raises the first fault, if any.

    Going on after a fault keeps the frames of the other servers in step.
    """
    results, faults = {}, []
    for peer, link in self._links.items():
      try:
        results[peer] = step(link)
      except Fault as fault:
        faults.append(fault)
    if faults:
      raise faults[0]
    return results
