"""What is known of the entries of an array before it is computed.

For each entry: which records it may read, a number that stands for the
expression that gives it, and its value where that is known. Arrays of these
are broadcast views wherever entries are alike, so that large activations cost
little.
"""

from collections.abc import Callable, Sequence
import functools
import math
from typing import Any, NamedTuple
import zlib

import jax
import jax.numpy as jnp
import numpy as np

UNKNOWN = np.uint32(1 << 31)
"""Bit of an entry that reads no record and whose value is not known."""

MAX_RECORDS = 31

# Entries of an array up to which each has a code of its own.
_MAX_CODES = 2**16
# Of splitmix64, Steele et al. 2014.
_STEP, _FIRST, _SECOND = (np.uint64(0x9e3779b97f4a7c15),
                          np.uint64(0xbf58476d1ce4e5b9),
                          np.uint64(0x94d049bb133111eb))


class Entries(NamedTuple):
  """The entries of one array.

  Attributes:
    reads: uint32, the array's shape; bit i: the entry may depend on record i.
    codes: uint64, the array's shape; how the entry is computed if all records
      are equal. Entries of equal codes are computed alike from the same.
    value: integers or booleans, the array's shape, right where `reads` is 0;
      None if no value is known.
  """
  reads: np.ndarray
  codes: np.ndarray
  value: np.ndarray | None = None

  def known(self) -> np.ndarray | None:
    """Returns the value if that of all entries is known, else None."""
    if self.value is None or np.any(narrowed(self.reads)):
      return None
    return self.value


def moved(entries: Entries, move: Callable[[np.ndarray], np.ndarray]
          ) -> Entries:
  """Returns the entries in other places.

  Args:
    entries: of one array.
    move: rearranges an array of any type.
  """
  return Entries(*(None if each is None else move(each) for each in entries))


def narrowed(array: np.ndarray) -> np.ndarray:
  """Returns the array with axes along which it is broadcast cut to size 1."""
  return array[tuple(slice(None, 1) if stride == 0 else slice(None)
                     for stride in array.strides)]


def of_constant(value: Any, number: int = 0) -> Entries:
  """Returns the entries of an array that is known, or traced elsewhere.

  Args:
    value: an array, a number or typed keys. What is traced counts as public
      and different everywhere.
    number: of its own, if it is traced.
  """
  if isinstance(value, jax.core.Tracer):
    return of_public(value.shape, number)
  if isinstance(value, jax.Array) and jnp.issubdtype(
      value.dtype, jax.dtypes.prng_key):
    words = of_constant(jax.random.key_data(value))
    return reduced(words, tuple(range(value.ndim, words.codes.ndim)), 'key')
  value = np.asarray(value)
  # Of the types beyond numpy all are floating.
  exact = value.dtype.kind in 'biu'
  return Entries(np.broadcast_to(np.uint32(0), value.shape),
                 _codes_of(value), value if exact else None)


def of_public(shape: Sequence[int], number: int) -> Entries:
  """Returns the entries of a parameter: they read no record, all different.

  Of a large one only those along the first axis are different.

  Args:
    shape: of it.
    number: of its own.
  """
  shape = tuple(shape)
  distinct = shape if math.prod(shape) <= _MAX_CODES else (
      *shape[:1], *(1 for _ in shape[1:]))
  codes = _mixed(np.arange(math.prod(distinct), dtype=np.uint64)
                 + constant('public', number)).reshape(distinct)
  return Entries(np.broadcast_to(np.uint32(0), shape),
                 np.broadcast_to(codes, shape))


def of_records(shape: Sequence[int], number: int) -> Entries:
  """Returns the entries of features or labels [b, ...] of b equal records.

  Args:
    shape: of them.
    number: of their own.
  """
  one = of_public((1, *shape[1:]), number)
  bits = np.left_shift(np.uint32(1), np.arange(shape[0], dtype=np.uint32))
  return Entries(
      np.broadcast_to(bits.reshape((-1,) + (1,) * (len(shape) - 1)), shape),
      np.broadcast_to(one.codes, shape))


def combined(parts: Sequence[Entries], shape: Sequence[int],
             name: Any) -> Entries:
  """Returns entries each of which is computed of those in its place.

  Args:
    parts: of arrays that broadcast to `shape`, at least one.
    shape: of the result.
    name: of the operation.
  """
  reads = functools.reduce(np.bitwise_or,
                           (narrowed(part.reads) for part in parts))
  codes = constant(name)
  for number, part in enumerate(parts):
    codes = codes + narrowed(part.codes) * constant(name, number)
  return Entries(np.broadcast_to(reads, shape), np.broadcast_to(codes, shape))


