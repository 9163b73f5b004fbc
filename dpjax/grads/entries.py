"""Abstract arrays: for each entry, the records on which it may depend.

An entry also has a code, a hash of the expression that computes it, and its
value if that is known without running the program. Where entries are alike the
arrays are broadcast views (of stride 0), so large activations need little time
and memory.
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
"""Bit that marks an entry of unknown value, though it may read no record."""

MAX_RECORDS = 31
"""Most records of a batch: one bit of `Entries.reads` each."""

# Largest array of which each entry has its own code.
_MAX_CODES = 2**16
# Constants of the hash function splitmix64 (Steele et al., 2014).
_STEP, _FIRST, _SECOND = (np.uint64(0x9e3779b97f4a7c15),
                          np.uint64(0xbf58476d1ce4e5b9),
                          np.uint64(0x94d049bb133111eb))


class Entries(NamedTuple):
  """The entries of one array; all fields have the array's shape.

  Attributes:
    reads: uint32; bit i is set if the entry may depend on record i.
    codes: uint64; a hash of the entry's expression, for a batch of equal
      records. Entries with equal codes are equal if all records are equal.
    value: integers or booleans, correct where `reads` is 0; None if no value is
      known.
  """
  reads: np.ndarray
  codes: np.ndarray
  value: np.ndarray | None = None

  def known(self) -> np.ndarray | None:
    """Returns the values if those of all entries are known, else None."""
    if self.value is None or np.any(narrowed(self.reads)):
      return None
    return self.value


def by_field(function: Callable[..., np.ndarray], *parts: Entries) -> Entries:
  """Returns entries whose fields are a function of the fields of some parts.

  Args:
    function: rearranges arrays of any type, one for each part.
    *parts: at least one; either all have values or none has, see `comparable`.
  """
  values = [part.value for part in parts if part.value is not None]
  return Entries(function(*(part.reads for part in parts)),
                 function(*(part.codes for part in parts)),
                 function(*values) if values else None)


def rearranged(entries: Entries,
               move: Callable[[np.ndarray], np.ndarray]) -> Entries:
  """Returns the entries in other places.

  Args:
    entries: entries of one array.
    move: a function that rearranges an array of any type.
  """
  return by_field(move, entries)


def narrowed(array: np.ndarray) -> np.ndarray:
  """Returns the array with its broadcast axes (of stride 0) cut to size 1."""
  return array[tuple(slice(None, 1) if stride == 0 else slice(None)
                     for stride in array.strides)]


def of_constant(value: Any, number: int = 0) -> Entries:
  """Returns the entries of a constant, which read no record.

  Args:
    value: an array, a number or typed keys. A tracer of an outer function
      counts as a public array of unknown, different entries.
    number: identifies a tracer; different for each.
  """
  if isinstance(value, jax.core.Tracer):
    return of_public(value.shape, number)
  if isinstance(value, jax.Array) and jnp.issubdtype(
      value.dtype, jax.dtypes.prng_key):
    words = of_constant(jax.random.key_data(value))
    return reduced(words, tuple(range(value.ndim, words.codes.ndim)), 'key')
  value = np.asarray(value)
  # Only integers and booleans keep a value. Types beyond NumPy's are floats.
  exact = value.dtype.kind in 'biu'
  return Entries(np.broadcast_to(np.uint32(0), value.shape),
                 _codes_of(value), value if exact else None)


def of_public(shape: Sequence[int], number: int) -> Entries:
  """Returns the entries of a parameter, which read no record.

  All entries have different codes; in a large parameter, only entries at
  different places of the first axis.

  Args:
    shape: shape of the parameter.
    number: identifies the parameter; different for each.
  """
  shape = tuple(shape)
  distinct = shape if math.prod(shape) <= _MAX_CODES else (
      *shape[:1], *(1 for _ in shape[1:]))
  codes = _mixed(np.arange(math.prod(distinct), dtype=np.uint64)
                 + constant('public', number)).reshape(distinct)
  return Entries(np.broadcast_to(np.uint32(0), shape),
                 np.broadcast_to(codes, shape))


def of_records(shape: Sequence[int], number: int) -> Entries:
  """Returns the entries of features or labels [b, ...].

  Row i reads record i. The codes of all rows are equal.

  Args:
    shape: shape of the array, [b, ...] with b <= MAX_RECORDS.
    number: identifies the array; different for each.
  """
  # The same codes in all rows: records that are equal give equal results.
  one = of_public((1, *shape[1:]), number)
  bits = np.left_shift(np.uint32(1), np.arange(shape[0], dtype=np.uint32))
  return Entries(
      np.broadcast_to(bits.reshape((-1,) + (1,) * (len(shape) - 1)), shape),
      np.broadcast_to(one.codes, shape))


def combined(parts: Sequence[Entries], shape: Sequence[int],
             name: Any) -> Entries:
  """Returns the entries of an elementwise operation.

  Args:
    parts: operands, at least one; they broadcast to `shape`.
    shape: shape of the result.
    name: name of the operation.
  """
  reads = functools.reduce(np.bitwise_or,
                           (narrowed(part.reads) for part in parts))
  # Weights by operand, so that a - b and b - a have different codes.
  codes = constant(name)
  for number, part in enumerate(parts):
    codes = codes + narrowed(part.codes) * constant(name, number)
  return Entries(np.broadcast_to(reads, shape), np.broadcast_to(codes, shape))


def reduced(entries: Entries, axes: Sequence[int], name: Any = 'reduce',
            keepdims: bool = False) -> Entries:
  """Returns the entries of a reduction over some axes.

  Args:
    entries: entries of the operand.
    axes: to reduce.
    name: name of the operation.
    keepdims: whether to keep the axes, with size 1.
  """
  axes = tuple(int(axis) for axis in axes)
  reads, codes = entries.reads, entries.codes
  for axis in axes:
    size, codes = codes.shape[axis], narrowed(codes)
    # A weighted sum of codes, modulo 2^64, hashes the codes and their order.
    weights = _weights(name, size)
    # Of a broadcast axis only one entry is left: add up its weights instead.
    if codes.shape[axis] != size:
      weights = weights.sum(keepdims=True)
    codes = (codes * _along(weights, axis, codes.ndim)).sum(
        axis, dtype=np.uint64, keepdims=True)
    reads = np.bitwise_or.reduce(narrowed(reads), axis, keepdims=True)
  shape = tuple(1 if axis in axes else size
                for axis, size in enumerate(entries.codes.shape))
  whole = Entries(np.broadcast_to(reads, shape), np.broadcast_to(codes, shape))
  return whole if keepdims else rearranged(whole, lambda a: np.squeeze(a, axes))


def spread(entries: Entries, shape: Sequence[int],
           axes: Sequence[int]) -> Entries:
  """Returns entries broadcast to `shape`, with codes that differ along axes.

  Args:
    entries: entries of an array that broadcasts to `shape`.
    shape: shape of the result.
    axes: along which the operation computes different expressions.
  """
  codes = narrowed(entries.codes)
  for axis in axes:
    codes = codes + _along(_weights(f'{axis}', shape[axis]), axis, len(shape))
  return Entries(np.broadcast_to(entries.reads, shape),
                 np.broadcast_to(codes, shape))


def with_value(entries: Entries, value: np.ndarray) -> Entries:
  """Returns the entries with known values; equal values get equal codes.

  Args:
    entries: entries of one array.
    value: broadcasts to the array; correct where no record is read.
  """
  codes = np.where(narrowed(entries.reads) == 0, _codes_of(value),
                   narrowed(entries.codes))
  shape = entries.reads.shape
  return Entries(entries.reads, np.broadcast_to(codes, shape),
                 np.broadcast_to(value, shape))


def comparable(parts: Sequence[Entries]) -> list[Entries]:
  """Returns parts that either all have values or all have none.

  If some have values, the others get zeros that are marked UNKNOWN.
  """
  if all(part.value is None for part in parts):
    return list(parts)
  return [part if part.value is not None else Entries(
      np.broadcast_to(narrowed(part.reads) | UNKNOWN, part.reads.shape),
      part.codes, np.broadcast_to(np.int32(0), part.reads.shape))
          for part in parts]


@functools.cache
def constant(*name: Any) -> np.ndarray:
  """Returns an odd pseudo-random uint64, a function of the name."""
  words = [zlib.crc32(f'{salt}{name}'.encode()) for salt in 'ab']
  return np.asarray(words[0] << 32 | words[1] | 1, np.uint64)


@functools.lru_cache(maxsize=256)
def _weights(name: Any, size: int) -> np.ndarray:
  """Returns odd pseudo-random numbers [size], one for each place of an axis."""
  return _mixed(np.arange(size, dtype=np.uint64) + constant('weights', name)
                ) | np.uint64(1)


def _along(values: np.ndarray, axis: int, ndim: int) -> np.ndarray:
  """Reshapes [n] so that it broadcasts along one axis of `ndim`."""
  return values.reshape((-1,) + (1,) * (ndim - 1 - axis))


def _codes_of(value: np.ndarray) -> np.ndarray:
  """Returns hashes of values; in a large array one for each row."""
  if value.size > _MAX_CODES and value.ndim:
    rows = [zlib.crc32(np.ascontiguousarray(row).tobytes())
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
  """Returns hashes of numbers, by the finaliser of splitmix64."""
  codes = codes + _STEP
  codes = (codes ^ (codes >> np.uint64(30))) * _FIRST
  codes = (codes ^ (codes >> np.uint64(27))) * _SECOND
  return codes ^ (codes >> np.uint64(31))
