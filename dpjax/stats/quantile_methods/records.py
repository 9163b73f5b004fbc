"""Sorts and pads records between public bounds, and measures their gaps.

Arrays are padded to one of a few lengths, so that a sweep over n compiles only
a few programs. Padding holds the upper bound: the intervals between such
entries have width 0 and are never chosen.
"""

from typing import cast, NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.typing import Array, ArrayLike


class Records(NamedTuple):
  """Sorted and padded records of one data set.

  Attributes:
    ordered: [capacity] float64, sorted; from `count` on, the upper bound.
    count: n, int32 scalar; PRIVATE under ADD_OR_REMOVE_ONE, else public.
    lower: public lower bound, float64 scalar.
    upper: public upper bound, float64 scalar.
  """
  ordered: Array
  count: Array  # type: ignore[assignment]  # Hides the method of tuples.
  lower: Array
  upper: Array


def capacity(num_examples: int) -> int:
  """Returns the padded length for n records: at most n / 8 more, at least 32.

  It is a multiple of 2^k, from 8 to 15 times it.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  # Steps grow with n, so that there are few lengths and little padding.
  step = max(8, 2**(max(1, num_examples - 1).bit_length() - 4))
  return max(32, -(-num_examples // step) * step)


def of(data: ArrayLike, lower: ArrayLike, upper: ArrayLike,
       length: int | None = None) -> Records:
  """Returns records [n] sorted and padded; jittable, with 64-bit types.

  Each record is clipped to the bounds and NaN becomes the lower bound. Every
  record is treated separately, so that neighbours stay neighbours.

  Args:
    data: [n] records.
    lower: public lower bound.
    upper: public upper bound, above `lower`.
    length: padded length, at least n; None for n.
  """
  lower, upper = (jnp.asarray(bound, jnp.float64) for bound in (lower, upper))
  values = jnp.asarray(data, jnp.float64)
  values = jnp.clip(jnp.where(jnp.isnan(values), lower, values), lower, upper)
  spare = (length or values.size) - values.size
  if values.ndim != 1 or not values.size or spare < 0:
    raise ValueError(f'data must be a sequence of 1 to {length} records, got '
                     f'an array of shape {values.shape}')
  ordered = jnp.concatenate([jnp.sort(values), jnp.full([spare], upper)])
  return Records(ordered, jnp.int32(values.size), lower, upper)


def on_host(ordered: np.ndarray, count: int, lower: float,
            upper: float) -> Records:
  """Returns sorted and padded records as NumPy arrays, see `Records`.

  Samplers take them as they are; JAX arrays would be made on a device first.
  """
  return Records(*cast(tuple[Array, Array, Array, Array], (
      ordered, np.int32(count), np.float64(lower), np.float64(upper))))


def padded(data: np.ndarray, lower: float, upper: float) -> Records:
  """Returns what `of` does, by NumPy and padded to the length of `capacity`.

  Sorting is faster there, and every n of one capacity uses the same program.
  """
  errors.check_range(lower, upper)
  values = np.asarray(data, np.float64)
  if values.ndim != 1 or not values.size:
    raise ValueError('data must be a sequence of one record or more, got an '
                     f'array of shape {values.shape}')
  full = np.full([capacity(values.size)], upper, np.float64)
  full[:values.size] = np.sort(np.clip(np.where(
      np.isnan(values), lower, values), lower, upper))
  return on_host(full, values.size, lower, upper)


def filled(records: Records) -> Array:
  """Returns which entries [capacity] hold records."""
  places = jnp.arange(records.ordered.size, dtype=jnp.int32)
  return places < records.count


def edges(records: Records) -> Array:
  """Returns the ends [capacity + 2] of the intervals: bounds and records."""
  return jnp.concatenate([records.lower[None], records.ordered,
                          records.upper[None]])


def log_widths(records: Records) -> Array:
  """Returns the log-widths [capacity + 1] of the intervals; -inf between ties.

  A point inside interval i has i records below it.
  """
  return log_of(jnp.diff(edges(records)))


def log_of(widths: Array) -> Array:
  """Returns the logarithms of widths, -inf for 0."""
  # The inner where avoids the logarithm of 0.
  return jnp.where(widths > 0, jnp.log(jnp.where(widths > 0, widths, 1.0)),
                   -jnp.inf)


def inside(records: Records, interval: Array, fraction: Array) -> Array:
  """Returns the points [...] that divide intervals [...] at these fractions."""
  return between(edges(records), interval, fraction)


def between(edges: Array, interval: Array, fraction: Array) -> Array:
  """Returns the points that divide intervals between any sorted edges."""
  start, end = edges[interval], edges[interval + 1]
  # Rounding must not move a point past the end of its interval.
  return jnp.clip(start + fraction * (end - start), start, end)


def empirical(records: Records, probs: ArrayLike) -> Array:
  """Returns X_(ceil(n p)) [m], the quantiles of the records, NOT private."""
  product = jnp.asarray(probs, jnp.float64) * records.count.astype(jnp.float64)
  rank = quantile_levels.ceil_rank(product).astype(jnp.int32) - 1
  return records.ordered[jnp.clip(rank, 0, records.count - 1)]


def separated(records: Records, noise: Array, margin: Array) -> Records:
  """Returns records with added noise, sorted again, between wider bounds.

  If the noise is exchangeable and independent of the records, any release from
  these has the guarantee of the same release from the original records.

  Args:
    records: the records to separate.
    noise: [capacity], one value for each; only the first `count` are used.
    margin: by how much the bounds are widened; noisy records are clipped to the
      wider bounds.
  """
  lower, upper = records.lower - margin, records.upper + margin
  noisy = jnp.clip(records.ordered + noise, lower, upper)
  # Noise on the padding is dropped, so it stays at the (new) upper bound.
  ordered = jnp.sort(jnp.where(filled(records), noisy, upper))
  return Records(ordered, records.count, lower, upper)
