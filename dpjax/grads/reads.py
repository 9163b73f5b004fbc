"""Follows gradients from the operations that read parameters to the leaves.

A dense layer, convolution or embedding (a *site*) reads an array W of
parameters, which is often a leaf, but may be computed from leaves: a transposed
or scaled leaf, a slice, a concatenation, W0 + A B. A record's gradient by W is
sum_t left_t (x) right_t over positions t, and each axis of W belongs to one of
the two factors. Operations on parameters act on single axes, so the gradient by
a leaf has the same form: if W = A B, the gradient by A is X^T (D B^T) and that
by B is (X A)^T D. No gradient of a record is formed on the way.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import math
from typing import Any, NamedTuple

import jax
from jax.extend import core
import jax.numpy as jnp

from dpjax.grads import contractions
from dpjax.grads import jaxprs
from dpjax.grads import lookups
from dpjax.grads import passes
from dpjax.grads import shards
from dpjax.grads import tracing
from dpjax.grads.contractions import Layer
from dpjax.grads.lookups import Table
from dpjax.grads.sites import Site
from dpjax.typing import Array


class NotFollowed(Exception):
  """Raised where a gradient is not a product of two factors; may say why."""


@dataclasses.dataclass(frozen=True, eq=False)
class Axis:
  """An axis of a factor; equal to itself only."""
  size: int


class Factor(NamedTuple):
  """One of the two factors of a gradient.

  Attributes:
    axes: its axes after the first, which runs over positions.
    of: rows [t, k] of the site's operation -> [t, *axes]; None for the rows of
      an embedding, each of which is zero but for a one.
    is_plain: whether `of` only rearranges.
  """
  axes: tuple[Axis, ...]
  of: Callable[[Array], Array] | None
  is_plain: bool


class Read(NamedTuple):
  """What one site adds to the gradients by an array of parameters.

  It is `scale` times sum_t left_t (x) right_t, in the part of the array that
  starts at `starts`, and zero elsewhere.

  Attributes:
    site: number of the site.
    operation: the operation there.
    shape: shape of the array.
    axes: for each axis of the array, that of a factor; None if the part has
      size 1 there. Empty if the operation has several groups or the array is
      stacked; then the array can be rearranged only.
    starts: first entry of the part along each axis.
    left: factor from the input of the operation.
    right: factor from the cotangent of its output.
    scale: a number [], or None for 1.
    chain: equations from a leaf, in order, to an array with the shape and axes
      above. They rearrange entries across factors.
    num_slicing: number of nested loops over whose steps the array is stacked:
      each step reads its own slice.
  """
  site: int
  operation: Layer | Table
  shape: tuple[int, ...]
  axes: tuple[Axis | None, ...]
  starts: tuple[int, ...]
  left: Factor
  right: Factor
  scale: Array | None
  chain: tuple[core.JaxprEqn, ...]
  num_slicing: int

  @property
  def is_stacked(self) -> bool:
    """Whether the array is stacked over the steps of a loop."""
    return self.num_slicing > 0

  def is_sliced(self, shape: tuple[int, ...]) -> bool:
    """Returns whether each step reads one slice of a leaf [*shape] as it is."""
    return self.num_slicing == 1 and self.shape == shape and all(
        each.primitive.name in shards.CASTS for each in self.chain)

  @property
  def is_plain(self) -> bool:
    """Whether its gradient is a rearranged multiple of the site's."""
    return self.left.is_plain and self.right.is_plain

  @property
  def is_whole(self) -> bool:
    """Whether the array can be rearranged only."""
    return len(self.axes) != len(self.shape)

  @property
  def widths(self) -> tuple[int, ...]:
    """Sizes of the part of the array."""
    if self.is_whole:
      return self.shape
    return tuple(1 if axis is None else axis.size for axis in self.axes)

  def restored(self, gradient: Array) -> Array:
    """Converts a gradient by what the site reads to the part of the array.

    It is linear and does not apply `scale`.
    """
    if self.is_whole:  # Nested loops slice one axis each.
      gradient = gradient.reshape(self.shape)
    else:
      gradient = self._part(gradient)
    for equation in reversed(self.chain):
      like = jax.ShapeDtypeStruct(jaxprs.aval(equation.invars[0]).shape,
                                  jnp.float32)
      gradient, = jax.linear_transpose(
          lambda value, own=equation: tracing.bind_any(own, [value])[0], like)(
              gradient)
    return gradient

  def _part(self, gradient: Array) -> Array:
    """Converts a gradient by what the site reads to the part, by factors."""
    own = self.operation.axes
    assert own is not None
    k, n = (math.prod(gradient.shape[i] for i in side) for side in own)
    gradient = gradient.transpose((*own[0], *own[1])).reshape((k, n))
    # A factor's map acts on its axis of the gradient as on one of its rows.
    if self.left.of is not None:
      gradient = self.left.of(gradient.T).reshape((n, -1)).T
    assert self.right.of is not None
    gradient = self.right.of(gradient)
    axes = (*self.left.axes, *self.right.axes)
    gradient = gradient.reshape([axis.size for axis in axes])
    order = [axes.index(axis) for axis in self.axes if axis is not None]
    return gradient.transpose(order).reshape(self.widths)