def reduced(entries: Entries, axes: Sequence[int], name: Any = 'reduce',
            keepdims: bool = False) -> Entries:
  """Returns entries each of which is computed of all along some axes.

  Args:
    entries: of one array.
    axes: of it.
    name: of the operation.
    keepdims: leave axes of size 1.
  """
  axes = tuple(int(axis) for axis in axes)
  reads, codes = entries.reads, entries.codes
  for axis in axes:
    size, codes = codes.shape[axis], narrowed(codes)
    weights = _weights(name, size)
    if codes.shape[axis] != size:
      weights = np.sum(weights, keepdims=True)
    codes = np.sum(codes * _along(weights, axis, codes.ndim), axis,
                   dtype=np.uint64, keepdims=True)
    reads = np.bitwise_or.reduce(narrowed(reads), axis, keepdims=True)
  shape = tuple(1 if axis in axes else size
                for axis, size in enumerate(entries.codes.shape))
  whole = Entries(np.broadcast_to(reads, shape), np.broadcast_to(codes, shape))
  return whole if keepdims else moved(whole, lambda a: np.squeeze(a, axes))


def spread(entries: Entries, shape: Sequence[int],
           axes: Sequence[int]) -> Entries:
  """Returns entries broadcast to `shape`, computed unlike along the axes.

  Args:
    entries: of an array that broadcasts to `shape`.
    shape: of the result.
    axes: along which expressions differ.
  """
  codes = narrowed(entries.codes)
  for axis in axes:
    codes = codes + _along(_weights(f'{axis}', shape[axis]), axis, len(shape))
  return Entries(np.broadcast_to(entries.reads, shape),
                 np.broadcast_to(codes, shape))


def with_value(entries: Entries, value: np.ndarray) -> Entries:
  """Returns the entries with a value, the same code wherever it is the same.

  Args:
    entries: of one array.
    value: broadcasts to it, right where no record is read.
  """
  codes = np.where(narrowed(entries.reads) == 0, _codes_of(value),
                   narrowed(entries.codes))
  shape = entries.reads.shape
  return Entries(entries.reads, np.broadcast_to(codes, shape),
                 np.broadcast_to(value, shape))


def comparable(parts: Sequence[Entries]) -> list[Entries]:
  """Returns all with values if one has any: zeros that are marked unknown."""
  if all(part.value is None for part in parts):
    return list(parts)
  return [part if part.value is not None else Entries(
      np.broadcast_to(narrowed(part.reads) | UNKNOWN, part.reads.shape),
      part.codes, np.broadcast_to(np.int32(0), part.reads.shape))
          for part in parts]


@functools.lru_cache(maxsize=None)
def constant(*name: Any) -> np.ndarray:
  """Returns an odd pseudo-random number [] of this name."""
  words = [zlib.crc32(f'{salt}{name}'.encode()) for salt in 'ab']
  return np.asarray(words[0] << 32 | words[1] | 1, np.uint64)


@functools.lru_cache(maxsize=256)
def _weights(name: Any, size: int) -> np.ndarray:
  """Returns odd pseudo-random numbers [size], which tell places apart."""
  return _mixed(np.arange(size, dtype=np.uint64) + constant('weights', name)
                ) | np.uint64(1)


def _along(values: np.ndarray, axis: int, ndim: int) -> np.ndarray:
  return values.reshape((-1,) + (1,) * (ndim - 1 - axis))


def _codes_of(value: np.ndarray) -> np.ndarray:
  """Codes of values; of a large array those of slices along its first axis."""
  if value.size > _MAX_CODES and value.ndim:
    rows = [zlib.crc32(np.ascontiguousarray(row).view(np.uint8))
            for row in value.reshape((value.shape[0], -1))]
    codes = _along(np.asarray(rows, np.uint64), 0, value.ndim)
  elif value.dtype.kind == 'c':
    codes = (value.real.astype(np.float64).view(np.uint64)
             + _mixed(value.imag.astype(np.float64).view(np.uint64)))
  elif value.dtype.kind in 'biu':
    codes = value.astype(np.uint64)
  else:
    codes = value.astype(np.float64).view(np.uint64)
  return np.broadcast_to(_mixed(np.asarray(codes)), value.shape)


def _mixed(codes: np.ndarray) -> np.ndarray:
  """The finalizer of splitmix64: other numbers far from these."""
  codes = codes + _STEP
  codes = (codes ^ (codes >> np.uint64(30))) * _FIRST
  codes = (codes ^ (codes >> np.uint64(27))) * _SECOND
  return codes ^ (codes >> np.uint64(31))
