"""Secret-shared noise for all released numbers, drawn once per study.

Discrete Laplace noise of dyadic nodes or tree nodes (`nodes`), drawn in one of
two ways:

* joint: two servers and a dealer; the noise has the curator's distribution, and
  no party knows any of it (`joint_noise`).
* contributions: each server draws noise and shares it with the others. The
  noise of all but `num_colluding` servers has the curator's distribution; that
  of the others is extra noise (`noise`). A server knows its own part.

With dyadic nodes and public n, the last rank is n and gets no noise.
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
from dpjax.mpc.parties.channel import Fault
from dpjax.mpc.parties.channel import Kind
from dpjax.mpc.parties.enrolment import MARK_BYTES
from dpjax.mpc.parties.links import Links
from dpjax.mpc.parties.parameters import Parameters

Draw = Callable[[int, Parameters, Links, bytes, bytes | None], np.ndarray]
"""Function (server, parameters, links, coin, dealt keys) -> share [classes, M].
"""

_SEED_BYTES = 32


def draw(server: int, parameters: Parameters, mesh: Links, toss: bytes,
         dealt: bytes | None, *, source: prg.Source = prg.system) -> np.ndarray:
  """Returns a server's share [classes, M] of the noise of all released numbers.

  Args:
    server: number of this server.
    parameters: parameters of the study.
    mesh: links to the other servers.
    toss: joint random bytes from `coin`.
    dealt: the dealer's message; None if there is none.
    source: randomness of this server's contribution.

  Raises:
    Fault: if another party fails to do its part.
  """
  if parameters.noise == 'joint':
    if dealt is None:
      raise Fault('dealer', 'has sent no keys for the noise')
    mark, keys = dealt[:MARK_BYTES], dealt[MARK_BYTES:]
    # Equal marks show that both servers hold keys of the same dealing.
    if any(other != mark for other in mesh.exchange(Kind.MASKS, mark).values()):
      raise Fault('dealer', 'has given keys that do not belong together')
    distribution = joint_distribution(parameters)
    shares = distribution.share(server, np.frombuffer(keys, np.uint8).reshape(
        distribution.num_keys, -1), toss)
    return released_noise(parameters, shares) & additive.mask(
        parameters.value_bits)
  own = contributions(parameters).draw(source(_SEED_BYTES),
                                       num_nodes(parameters))
  return reshare(server, parameters, mesh, released_noise(parameters, own),
                 source)


def scale(parameters: Parameters) -> fractions.Fraction:
  """Returns the scale of the curator's noise, sensitivity / epsilon.

  Epsilon is read as the decimal number that is printed: 0.1 is 1/10.
  """
  return parameters.sensitivity / fractions.Fraction(str(parameters.epsilon))


def num_rows(parameters: Parameters) -> int:
  """Returns how many ranks of a curve get noise."""
  # With two labels the totals are secret, so all ranks get noise.
  known = parameters.knows_total and parameters.num_classes == 1
  return parameters.num_thresholds - known


def num_nodes(parameters: Parameters) -> int:
  """Returns how many nodes of all curves together get noise."""
  if parameters.shape:
    return parameters.num_classes * num_released(parameters)
  return parameters.num_classes * sum(
      nodes.dyadic_sizes(num_rows(parameters), root=parameters.root))


def num_released(parameters: Parameters) -> int:
  """Returns M, the numbers released per class: N ranks or all tree counts."""
  if parameters.shape:
    return sum(nodes.tree_sizes(parameters.num_thresholds, parameters.shape))
  return parameters.num_thresholds


def released_noise(parameters: Parameters, values: np.ndarray) -> np.ndarray:
  """Returns the noise [classes, M] of the released numbers.

  Args:
    parameters: parameters of the study.
    values: noise of all nodes, [classes x nodes]; plain numbers or shares.
  """
  if parameters.shape:
    return values.reshape(parameters.num_classes, -1)
  rows = num_rows(parameters)
  summed = nodes.dyadic_rows(
      values.reshape(parameters.num_classes, -1), np.arange(rows), rows,
      root=parameters.root)
  return np.pad(summed, [(0, 0), (0, parameters.num_thresholds - rows)])


def joint_distribution(parameters: Parameters) -> joint_noise.JointNoise:
  """Returns the noise of all nodes as a dealer and two servers draw it."""
  return joint_noise.JointNoise(
      scale=scale(parameters), count=num_nodes(parameters),
      value_bits=parameters.value_bits)


def contributions(parameters: Parameters) -> noise.Contributions:
  """Returns the noise of one node as a sum of the servers' contributions."""
  return noise.Contributions(
      scale=scale(parameters), num_parties=parameters.num_servers,
      num_colluding=parameters.num_colluding)


def released_variance(parameters: Parameters) -> float:
  """Returns the variance of the noise of a released number that gets noise."""
  levels = 1 if parameters.shape else len(
      nodes.dyadic_sizes(num_rows(parameters), root=parameters.root))
  return levels * (noise.variance(scale(parameters))
                   if parameters.noise == 'joint' else
                   contributions(parameters).variance)


def total_variation(parameters: Parameters) -> float:
  """Bounds the total variation of all noise from its ideal distribution.

  The release is (epsilon, delta)-DP with delta = (1 + e^epsilon) times it.
  """
  if parameters.noise == 'joint':
    return joint_distribution(parameters).total_variation
  return num_nodes(parameters) * contributions(parameters).total_variation


def deal(parameters: Parameters, source: prg.Source) -> list[bytes]:
  """Returns the dealer's messages to the servers: a common mark, then keys."""
  mark = source(MARK_BYTES)
  return [mark + keys.tobytes()
          for keys in joint_distribution(parameters).deal(source=source)]


def dealt_bytes(parameters: Parameters) -> int:
  """Returns the length of a dealer's message; 0 if there is no dealer."""
  if parameters.noise != 'joint':
    return 0
  joint = joint_distribution(parameters)
  return MARK_BYTES + joint.num_keys * -(-joint.bits // joint.num_keys // 8)


def reshare(server: int, parameters: Parameters, mesh: Links,
            values: np.ndarray, source: prg.Source = prg.system) -> np.ndarray:
  """Returns this server's fresh share of the sum of all servers' values.

  Adding it also makes shares of products uniformly random, as
  `OuterProductScheme` requires.

  `values` are this server's integers [classes, M]; other Args as for `draw`.

  Raises:
    Fault: if a server sends malformed shares.
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
  """Tosses 32 bytes jointly with all servers; none of them can bias the result.

  Raises:
    Fault: if a server reveals another seed than it committed to.
  """
  mine = source(_SEED_BYTES)
  own = {parameters.servers[server]: joint_noise.commitment(mine, server)}
  committed = own | mesh.exchange(Kind.COMMIT, *own.values())
  # No server reveals its seed before it has all commitments.
  revealed = {parameters.servers[server]: mine} | mesh.exchange(
      Kind.REVEAL, mine)
  for number, peer in enumerate(parameters.servers):
    if len(revealed[peer]) != _SEED_BYTES or committed[peer] != (
        joint_noise.commitment(revealed[peer], number)):
      raise Fault(peer, 'revealed another seed than it committed to')
  return joint_noise.coin([revealed[peer] for peer in parameters.servers],
                          [committed[peer] for peer in parameters.servers])
