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
from dpjax.mpc.parties import server
from dpjax.mpc.parties import wire
from dpjax.mpc.parties.channel import Channel, Fault, Kind
from dpjax.mpc.parties.parameters import Parameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
  """What a client has been told.

  Attributes:
    ranks: noisy counts of records up to each threshold, [classes, B] int64.
    num_records: whose messages are in them; None if that is not public.
    faults: of servers that were not needed.
    traffic: of each server's connection.
  """
  ranks: np.ndarray
  num_records: int | None
  faults: tuple[str, ...]
  traffic: dict[str, channel.Traffic]


def ask(parameters: Parameters, points: np.ndarray | None, *,
        folder: pathlib.Path, addresses: pathlib.Path, timeout: float,
        name: str = 'client') -> Answer:
  """Asks all servers, and puts their shares together.

  Args:
    parameters: of the study, as the client was told them.
    points: thresholds, from 0 to N - 1, [B]; None for all N.
    folder: of the client, with key and certificate.
    addresses: where servers say where they are.
    timeout: seconds after which a silent server is at fault.
    name: of the client, in its certificate.

  Raises:
    Fault: if too few servers answer, of the first one that is not there, does
      not agree on the parameters, or says that another one is at fault.
  """
  scheme = parameters.build_scheme()
  if points is not None:
    _check_points(points, parameters.num_thresholds)
  tls = certificates.context(folder, server=False)
  made, faults = {}, []

  def tried(step, peer):
    """A step with one server, which may be at fault while others are not."""
    try:
      return step(peer)
    except Fault as fault:
      faults.append(fault)
      return None

  def call(peer):
    made[peer] = channel.call(
        server.read_address(addresses, peer), tls, peer=peer, name=name,
        session=parameters.session, timeout=timeout)
    links.greet(made[peer], parameters)
    return peer

  try:
    called = [peer for peer in parameters.servers if tried(call, peer)]
    if len(called) < scheme.needed:
      raise faults[0]
    asked = [peer for peer in called
             if tried(lambda peer: _ask(made[peer], parameters, points), peer)]
    told = {peer: tried(lambda peer: _listen(made[peer], parameters, points),
                        peer) for peer in asked}
  finally:
    for link in made.values():
      link.close()
  told = {peer: one for peer, one in told.items() if one is not None}
  if len(told) < scheme.needed:
    raise faults[0]
  if len({fact for fact, _ in told.values()}) != 1:
    raise Fault(' and '.join(told), 'do not agree on the number of owners')
  return Answer(
      ranks=scheme.combine({links.number(peer): shares
                            for peer, (_, shares) in told.items()}),
      num_records=next(fact for fact, _ in told.values()),
      faults=tuple(map(str, faults)),
      traffic={peer: link.traffic for peer, link in made.items()})


def _check_points(points: np.ndarray, num_thresholds: int) -> None:
  if points.ndim != 1 or not 0 < points.size <= num_thresholds or (
      not 0 <= points.min() <= points.max() < num_thresholds):
    raise ValueError(f'points must be up to {num_thresholds} whole numbers '
                     f'from 0 to {num_thresholds - 1}, got {points}')


def _ask(link: Channel, parameters: Parameters,
         points: np.ndarray | None) -> bool:
  link.send(Kind.ASK, json.dumps(None if points is None else
                                 len(points)).encode())
  if points is not None:
    link.send(Kind.POINTS, wire.pack(
        points, wire.point_bits(parameters.num_thresholds)))
  return True


def _listen(link: Channel, parameters: Parameters, points: np.ndarray | None
            ) -> tuple[int | None, np.ndarray]:
  """The number of records, and a share of the ranks."""
  count = parameters.num_thresholds if points is None else len(points)
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
