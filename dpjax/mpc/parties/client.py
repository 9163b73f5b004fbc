"""The client: asks all servers for noisy ranks and combines their answers.

A client holds no key but that of its certificate. It learns the noisy counts
and, if the number of records is public, that number.
"""

from collections.abc import Callable, Iterable
import dataclasses
import json
import pathlib
from typing import TypeVar

import numpy as np

from dpjax.mpc.parties import certificates
from dpjax.mpc.parties import channel
from dpjax.mpc.parties import links
from dpjax.mpc.parties import noising
from dpjax.mpc.parties import wire
from dpjax.mpc.parties.channel import Channel
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.channel import Kind
from dpjax.mpc.parties.parameters import Parameters

_Result = TypeVar('_Result')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
  """The released answer that a client receives.

  Attributes:
    numbers: noisy ranks [classes, B] int64; for a tree, noisy counts of its
      nodes [classes, M].
    num_records: number of records counted; None if it is not public.
    faults: faults of servers that were not needed for the answer.
    traffic: bytes exchanged with each server, by its name.
  """
  numbers: np.ndarray
  num_records: int | None
  faults: tuple[str, ...]
  traffic: dict[str, channel.Traffic]


def ask(parameters: Parameters, points: np.ndarray | None, *,
        folder: pathlib.Path, addresses: pathlib.Path, timeout: float,
        name: str = 'client') -> Answer:
  """Asks all servers and combines their shares.

  Args:
    parameters: parameters of the study that the client was given.
    points: indices of thresholds [B], from 0 to N - 1; None for all N, and for
      a tree.
    folder: the client's folder, with key and certificate.
    addresses: folder with the addresses of the servers.
    timeout: seconds after which a silent server is at fault.
    name: the client's name in its certificate.

  Raises:
    Fault: if too few servers answer. It names the first server that cannot
      be reached, has other parameters, or reports another server's fault.
  """
  if points is not None:
    _check_points(points, parameters)
  tls = certificates.context(folder, server=False)
  channels: dict[str, Channel] = {}
  faults: list[Fault] = []

  def with_each(step: Callable[[str], _Result], peers: Iterable[str]
                ) -> dict[str, _Result]:
    """Runs a step with each server; raises if too few succeed."""
    results = {}
    for peer in peers:
      try:
        results[peer] = step(peer)
      except Fault as fault:
        faults.append(fault)
    if len(results) < parameters.build_scheme().needed:
      raise faults[0]
    return results

  def call(peer: str) -> None:
    channels[peer] = channel.call(
        links.read_address(addresses, peer), tls, peer=peer, name=name,
        session=parameters.session, timeout=timeout)
    links.greet(channels[peer], parameters)

  try:
    called = with_each(call, parameters.servers)
    # All servers are asked before one is read: they wait for each other.
    listening = with_each(
        lambda peer: _ask(channels[peer], parameters, points), called)
    answers = with_each(
        lambda peer: _listen(channels[peer], parameters, points), listening)
  finally:
    for link in channels.values():
      link.close()
  return _combine(parameters, answers, tuple(map(str, faults)),
                  {peer: link.traffic for peer, link in channels.items()})


def _combine(parameters: Parameters,
             answers: dict[str, tuple[int | None, np.ndarray]],
             faults: tuple[str, ...],
             traffic: dict[str, channel.Traffic]) -> Answer:
  """Combines the servers' shares; raises if their record counts differ."""
  numbers = {number for number, _ in answers.values()}
  if len(numbers) != 1:
    raise Fault(' and '.join(answers), 'do not agree on the number of owners')
  return Answer(
      numbers=parameters.build_scheme().combine({
          links.number(peer): shares for peer, (_, shares) in answers.items()}),
      num_records=numbers.pop(), faults=faults, traffic=traffic)


def _check_points(points: np.ndarray, parameters: Parameters) -> None:
  """Raises a ValueError for points that the study cannot answer."""
  num_thresholds = parameters.num_thresholds
  if parameters.shape:
    raise ValueError('points of a tree cannot be asked for, since all of its '
                     'counts are released: pass None')
  if points.ndim != 1 or not 0 < points.size <= num_thresholds or (
      not 0 <= points.min() <= points.max() < num_thresholds):
    raise ValueError(f'points must be 1 to {num_thresholds} whole numbers '
                     f'from 0 to {num_thresholds - 1}, got {points}')


def _ask(link: Channel, parameters: Parameters,
         points: np.ndarray | None) -> None:
  """Sends a query for points, or for all if None, to one server."""
  link.send(Kind.ASK, json.dumps(None if points is None else
                                 len(points)).encode())
  if points is not None:
    link.send(Kind.POINTS, wire.pack(
        points, wire.point_bits(parameters.num_thresholds)))


def _listen(link: Channel, parameters: Parameters, points: np.ndarray | None
            ) -> tuple[int | None, np.ndarray]:
  """Returns the number of records or None, and a server's share of the ranks.
  """
  count = noising.num_released(parameters) if points is None else len(points)
  try:
    used = json.loads(link.expect(Kind.STATUS))
    if not isinstance(used, int if parameters.knows_total else type(None)):
      raise ValueError(f'{used} where a number of owners or null was due')
    return used, wire.unpack_shares(
        parameters.build_scheme(), links.receive_long(link, Kind.SHARES),
        (parameters.num_classes, count))
  except Fault:
    raise
  except (ValueError, RecursionError) as error:
    raise Fault(link.peer, f'sent {error}') from None
