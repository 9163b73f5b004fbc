"""Noise of all thresholds, drawn once, that nobody knows and shares add up to.

Draft.
"""

from collections.abc import Callable
import fractions
import hashlib
import hmac
import os
import secrets

import numpy as np

from dpjax.mpc import prg
from dpjax.mpc.parties import wire
from dpjax.mpc.parties.channel import Fault, Kind
from dpjax.mpc.parties.links import Links
from dpjax.mpc.parties.parameters import Parameters
from dpjax.privacy import exact

Draw = Callable[[int, Parameters, Links, bytes, bytes | None], np.ndarray]
"""(server, parameters, links, coin, dealt keys) -> share [classes, N]."""


def dealt_bytes(parameters):
  return 100


def deal(parameters, source):
  return [source(100) for _ in range(parameters.num_servers)]


def _curve(parameters: Parameters, nodes: np.ndarray) -> np.ndarray:
  """Sums [classes, N] of the nodes [classes, 2 N' - 1] above each threshold."""
  num_thresholds = parameters.num_thresholds
  total, place, width = 0, 0, 1
  while True:
    count = -(-num_thresholds // width)
    level = nodes[:, place:place + count]
    total = total + np.repeat(level, width, 1)[:, :num_thresholds]
    place, width = place + count, 2 * width
    if count == 1:
      return total


def num_nodes(num_thresholds: int) -> int:
  """Of the dyadic tree over N thresholds."""
  depth = (num_thresholds - 1).bit_length()
  return sum(-(-num_thresholds // 2**level) for level in range(depth + 1))


def contributions(server: int, parameters: Parameters, mesh: Links, seed: bytes,
                  dealt: bytes | None) -> np.ndarray:
  """Each server draws noise, and shares it."""
  del seed, dealt
  scale = fractions.Fraction(parameters.sensitivity) / fractions.Fraction(
      str(parameters.epsilon))
  shape = (parameters.num_classes, num_nodes(parameters.num_thresholds))
  nodes = np.array([exact.discrete_laplace(scale, secrets.randbelow)
                    for _ in range(np.prod(shape))]).reshape(shape)
  return reshare(server, parameters, mesh, _curve(parameters, nodes))


def reshare(server: int, parameters: Parameters, mesh: Links,
            values: np.ndarray, source: prg.Source = prg.system) -> np.ndarray:
  """A share of the sum of the values of all servers, each [classes, N]."""
  scheme = parameters.build_scheme()
  shares = scheme.share_values(values, source)
  parts = {peer: wire.pack(share, scheme.answer_bits)
           for peer, share in zip(parameters.servers, shares, strict=True)}
  total = shares[server]
  for peer, part in mesh.exchange(Kind.MASKS, parts).items():
    try:
      total = scheme.add(total, wire.unpack_shares(scheme, part, values.shape))
    except ValueError as error:
      raise Fault(peer, f'sent {error}') from None
  return total


def coin(mesh: Links, source=os.urandom) -> bytes:
  """32 bytes that all servers draw together.

  Each is committed to its part before it sees another's, so that one honest
  part makes the whole uniform.
  """
  mine = source(32)
  commit = lambda seed: hashlib.sha256(b'commit' + seed).digest()
  committed = mesh.exchange(Kind.COMMIT, commit(mine))
  revealed = mesh.exchange(Kind.REVEAL, mine)
  for peer, seed in revealed.items():
    if len(seed) != 32 or not hmac.compare_digest(commit(seed),
                                                  committed[peer]):
      raise Fault(peer, 'revealed another seed than it was committed to')
  return hashlib.sha256(b''.join(sorted([mine, *revealed.values()]))).digest()


draw = contributions