def at_site(number: int, site: Site) -> Read:
  """Returns what a site adds to the gradient by what it reads.

  Raises:
    NotFollowed: if it is no dense layer, convolution or embedding.
  """
  if len(site.operands) > 1:
    raise NotFollowed(f'{site.name} reads it together with other parameters')
  if _is_complex(site):
    raise NotFollowed(f'{site.name} reads it in complex numbers')
  operation = (contractions.as_layer(site.equation, site.operands[0])
               or lookups.as_table(site.equation, site.operands[0]))
  if operation is None:
    raise NotFollowed(f'{site.name} reads it')
  if not all(site.sliced[0]):
    operation = passes.over_steps(operation, math.prod(
        length for length, sliced in zip(
            site.lengths, site.sliced[0], strict=True) if not sliced))
  shape = jaxprs.aval(site.reads[0]).shape
  if isinstance(operation, Table) and (shape[0] == 1 or site.inputs[0] != 1):
    # Axes of size 1 belong to no factor.
    raise NotFollowed(f'{site.name} reads it')
  num_slicing = sum(site.sliced[0])
  if operation.axes is None or num_slicing:
    plain = Factor((), None, True)
    return Read(number, operation, shape, (), (), plain, plain, None, (),
                num_slicing)
  axes = [Axis(size) for size in shape]
  left, right = (
      Factor(tuple(axes[i] for i in side if shape[i] > 1), _to_shape(
          [shape[i] for i in side if shape[i] > 1]), True)
      for side in operation.axes)
  if isinstance(operation, Table):
    left = left._replace(of=None, axes=(axes[0],))
  return Read(number, operation, shape, tuple(
      axis if axis in (*left.axes, *right.axes) else None for axis in axes),
      (0,) * len(shape), left, right, None, (), 0)


def _to_shape(sizes: Sequence[int]) -> Callable[[Array], Array]:
  """Returns [t, k] -> [t, *sizes]."""
  return lambda rows: rows.reshape((rows.shape[0], *sizes))


def _is_complex(site: Site) -> bool:
  """Returns whether a site reads or returns complex numbers (Fourier layers).

  The contractions are for real numbers.
  """
  return any(jnp.issubdtype(jaxprs.aval(var).dtype, jnp.complexfloating)
             for var in (*site.equation.invars, *site.equation.outvars))


def rearranged(read: Read, equation: core.JaxprEqn,
                shape: tuple[int, ...]) -> Read:
  """Returns the read before an equation of `tracing.REARRANGING`."""
  name = equation.primitive.name
  if name == 'transpose':
    order = equation.params['permutation']
    places = [order.index(i) for i in range(len(order))]
    return read._replace(shape=shape,
                         axes=tuple(read.axes[i] for i in places),
                         starts=tuple(read.starts[i] for i in places))
  if name == 'broadcast_in_dim':
    kept = equation.params['broadcast_dimensions']
    for i, axis in enumerate(read.axes):
      if axis is not None and (i not in kept or shape[kept.index(i)] == 1):
        read = summed(read, i)
    return read._replace(shape=shape, axes=tuple(read.axes[i] for i in kept),
                         starts=tuple(read.starts[i] if size > 1 else 0
                                      for i, size in zip(kept, shape,
                                                         strict=True)))
  if name in ('reshape', 'squeeze'):
    return _reshaped(read, shape)
  if name == 'rev':
    raise NotFollowed
  return read


