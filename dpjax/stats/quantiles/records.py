"""Sorted records between public bounds, with room to spare, and their gaps.

Arrays are longer than the number of records, to one of a few lengths, so that a
sweep over n compiles a few programs. Places to spare hold the upper bound: the
intervals between them have width 0 and are never chosen.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats.quantiles import orders
from dpjax.typing import Array


class Records(NamedTuple):
  """Records of an estimator.

  Attributes:
    ordered: [capacity] float64, sorted; from `count` on, the upper bound.
    count: n, int32 scalar; public under REPLACE_ONE.
    lower: public bound, float64 scalar.
    upper: public bound, float64 scalar.
  """
  ordered: Array
  count: Array
  lower: Array
  upper: Array


def capacity(num_examples: int) -> int:
  """The length for so many records: at most an eighth more, or 32.

  A multiple of 2^k from 8 to 15 times it.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  step = max(8, 2**(max(1, num_examples - 1).bit_length() - 4))
  return max(32, -(-num_examples // step) * step)


def of(data: Array, lower: Array, upper: Array,
       length: int | None = None) -> Records:
  """Records [n] as they are used; jittable, with 64-bit types.

  What lies beyond the bounds is clipped to them and NaN becomes the lower one,
  each record by itself, so that neighbours stay neighbours.

  Args:
    data: [n].
    lower: public bound.
    upper: public bound, above `lower`.
    length: of the array, at least n; None for n.
  """
  lower, upper = (jnp.asarray(end, jnp.float64) for end in (lower, upper))
  known = jnp.asarray(data, jnp.float64)
  known = jnp.clip(jnp.where(jnp.isnan(known), lower, known), lower, upper)
  spare = (length or known.size) - known.size
  if known.ndim != 1 or not known.size or spare < 0:
    raise ValueError('data must be a sequence of one record or more and of '
                     f'{length} at most, got an array of shape {known.shape}')
  ordered = jnp.concatenate([jnp.sort(known), jnp.full([spare], upper)])
  return Records(ordered, jnp.int32(known.size), lower, upper)


def padded(data: np.ndarray, lower: float, upper: float) -> Records:
  """The same on the host, by NumPy, to the length of `capacity`.

  Sorting is quicker there, and every n of one capacity compiles the same.
  """
  errors.check_range(lower, upper)
  known = np.asarray(data, np.float64)
  if known.ndim != 1 or not known.size:
    raise ValueError('data must be a sequence of one record or more, got an '
                     f'array of shape {known.shape}')
  full = np.full([capacity(known.size)], upper, np.float64)
  full[:known.size] = np.sort(np.clip(np.where(
      np.isnan(known), lower, known), lower, upper))
  return Records(full, np.int32(known.size), np.float64(lower),
                 np.float64(upper))


def filled(records: Records) -> Array:
  """Which places [capacity] hold records."""
  places = jnp.arange(records.ordered.size, dtype=jnp.int32)
  return places < records.count


def edges(records: Records) -> Array:
  """Ends [capacity + 2] of the intervals: the bounds and all records."""
  return jnp.concatenate([records.lower[None], records.ordered,
                          records.upper[None]])


def log_widths(records: Records) -> Array:
  """Logarithms [capacity + 1] of the widths of intervals; -inf between ties.

  A point inside interval i has i records below it.
  """
  return log_of(jnp.diff(edges(records)))


def log_of(widths: Array) -> Array:
  """Logarithms of widths, -inf of 0."""
  return jnp.where(widths > 0, jnp.log(jnp.where(widths > 0, widths, 1.0)),
                   -jnp.inf)


def inside(records: Records, interval: Array, share: Array) -> Array:
  """The points [...] that divide intervals [...] at shares in [0, 1]."""
  return between(edges(records), interval, share)


def between(ends: Array, interval: Array, share: Array) -> Array:
  """The same, of intervals between any ends in order."""
  start, end = ends[interval], ends[interval + 1]
  # Never beyond an end, whatever the rounding.
  return jnp.clip(start + share * (end - start), start, end)


def empirical(records: Records, probs: Array) -> Array:
  """X_(ceil(n p)) [m], the quantiles without privacy."""
  share = jnp.asarray(probs, jnp.float64) * records.count.astype(jnp.float64)
  place = orders.ceil_rank(share).astype(jnp.int32) - 1
  return records.ordered[jnp.clip(place, 0, records.count - 1)]


def separated(records: Records, noise: Array, margin: Array) -> Records:
  """Records with noise of their own, sorted anew, between wider bounds.

  Whatever the noise is, if it is exchangeable and independent of the records, a
  release from these has the guarantee of the same release from those.

  Args:
    records: what to separate.
    noise: [capacity], one value for each; only the first `count` are used.
    margin: by which the bounds are widened; what lies beyond is clipped.
  """
  lower, upper = records.lower - margin, records.upper + margin
  moved = jnp.clip(records.ordered + noise, lower, upper)
  ordered = jnp.sort(jnp.where(filled(records), moved, upper))
  return Records(ordered, records.count, lower, upper)
