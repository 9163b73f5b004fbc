"""Noise of all that is told, drawn once: shares of it that no server can read.

Discrete Laplace noise of dyadic nodes or of those of a tree (`nodes`), in one
of two ways:

* joint: two servers and a dealer; of the curator's law, and no party knows any
  of it (`joint_noise`).
* contributions: each server draws noise and shares it with the others; what all
  but `num_colluding` of them drew follows the curator's law, the rest comes on
  top (`noise`). A server knows its own part.

Of dyadic nodes: where n is public the last rank is n, and has no noise.
"""

from collections.abc import Callable
import fractions

import numpy as np

from dpjax.mpc import additive
from dpjax.mpc import joint_noise
from dpjax.mpc import nodes
from dpjax.mpc import noise
from dpjax.mpc import prg
from dpjax.mpc.parties import wire
from dpjax.mpc.parties.channel import Fault, Kind
from dpjax.mpc.parties.enrolment import MARK_BYTES
from dpjax.mpc.parties.links import Links
from dpjax.mpc.parties.parameters import Parameters

Draw = Callable[[int, Parameters, Links, bytes, bytes | None], np.ndarray]
"""(server, parameters, links, coin, dealt keys) -> share [classes, M]."""

_SEED_BYTES = 32


def draw(server: int, parameters: Parameters, mesh: Links, toss: bytes,
         dealt: bytes | None, *, source: prg.Source = prg.system) -> np.ndarray:
  """A server's share of the noise of all numbers that are told [classes, M].

  Args:
    server: its number.
    parameters: of the study.
    mesh: its links to the others.
    toss: from `coin`.
    dealt: what the dealer has sent, if it has.
    source: of contributions.

  Raises:
    Fault: of a party that does not do its part.
  """
  if parameters.noise == 'joint':
    if dealt is None:
      raise Fault('dealer', 'has not dealt')
    mark, keys = dealt[:MARK_BYTES], dealt[MARK_BYTES:]
    if any(other != mark for other in mesh.exchange(Kind.MASKS, mark).values()):
      raise Fault('dealer', 'has given keys that do not belong together')
    law = joint_law(parameters)
    shares = law.share(server, np.frombuffer(keys, np.uint8).reshape(
        law.num_keys, -1), toss)
    return told(parameters, shares) & additive.mask(parameters.value_bits)
  own = contributions(parameters).draw(source(_SEED_BYTES),
                                       num_nodes(parameters))
  return reshare(server, parameters, mesh, told(parameters, own), source)


def scale(parameters: Parameters) -> fractions.Fraction:
  """Of the curator's noise; epsilon is taken as it is written, 0.1 is 1/10."""
  return parameters.sensitivity / fractions.Fraction(str(parameters.epsilon))


def num_rows(parameters: Parameters) -> int:
  """Ranks of a curve that have noise."""
  known = parameters.knows_total and parameters.num_classes == 1
  return parameters.num_thresholds - known


def num_nodes(parameters: Parameters) -> int:
  """Nodes with noise, of all curves."""
  if parameters.shape:
    return parameters.num_classes * num_told(parameters)
  return parameters.num_classes * sum(
      nodes.dyadic_sizes(num_rows(parameters), root=parameters.root))


def num_told(parameters: Parameters) -> int:
  """M: numbers that are told of each class, N ranks or counts of a tree."""
  if parameters.shape:
    return sum(nodes.tree_sizes(parameters.num_thresholds, parameters.shape))
  return parameters.num_thresholds


def told(parameters: Parameters, values: np.ndarray) -> np.ndarray:
  """Noise [classes, M] of what is told, of nodes; numbers or shares."""
  if parameters.shape:
    return values.reshape(parameters.num_classes, -1)
  rows = num_rows(parameters)
  summed = nodes.dyadic_rows(
      values.reshape(parameters.num_classes, -1), np.arange(rows), rows,
      root=parameters.root)
  return np.pad(summed, [(0, 0), (0, parameters.num_thresholds - rows)])


def joint_law(parameters: Parameters) -> joint_noise.JointNoise:
  """The noise of all nodes, as a dealer and two servers draw it."""
  return joint_noise.JointNoise(
      scale=scale(parameters), count=num_nodes(parameters),
      value_bits=parameters.value_bits)


def contributions(parameters: Parameters) -> noise.Contributions:
  """The noise of a node, as servers bring it along."""
  return noise.Contributions(
      scale=scale(parameters), num_parties=parameters.num_servers,
      num_colluding=parameters.num_colluding)


def told_variance(parameters: Parameters) -> float:
  """Of the noise of a number that is told, and has noise."""
  levels = 1 if parameters.shape else len(
      nodes.dyadic_sizes(num_rows(parameters), root=parameters.root))
  return levels * (noise.variance(scale(parameters))
                   if parameters.noise == 'joint' else
                   contributions(parameters).variance)


def total_variation(parameters: Parameters) -> float:
  """Of all noise from its law, at most; (1 + e^epsilon) times it is delta."""
  if parameters.noise == 'joint':
    return joint_law(parameters).total_variation
  return num_nodes(parameters) * contributions(parameters).total_variation


def deal(parameters: Parameters, source: prg.Source) -> list[bytes]:
  """The dealer's messages to the servers: keys, with a mark in front."""
  mark = source(MARK_BYTES)
  return [mark + keys.tobytes()
          for keys in joint_law(parameters).deal(source=source)]


def dealt_bytes(parameters: Parameters) -> int:
  """Length of each; 0 where there is no dealer."""
  if parameters.noise != 'joint':
    return 0
  law = joint_law(parameters)
  return MARK_BYTES + law.num_keys * -(-law.bits // law.num_keys // 8)


def reshare(server: int, parameters: Parameters, mesh: Links,
            values: np.ndarray, source: prg.Source = prg.system) -> np.ndarray:
  """A share of the sum of what all servers have, [classes, M] each.

  Shares of products are made random by it, too (`OuterProductScheme`).
  """
  scheme = parameters.build_scheme()
  shares = scheme.share_values(values, source=source)
  parts = {peer: wire.pack(share, scheme.answer_bits)
           for peer, share in zip(parameters.servers, shares, strict=True)}
  total = shares[server]
  for peer, part in mesh.exchange(Kind.MASKS, parts).items():
    try:
      total = scheme.add(total, wire.unpack_shares(scheme, part, values.shape))
    except ValueError as error:
      raise Fault(peer, f'sent {error}') from None
  return total


def coin(server: int, parameters: Parameters, mesh: Links,
         source: prg.Source = prg.system) -> bytes:
  """32 bytes that all servers toss together, and none decides.

  Raises:
    Fault: of a server that reveals another seed than it was committed to.
  """
  mine = source(_SEED_BYTES)
  own = {parameters.servers[server]: joint_noise.commitment(mine, server)}
  committed = own | mesh.exchange(Kind.COMMIT, *own.values())
  revealed = {parameters.servers[server]: mine} | mesh.exchange(
      Kind.REVEAL, mine)
  for number, peer in enumerate(parameters.servers):
    if len(revealed[peer]) != _SEED_BYTES or committed[peer] != (
        joint_noise.commitment(revealed[peer], number)):
      raise Fault(peer, 'revealed another seed than it was committed to')
  return joint_noise.coin([revealed[peer] for peer in parameters.servers],
                          [committed[peer] for peer in parameters.servers])
