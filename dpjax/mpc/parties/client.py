"""Who asks: thresholds or the whole curve, of all servers at once.

A client holds no key but that of its certificate. It learns the noisy counts
and, where the number of records is public, how many there were.
"""

import dataclasses
import json
import pathlib

import numpy as np

from dpjax.mpc.parties import certificates
from dpjax.mpc.parties import channel
from dpjax.mpc.parties import links
from dpjax.mpc.parties import noising
from dpjax.mpc.parties import server
from dpjax.mpc.parties import wire
from dpjax.mpc.parties.channel import Channel, Fault, Kind
from dpjax.mpc.parties.parameters import Parameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
  """What a client has been told.

  Attributes:
    numbers: noisy ranks [classes, B] int64; of a tree noisy counts of its
      nodes [classes, M].
    num_records: whose messages are in them; None if that is not public.
    faults: of servers that were not needed.
    traffic: of each server's connection.
  """
  numbers: np.ndarray
  num_records: int | None
  faults: tuple[str, ...]
  traffic: dict[str, channel.Traffic]


def ask(parameters: Parameters, points: np.ndarray | None, *,
        folder: pathlib.Path, addresses: pathlib.Path, timeout: float,
        name: str = 'client') -> Answer:
  """Asks all servers, and puts their shares together.

  Args:
    parameters: of the study, as the client was told them.
    points: thresholds, from 0 to N - 1, [B]; None for all N, and for a tree.
    folder: of the client, with key and certificate.
    addresses: where servers say where they are.
    timeout: seconds after which a silent server is at fault.
    name: of the client, in its certificate.

  Raises:
    Fault: if too few servers answer, of the first one that is not there, does
      not agree on the parameters, or says that another one is at fault.
  """
  needed = parameters.build_scheme().needed
  if points is not None:
    _check_points(points, parameters)
  tls = certificates.context(folder, server=False)
  made: dict[str, Channel] = {}
  faults: list[Fault] = []

  def of_all(step, peers):
    """What a step gives with each server, of which enough have to be well."""
    found = {}
    for peer in peers:
      try:
        found[peer] = step(peer)
      except Fault as fault:
        faults.append(fault)
    if len(found) < needed:
      raise faults[0]
    return found

  def call(peer):
    made[peer] = channel.call(
        server.read_address(addresses, peer), tls, peer=peer, name=name,
        session=parameters.session, timeout=timeout)
    links.greet(made[peer], parameters)

  try:
    called = of_all(call, parameters.servers)
    asked = of_all(lambda peer: _ask(made[peer], parameters, points), called)
    told = of_all(lambda peer: _listen(made[peer], parameters, points), asked)
  finally:
    for link in made.values():
      link.close()
  return _combine(parameters, told, tuple(map(str, faults)),
                  {peer: link.traffic for peer, link in made.items()})


def _combine(parameters: Parameters,
             told: dict[str, tuple[int | None, np.ndarray]],
             faults: tuple[str, ...],
             traffic: dict[str, channel.Traffic]) -> Answer:
  numbers = {number for number, _ in told.values()}
  if len(numbers) != 1:
    raise Fault(' and '.join(told), 'do not agree on the number of owners')
  return Answer(
      numbers=parameters.build_scheme().combine({
          links.number(peer): shares for peer, (_, shares) in told.items()}),
      num_records=numbers.pop(), faults=faults, traffic=traffic)


def _check_points(points: np.ndarray, parameters: Parameters) -> None:
  num_thresholds = parameters.num_thresholds
  if parameters.shape:
    raise ValueError('points of a tree are not asked for: all of it is told')
  if points.ndim != 1 or not 0 < points.size <= num_thresholds or (
      not 0 <= points.min() <= points.max() < num_thresholds):
    raise ValueError(f'points must be up to {num_thresholds} whole numbers '
                     f'from 0 to {num_thresholds - 1}, got {points}')


def _ask(link: Channel, parameters: Parameters,
         points: np.ndarray | None) -> None:
  link.send(Kind.ASK, json.dumps(None if points is None else
                                 len(points)).encode())
  if points is not None:
    link.send(Kind.POINTS, wire.pack(
        points, wire.point_bits(parameters.num_thresholds)))


def _listen(link: Channel, parameters: Parameters, points: np.ndarray | None
            ) -> tuple[int | None, np.ndarray]:
  """The number of records, and a share of the ranks."""
  count = noising.num_told(parameters) if points is None else len(points)
  try:
    used = json.loads(link.expect(Kind.STATUS))
    if not isinstance(used, int if parameters.knows_total else type(None)):
      raise ValueError(f'{used} for a number of owners')
    return used, wire.unpack_shares(
        parameters.build_scheme(), links.receive_long(link, Kind.SHARES),
        (parameters.num_classes, count))
  except Fault:
    raise
  except (ValueError, RecursionError) as error:
    raise Fault(link.peer, f'sent {error}') from None
