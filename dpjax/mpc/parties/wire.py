"""Encoding of integers in payloads, with as few bits as they need."""

import numpy as np

from dpjax.mpc import packing
from dpjax.mpc.scheme import Scheme


def pack(values: np.ndarray, bits: int) -> bytes:
  """Packs integers [...] below 2^bits one after the other."""
  return packing.pack([(values.reshape(1, -1).astype(np.uint64),
                        bits)]).tobytes()


def unpack(data: bytes, shape: tuple[int, ...], bits: int) -> np.ndarray:
  """Unpacks integers of this shape, uint64; ValueError for a wrong length."""
  count = int(np.prod(shape))
  row = np.frombuffer(data, np.uint8)[np.newaxis]
  (numbers,), has_padding = packing.unpack(row, [(count, bits)])
  if has_padding.any():
    raise ValueError('nonzero padding bits after the end of the numbers')
  return numbers.reshape(shape)


def unpack_shares(scheme: Scheme, data: bytes,
                  shape: tuple[int, ...]) -> np.ndarray:
  """Unpacks shares of this shape; ValueError if one is out of range."""
  shares = unpack(data, shape, scheme.answer_bits)
  if scheme.modulus < 2**64 and (shares >= np.uint64(scheme.modulus)).any():
    raise ValueError(f'a share that is not below {scheme.modulus}')
  return shares


def point_bits(num_thresholds: int) -> int:
  """Returns the bits of a threshold's index, ceil(log2 N)."""
  return (num_thresholds - 1).bit_length()


def unpack_points(data: bytes, count: int, num_thresholds: int) -> np.ndarray:
  """Unpacks indices of thresholds [count]; ValueError if one is not below N."""
  points = unpack(data, (count,), point_bits(num_thresholds)).astype(np.int64)
  if points.max(initial=0) >= num_thresholds:
    raise ValueError(f'threshold {points.max()}, but the last one is '
                     f'{num_thresholds - 1}')
  return points
