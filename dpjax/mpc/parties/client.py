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
from dpjax.mpc.parties.channel import Channel, Fault, Kind
from dpjax.mpc.parties.parameters import Parameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
  """What a client has been told.

  Attributes:
    ranks: noisy counts of records up to each threshold, [B] int64.
    num_records: whose messages are in them; None if that is not public.
    traffic: of each server's connection.
  """
  ranks: np.ndarray
  num_records: int | None
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
    Fault: of the first server that is not there, does not agree on the
      parameters, or says that another one is at fault.
  """
  scheme = noising.scheme_of(parameters)
  asked = b'' if points is None else noising.pack_points(
      points, parameters.num_thresholds)
  count = parameters.num_thresholds if points is None else len(points)
  tls = certificates.context(folder, server=False)
  open_links: list[Channel] = []
  try:
    for peer in parameters.servers:
      open_links.append(channel.call(
          server.read_address(addresses, peer), tls, peer=peer, name=name,
          session=parameters.session, timeout=timeout))
      links.greet(open_links[-1], parameters)
    for link in open_links:
      link.send(Kind.ASK, asked)
    told = [_listen(link, scheme, count) for link in open_links]
  finally:
    for link in open_links:
      link.close()
  facts = {json.dumps(fact, sort_keys=True) for fact, _ in told}
  if len(facts) != 1:
    raise Fault(' and '.join(parameters.servers),
                'do not agree on the number of owners')
  return Answer(
      ranks=scheme.combine([shares for _, shares in told]),
      num_records=told[0][0].get('used'),
      traffic={link.peer: link.traffic for link in open_links})


def _listen(link: Channel, scheme, count: int) -> tuple[dict, np.ndarray]:
  try:
    facts = json.loads(link.expect(Kind.STATUS))
    if not isinstance(facts, dict):
      raise ValueError('facts that are none')
    return facts, scheme.unpack_shares(
        links.receive_long(link, Kind.SHARES), count)
  except Fault:
    raise
  except ValueError as error:
    raise Fault(link.peer, f'sent {error}') from None
