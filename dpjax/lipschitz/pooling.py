"""Pools with their true constants, overlapping ones included."""

from collections.abc import Callable
import functools
import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.lipschitz.node import Shape
from dpjax.lipschitz.pointwise import Fixed
from dpjax.typing import Array

Pair = tuple[int, int]


def _overlap(window: Pair, strides: Pair) -> int:
  """In how many windows a pixel can be."""
  return math.prod(-(-k // s) for k, s in zip(window, strides, strict=True))


def _pooled(window: Pair, strides: Pair):
  for size, stride in zip(window, strides, strict=True):
    errors.check_at_least('window', size, 1)
    errors.check_at_least('stride', stride, 1)

  def shape_of(shape: Shape) -> Shape:
    _check_image(shape)
    if any(k > n for k, n in zip(window, shape[:2], strict=True)):
      raise ValueError(f'a window of {list(window)} does not fit into an image '
                       f'of {list(shape[:2])}')
    return (*((n - k) // s + 1 for n, k, s in zip(
        shape[:2], window, strides, strict=True)), shape[2])

  return shape_of


def _check_image(shape: Shape) -> Shape:
  if len(shape) != 3:
    raise ValueError('a pool takes images [h, w, c], got records of shape '
                     f'{list(shape)}')
  return shape


def window_maximum(x: Array, window: Pair, strides: Pair) -> Array:
  """Maxima [b, h', w', c] over windows of images [b, h, w, c], not padded.

  Values that are equal share the gradient.
  """
  return _over_windows(jnp.maximum, x, window, strides)


def _over_windows(join: Callable[[Array, Array], Array], x: Array,
                  window: Pair, strides: Pair) -> Array:
  """Of rows, then of columns, by slices.

  XLA for CPUs takes a `reduce_window` and its gradient one value at a time.
  """
  for axis, (size, stride) in enumerate(zip(window, strides, strict=True), 1):
    last = (x.shape[axis] - size) // stride * stride
    x = functools.reduce(join, [jax.lax.slice_in_dim(
        x, start, start + last + 1, stride, axis) for start in range(size)])
  return x


def max_pool(window: Pair = (2, 2), strides: Pair | None = None, *,
             name: str = 'max_pool') -> Fixed:
  """Window maxima without padding; constant sqrt(ceil(k/s)^2). NET-04.

  Definition 2.4.2 of thesis 003; its bound takes 1 for every pool, which
  overlapping windows exceed: 2 for 2 x 2 windows of stride 1 (E11).
  """
  strides = strides or window
  shape_of = _pooled(window, strides)
  constant = math.sqrt(_overlap(window, strides))
  return Fixed(
      name=name, function=lambda x: window_maximum(x, window, strides),
      lipschitz=lambda shape: constant,
      ceiling=lambda radius, shape: constant * radius, shape_of=shape_of)


def average_pool(window: Pair = (2, 2), strides: Pair | None = None, *,
                 name: str = 'average_pool') -> Fixed:
  """Window means; constant sqrt(ceil(k/s)^2 / k^2). NET-05, Def. 2.4.3.

  Windows that do not overlap give exactly 1/k.
  """
  strides = strides or window
  shape_of = _pooled(window, strides)
  constant = math.sqrt(_overlap(window, strides) / math.prod(window))
  return Fixed(
      name=name, function=lambda x: _over_windows(
          jnp.add, x, window, strides) / math.prod(window),
      lipschitz=lambda shape: constant,
      ceiling=lambda radius, shape: constant * radius, shape_of=shape_of)


def global_average_pool(*, name: str = 'global_average_pool') -> Fixed:
  """Mean over all pixels, [h, w, c] -> [c]; constant 1/sqrt(h w). NET-05."""
  constant = lambda shape: 1 / math.sqrt(math.prod(shape[:2]))
  return Fixed(
      name=name, function=lambda x: jnp.mean(x, (1, 2)), lipschitz=constant,
      ceiling=lambda radius, shape: constant(shape) * radius,
      shape_of=lambda shape: _check_image(shape)[2:])
