"""Whole numbers in payloads: as many bits as they need, nothing around them."""

import numpy as np

from dpjax.mpc import packing
from dpjax.mpc.scheme import Scheme


def pack(values: np.ndarray, bits: int) -> bytes:
  """Whole numbers [...] below 2^bits, one after the other."""
  return packing.pack([(values.reshape(1, -1).astype(np.uint64),
                        bits)]).tobytes()


def unpack(data: bytes, shape: tuple[int, ...], bits: int) -> np.ndarray:
  """What `pack` packed, uint64; ValueError for another length."""
  count = int(np.prod(shape))
  row = np.frombuffer(data, np.uint8)[np.newaxis]
  (found,), overfull = packing.unpack(row, [(count, bits)])
  if overfull.any():
    raise ValueError('bits after the end of the numbers')
  return found.reshape(shape)


def unpack_shares(scheme: Scheme, data: bytes,
                  shape: tuple[int, ...]) -> np.ndarray:
  """Shares of this shape; ValueError for what is none."""
  found = unpack(data, shape, scheme.answer_bits)
  if scheme.modulus < 2**64 and (found >= np.uint64(scheme.modulus)).any():
    raise ValueError(f'a share that is not below {scheme.modulus}')
  return found


def point_bits(num_thresholds: int) -> int:
  """ceil(log2 N)."""
  return (num_thresholds - 1).bit_length()


def unpack_points(data: bytes, count: int, num_thresholds: int) -> np.ndarray:
  """Thresholds [count] from 0; ValueError for what is none of N."""
  points = unpack(data, (count,), point_bits(num_thresholds)).astype(np.int64)
  if points.max(initial=0) >= num_thresholds:
    raise ValueError(f'threshold {points.max()} of {num_thresholds}')
  return points
