"""Gradients of biases and scales: formed, and kept in one array.

A network has many such leaves, each of few numbers. Norms and sums of all of
them by one operation take less time to run, and much less to compile.
"""

from collections.abc import Mapping, Sequence
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import floats
from dpjax.grads import contractions
from dpjax.typing import Array

_LARGEST_LEAF = 2**14


class Bundle(NamedTuple):
  """Gradients of small leaves, one behind the other.

  Attributes:
    numbers: numbers of the leaves.
    shapes: their shapes.
    values: [b, n] float32 gradients of the records.
  """
  numbers: Sequence[int]
  shapes: Sequence[tuple[int, ...]]
  values: Array

  @property
  def sizes(self) -> list[int]:
    """Numbers of entries of the leaves."""
    return [math.prod(shape) for shape in self.shapes]


def of_formed(formed: Mapping[int, Array], count: int) -> Bundle:
  """Returns the small ones of the gradients [b, ...] by leaf.

  Args:
    formed: maps the number of a leaf to the gradients of the records.
    count: b.
  """
  small = {i: each for i, each in formed.items()
           if math.prod(each.shape[1:]) <= _LARGEST_LEAF}
  values = jnp.concatenate(
      [jnp.zeros((count, 0), jnp.float32),
       *(each.reshape((count, math.prod(each.shape[1:])))
         for each in small.values())], 1)
  # Without the barrier XLA might form a gradient twice, with different
  # rounding: once for its norm and once for the sum.
  return Bundle(list(small), [each.shape[1:] for each in small.values()],
                jax.lax.optimization_barrier(values))


def squares(bundle: Bundle) -> Array:
  """Returns upper bounds [b, leaves] of squared norms, for each leaf.

  Squares of small entries may underflow, see `contractions.norms`.
  """
  ends = jnp.asarray([sum(bundle.sizes[:i + 1])
                      for i in range(len(bundle.sizes))], jnp.int32)
  place = jnp.arange(bundle.values.shape[1], dtype=jnp.int32)
  leaf = jnp.sum(place[:, None] >= ends[None], 1)
  member = leaf[:, None] == jnp.arange(len(ends))[None]
  return (contractions.contract('bn,nl->bl', jnp.square(bundle.values), member)
          + floats.SMALLEST_NORMAL * jnp.asarray(bundle.sizes,
                                                 jnp.float32)[None])


def totals(bundle: Bundle, weights: Sequence[Array],
           values: Array) -> list[Array]:
  """Returns the weighted sum of the gradients of each leaf.

  Args:
    bundle: gives the leaves.
    weights: [b] for each leaf.
    values: those of the bundle, finite.
  """
  parts = (values,) if len({id(each) for each in weights}) == 1 else (
      jnp.split(values, _starts(bundle), 1))
  sums = jnp.concatenate([contractions.weighted_sum(weight, part)
                          for weight, part in zip(weights, parts)])
  return [part.reshape(shape) for part, shape in zip(
      jnp.split(sums, _starts(bundle)), bundle.shapes, strict=True)]


def _starts(bundle: Bundle) -> list[int]:
  """Returns where each leaf but the first begins."""
  return [sum(bundle.sizes[:i]) for i in range(1, len(bundle.sizes))]
