"""Draft: filled in when schemes and noise are there."""

import hashlib
import hmac
import os

import numpy as np

from dpjax.mpc import comparison
from dpjax.mpc import packing
from dpjax.mpc.parties.channel import Fault, Kind
from dpjax.mpc.parties.links import Links
from dpjax.mpc.parties.parameters import Parameters

Draw = object


class Fss:

  def __init__(self, p):
    self.k = p.word_bits
    self.depth = (p.num_thresholds - 1).bit_length()
    self.N = p.num_thresholds
    self.bits = comparison.key_bits(self.depth, self.k)
    self.message_bytes = packing.num_bytes(self.bits)
    self.mask = np.uint64(2**self.k - 1)

  def malformed(self, rows):
    return packing.overfull(rows, self.bits)

  def shares(self, bins, source):
    return [k.to_bytes() for k in comparison.generate(
        bins, np.ones(len(bins), np.uint64), depth=self.depth,
        value_bits=self.k, source=source)]

  def aggregate(self, index, messages, points):
    keys = comparison.from_bytes(messages, party=index, depth=self.depth,
                                 value_bits=self.k)
    s = comparison.sums(keys, None if points is None else points)[:self.N]
    n = len(messages) if index == 0 else 0
    return (np.uint64(n) - s) & self.mask

  def add(self, share, noise):
    return (share + noise) & self.mask

  def combine(self, shares):
    t = sum(shares[1:], shares[0]) & self.mask
    half = np.uint64(2**(self.k - 1))
    return t.astype(np.int64) - np.where(t >= half, 2**self.k, 0)

  def pack_shares(self, s):
    return packing.pack([(s[np.newaxis], self.k)]).tobytes()

  def unpack_shares(self, data, count):
    return packing.unpack(np.frombuffer(data, np.uint8)[np.newaxis],
                          [(count, self.k)])[0][0]


def scheme_of(parameters):
  return Fss(parameters)


def dealt_bytes(parameters):
  return 100


def deal(parameters, source):
  return [source(100) for _ in range(parameters.num_servers)]


def pack_points(points: np.ndarray, num_thresholds: int) -> bytes:
  """Thresholds [B] from 0, each in ceil(log2 N) bits."""
  points = np.asarray(points)
  if points.ndim != 1 or not points.size or points.min() < 0 or (
      points.max() >= num_thresholds):
    raise ValueError(f'points must be thresholds from 0 to '
                     f'{num_thresholds - 1}, got {points}')
  count = points.size.to_bytes(4)
  return count + packing.pack([(points[np.newaxis].astype(np.uint64),
                        (num_thresholds - 1).bit_length())]).tobytes()


def unpack_points(data: bytes, num_thresholds: int) -> np.ndarray:
  """What `pack_points` packed; ValueError if it was something else."""
  count = int.from_bytes(data[:4])
  bits = (num_thresholds - 1).bit_length()
  if not 0 < count <= num_thresholds or (
      len(data) != 4 + packing.num_bytes(count * bits)):
    raise ValueError('asked for thresholds in a form that is none')
  points = packing.unpack(np.frombuffer(data, np.uint8)[np.newaxis, 4:],
                          [(count, bits)])[0][0]
  if points.max() >= num_thresholds:
    raise ValueError(f'asked for threshold {points.max()} of {num_thresholds}')
  return points.astype(np.int64)


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


def draw(index, parameters, mesh, seed, dealt):
  return np.zeros(parameters.num_thresholds, np.uint64)