def changed(read: Read, old: Sequence[Axis], new: Sequence[Axis],
             change: Callable[[Array], Array], is_plain: bool) -> Read:
  """Replaces axes of one factor; the axes of the array stay to be replaced.

  Args:
    read: with the axes `old` in one factor.
    old: the axes.
    new: those that replace them.
    change: [t, *old, *others] -> [t, *new, *others].
    is_plain: whether `change` only rearranges.
  """
  for factor in (read.right, read.left):
    if all(axis in factor.axes for axis in old):
      before = factor.of
      if before is None:
        raise NotFollowed
      others = [axis for axis in factor.axes if axis not in old]
      order = [0, *(1 + factor.axes.index(axis) for axis in (*old, *others))]
      after = Factor(
          (*new, *others), lambda rows: change(before(rows).transpose(order)),
          factor.is_plain and is_plain)
      return (read._replace(left=after) if factor is read.left
              else read._replace(right=after))
  raise NotFollowed


def summed(read: Read, at: int) -> Read:
  """Returns the read summed along an axis of the array, before a broadcast."""
  axis = read.axes[at]
  if axis is None:
    return read
  read = changed(read, [axis], [], lambda rows: jnp.sum(
      rows.astype(jnp.float32), 1), False)
  return read._replace(axes=replaced(read.axes, at, None))


def replaced(values: Sequence[Any], at: int, value: Any) -> tuple[Any, ...]:
  """Returns the values with one of them replaced."""
  return (*values[:at], value, *values[at + 1:])


def _reshaped(read: Read, shape: tuple[int, ...]) -> Read:
  """Returns the read by an array of this shape, before a reshape."""
  axes: list[Axis | None] = [None] * len(shape)
  starts = [0] * len(shape)
  for before, after in _aligned(shape, read.shape):
    if len(before) == len(after) == 1:
      axes[before[0]] = read.axes[after[0]]
      starts[before[0]] = read.starts[after[0]]
      continue
    first, rest = after[0], math.prod(read.shape[i] for i in after[1:])
    width = math.prod(read.widths[i] for i in after)
    if width != read.widths[first] * rest or (
        len(before) > 1 and read.widths[first] != read.shape[first]):
      raise NotFollowed  # The part would not be contiguous.
    old = [axis for i in after if (axis := read.axes[i]) is not None]
    sizes = [width] if len(before) == 1 else [shape[i] for i in before]
    new = [Axis(size) for size in sizes]
    read = changed(read, old, new, _merged(len(old), sizes), True)
    for i, axis in zip(before, new, strict=True):
      axes[i] = axis
    starts[before[0]] = read.starts[first] * rest
  return read._replace(shape=shape, axes=tuple(axes), starts=tuple(starts))


def _merged(count: int, sizes: Sequence[int]) -> Callable[[Array], Array]:
  """Returns the reshape of the `count` axes after the first to `sizes`."""
  return lambda rows: rows.reshape(
      (rows.shape[0], *sizes, *rows.shape[1 + count:]))


def _aligned(before: Sequence[int], after: Sequence[int]
             ) -> Iterator[tuple[list[int], list[int]]]:
  """Yields runs of axes of two shapes that hold the same entries."""
  left = [i for i, size in enumerate(before) if size > 1]
  right = [i for i, size in enumerate(after) if size > 1]
  while left:
    one, two = [left.pop(0)], [right.pop(0)]
    while True:
      sizes = (math.prod(before[i] for i in one),
               math.prod(after[i] for i in two))
      if sizes[0] == sizes[1]:
        break
      one, two = ((one, [*two, right.pop(0)]) if sizes[0] > sizes[1] else
                  ([*one, left.pop(0)], two))
    yield one, two
