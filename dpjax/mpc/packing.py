"""Messages of owners: whole numbers of few bits, one after the other.

A row is the message of one owner; bits that fill the last byte are zero.
"""

from collections.abc import Sequence

import numpy as np

_ROWS = 2048


def num_bytes(bits: int) -> int:
  """Bytes that hold so many bits."""
  return -(-bits // 8)


def pack(fields: Sequence[tuple[np.ndarray, int]]) -> np.ndarray:
  """Rows [n, bytes] uint8 of fields (values [n, m] uint64, bits of each).

  The most significant bit comes first.
  """
  rows = len(fields[0][0])
  length = num_bytes(sum(values.shape[1] * bits for values, bits in fields))
  packed = np.empty((rows, length), np.uint8)
  for start in range(0, rows, _ROWS):
    part = slice(start, start + _ROWS)
    packed[part] = np.packbits(
        np.concatenate([_to_bits(values[part], bits)
                        for values, bits in fields], 1), axis=1)
  return packed


def unpack(packed: np.ndarray,
           layout: Sequence[tuple[int, int]]) -> list[np.ndarray]:
  """The fields [n, m] uint64 of rows; layout has (m, bits) for each.

  Raises:
    ValueError: for rows of another length, or whose last byte is not filled
      with zeros; the first such row is named.
  """
  bits = sum(count * size for count, size in layout)
  if packed.dtype != np.uint8 or packed.ndim != 2 or (
      packed.shape[1] != num_bytes(bits)):
    raise ValueError(f'messages must be rows of {num_bytes(bits)} bytes, got '
                     f'{packed.dtype} of shape {packed.shape}')
  refuse_rows(overfull(packed, bits), 'has bits after its end')
  fields = [np.empty((len(packed), count), np.uint64) for count, _ in layout]
  for start in range(0, len(packed), _ROWS):
    part = slice(start, start + _ROWS)
    unpacked, place = np.unpackbits(packed[part], axis=1), 0
    for field, (count, size) in zip(fields, layout, strict=True):
      field[part] = _from_bits(unpacked[:, place:place + count * size], count,
                               size)
      place += count * size
  return fields


def overfull(packed: np.ndarray, bits: int) -> np.ndarray:
  """Which rows [n] have other than zeros after so many bits."""
  spare = 8 * num_bytes(bits) - bits
  return (packed[:, -1] & ((1 << spare) - 1)) != 0


def refuse_rows(bad: np.ndarray, what: str) -> None:
  """Raises for the first of the rows [n] that are bad, by its number."""
  if bad.any():
    raise ValueError(f'message {int(np.argmax(bad))} {what}')


def _to_bits(values: np.ndarray, bits: int) -> np.ndarray:
  """[n, m * bits] of zeros and ones."""
  whole = values.astype('>u8')[..., np.newaxis].view(np.uint8)
  unpacked = np.unpackbits(whole, axis=-1)[..., 64 - bits:]
  return unpacked.reshape(len(values), -1)


def _from_bits(unpacked: np.ndarray, count: int, bits: int) -> np.ndarray:
  whole = np.zeros((len(unpacked), count, 64), np.uint8)
  whole[..., 64 - bits:] = unpacked.reshape(len(unpacked), count, bits)
  return np.packbits(whole, axis=-1).view('>u8')[..., 0].astype(np.uint64)
