"""Bit packing of integers into the owners' messages.

Each row is the message of one owner. Integers follow each other without gaps,
most significant bit first. The bits that fill up the last byte are zero.
"""

from collections.abc import Sequence

import numpy as np

_ROWS = 2048  # rows handled at once; bounds memory


def num_bytes(bits: int) -> int:
  """Returns the number of bytes that hold this many bits."""
  return -(-bits // 8)


def pack(fields: Sequence[tuple[np.ndarray, int]]) -> np.ndarray:
  """Packs fields into rows.

  Args:
    fields: pairs (values [n, m] uint64, number of bits of each value).

  Returns:
    Rows [n, bytes] uint8.
  """
  unit = _unit([bits for _, bits in fields])
  rows = len(fields[0][0])
  length = num_bytes(sum(values.shape[1] * bits for values, bits in fields))
  packed = np.empty((rows, length), np.uint8)
  for start in range(0, rows, _ROWS):
    part = slice(start, start + _ROWS)
    digits = np.concatenate([_digits(values[part], bits, unit)
                             for values, bits in fields], 1)
    packed[part] = digits if unit == 8 else np.packbits(digits, axis=1)
  return packed


def unpack(packed: np.ndarray, layout: Sequence[tuple[int, int]]
           ) -> tuple[list[np.ndarray], np.ndarray]:
  """Unpacks rows into fields; the inverse of `pack`.

  Args:
    packed: rows [n, bytes] uint8.
    layout: for each field (m, number of bits of each value).

  Returns:
    The fields [n, m] uint64, and which rows [n] have nonzero padding bits.

  Raises:
    ValueError: if rows have another length.
  """
  bits = sum(count * size for count, size in layout)
  if packed.dtype != np.uint8 or packed.shape[1:] != (num_bytes(bits),):
    raise ValueError(f'messages must be rows of {num_bytes(bits)} bytes, got '
                     f'{packed.dtype} of shape {packed.shape}')
  unit = _unit([size for _, size in layout])
  fields = [np.empty((len(packed), count), np.uint64) for count, _ in layout]
  for start in range(0, len(packed), _ROWS):
    part, place = slice(start, start + _ROWS), 0
    digits = packed[part] if unit == 8 else np.unpackbits(packed[part], axis=1)
    for field, (count, size) in zip(fields, layout, strict=True):
      end = place + count * size // unit
      field[part] = _numbers(digits[:, place:end], size, unit)
      place = end
  spare = 8 * num_bytes(bits) - bits
  # Padding must be zero: a message has exactly one encoding.
  return fields, (packed[:, -1] & ((1 << spare) - 1)) != 0


def refuse_rows(bad: np.ndarray, *, first: int = 0) -> None:
  """Raises a ValueError for the first bad row, numbered from `first`."""
  if bad.any():
    raise ValueError(f'message {first + int(np.argmax(bad))} has a number out '
                     'of range or nonzero padding bits after its end')


def _unit(sizes: list[int]) -> int:
  """Returns the unit of packing: 8 bits if all sizes are whole bytes, else 1.
  """
  return 1 if any(size % 8 for size in sizes) else 8


def _digits(values: np.ndarray, bits: int, unit: int) -> np.ndarray:
  """Returns the low bits of values [n, m] in units, uint8 [n, m bits / unit].
  """
  # Big-endian bytes have the most significant bits first, as messages do.
  digits = values.astype('>u8')[..., np.newaxis].view(np.uint8)
  if unit == 1:
    digits = np.unpackbits(digits, axis=-1)
  return digits[..., (64 - bits) // unit:].reshape(
      len(values), values.shape[1] * bits // unit)


def _numbers(digits: np.ndarray, bits: int, unit: int) -> np.ndarray:
  """Returns the uint64 values [n, m] of units; the inverse of `_digits`."""
  count = digits.shape[1] * unit // bits
  whole = np.zeros((len(digits), count, 64 // unit), np.uint8)
  whole[..., (64 - bits) // unit:] = digits.reshape(
      len(digits), count, bits // unit)
  if unit == 1:
    whole = np.packbits(whole, axis=-1)
  return whole.view('>u8')[..., 0].astype(np.uint64)
