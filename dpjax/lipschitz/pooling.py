"""Pooling layers and their Lipschitz constants, also for overlapping windows.
"""

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
  """Returns the largest number of windows that contain one pixel."""
  return math.prod(-(-k // s) for k, s in zip(window, strides, strict=True))


def _pooled(window: Pair, strides: Pair) -> Callable[[Shape], Shape]:
  """Returns the `shape_of` of an unpadded pool, with its checks."""
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
  """Returns `shape` if it is an image shape [h, w, c]; else raises."""
  if len(shape) != 3:
    raise ValueError('a pool takes images [h, w, c], got records of shape '
                     f'{list(shape)}')
  return shape


def window_maximum(x: Array, window: Pair, strides: Pair) -> Array:
  """Returns maxima [b, h', w', c] over windows of images [b, h, w, c].

  Images are not padded. Equal maxima of a window share the gradient.
  """
  return _over_windows(jnp.maximum, x, window, strides)


def _over_windows(join: Callable[[Array, Array], Array], x: Array,
                  window: Pair, strides: Pair) -> Array:
  """Reduces windows over rows, then over columns, by slices.

  XLA on CPU computes a `reduce_window` and its gradient value by value, which
  is slow.
  """
  for axis, (size, stride) in enumerate(zip(window, strides, strict=True), 1):
    last = (x.shape[axis] - size) // stride * stride
    x = functools.reduce(join, [jax.lax.slice_in_dim(
        x, start, start + last + 1, stride, axis) for start in range(size)])
  return x


def max_pool(window: Pair = (2, 2), strides: Pair | None = None, *,
             name: str = 'max_pool') -> Fixed:
  """Returns a max pool without padding. NET-04.

  With windows k x k and stride s the Lipschitz constant is ceil(k / s).
  Barczewski (2025, Definition 2.4.2) takes 1 for every pool, which overlapping
  windows exceed: 2 x 2 windows of stride 1 have 2 (erratum E11).

  Args:
    window: (kh, kw).
    strides: (sh, sw); the window by default, so that windows do not overlap.
    name: layer name, for messages.
  """
  strides = strides or window
  shape_of = _pooled(window, strides)
  # A pixel may be the maximum of all windows that contain it.
  constant = math.sqrt(_overlap(window, strides))
  return Fixed(
      name=name, function=lambda x: window_maximum(x, window, strides),
      lipschitz=lambda shape: constant,
      ceiling=lambda radius, shape: constant * radius, shape_of=shape_of)


def average_pool(window: Pair = (2, 2), strides: Pair | None = None, *,
                 name: str = 'average_pool') -> Fixed:
  """Returns an average pool without padding. NET-05.

  With windows k x k and stride s the Lipschitz constant is ceil(k / s) / k,
  exactly 1/k for windows that do not overlap. Barczewski (2025, Definition
  2.4.3). Args as for `max_pool`.
  """
  strides = strides or window
  shape_of = _pooled(window, strides)
  # The mean of k numbers of norm r is at most r / sqrt(k).
  constant = math.sqrt(_overlap(window, strides) / math.prod(window))
  return Fixed(
      name=name, function=lambda x: _over_windows(
          jnp.add, x, window, strides) / math.prod(window),
      lipschitz=lambda shape: constant,
      ceiling=lambda radius, shape: constant * radius, shape_of=shape_of)


def global_average_pool(*, name: str = 'global_average_pool') -> Fixed:
  """Returns the mean over all pixels, [h, w, c] -> [c]. NET-05.

  The Lipschitz constant is 1 / sqrt(h w).
  """
  constant = lambda shape: 1 / math.sqrt(math.prod(shape[:2]))
  return Fixed(
      name=name, function=lambda x: jnp.mean(x, (1, 2)), lipschitz=constant,
      ceiling=lambda radius, shape: constant(shape) * radius,
      shape_of=lambda shape: _check_image(shape)[2:])
