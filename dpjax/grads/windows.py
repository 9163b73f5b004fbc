"""Windows of images: convolutions, their gradients and Gram matrices.

A *site* is a position of the output of a convolution, a *tap* is a position of
its kernel. The window of a site holds the pixels under the taps there.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.typing import Array


class Split(NamedTuple):
  """A kernel gradient as one matrix product, its taps split between operands.

  Attributes:
    product: (image, cotangent) of one record, channels last -> the gradient as
      a matrix [other taps * channels, taps of the first axis * out].
    to_rows: that matrix -> [taps * channels, out], the layout of a product
      with `by_slices`.
    num_values: number of values in the two operands.
  """
  product: Callable[[Array, Array], Array]
  to_rows: Callable[[Array], Array]
  num_values: int


def by_slices(image: Array, taps: Sequence[int], params: Mapping[str, Any],
              out: Sequence[int]) -> Array:
  """Returns the window of each site, [batch, *out, *taps, channels].

  It slices one axis after the other. JAX's own patches function is a
  convolution, which is slow on CPU in loops.

  Args:
    image: [batch, *size, channels].
    taps: spatial sizes of the kernel.
    params: parameters of the convolution primitive.
    out: spatial sizes of the output.
  """
  return _along(_padded(image, params), range(len(taps)), taps, params, out)


def split(image: Sequence[int], taps: Sequence[int], params: Mapping[str, Any],
          out: Sequence[int]) -> Split:
  """Returns the kernel gradient with shifted copies of image and cotangent.

  Windows are formed along all spatial axes but the first. Along the first axis
  the cotangent is shifted instead: with stride 1, tap t multiplies row r of the
  image with row r - t of the cotangent. A 3 x 3 kernel then takes three copies
  of the image and three of the cotangent. `by_slices` takes nine copies of the
  image, and on accelerators writing and reading these copies takes the time.

  Args:
    image: shape [batch, *size, channels] of one record; one feature group.
    taps: spatial sizes of the kernel.
    params: parameters of the convolution primitive.
    out: shape [batch, *size, channels] of the output.
  """
  rows = _padded_shape(image, params)[1]
  stride, step = params['window_strides'][0], params['rhs_dilation'][0]
  last = (out[1] - 1) * stride + 1
  width, rest = math.prod(taps[1:]) * image[-1], range(1, len(taps))

  def product(x: Array, cotangent: Array) -> Array:
    x = _along(_padded(x, params), rest, taps, params, out[1:-1])
    # For each tap, row r of the cotangent moves to row r * stride + tap * step
    # of the image; the rows between are zeros.
    shifted = jnp.stack([jax.lax.pad(
        cotangent, jnp.zeros([], cotangent.dtype),
        [(0, 0, 0), (start, rows - last - start, stride - 1),
         *[(0, 0, 0)] * (cotangent.ndim - 2)])
        for start in (tap * step for tap in range(taps[0]))], -2)
    return jnp.einsum('sk,sn->kn', x.reshape((-1, width)),
                      shifted.reshape((-1, taps[0] * out[-1])),
                      preferred_element_type=jnp.float32)

  def to_rows(gradient: Array) -> Array:
    by_tap = gradient.reshape((width, taps[0], out[-1]))
    return by_tap.transpose((1, 0, 2)).reshape((-1, out[-1]))

  sites = out[0] * rows * math.prod(out[2:-1])
  return Split(product, to_rows, sites * (width + taps[0] * out[-1]))


def gram(image: Array, taps: Sequence[int], params: Mapping[str, Any],
         out: Sequence[int]) -> Array:
  """Returns the inner products of the windows of all sites, [sites, sites].

  The inner product of two windows is the sum, over the taps, of the inner
  products of the pixels under them; no window is formed.

  Args:
    image: [batch, *size, channels], images of one record; one feature group.
    taps: spatial sizes of the kernel.
    params: parameters of the convolution primitive.
    out: spatial sizes of the output.
  """
  padded = _padded(image, params).astype(jnp.float32)
  pixels = padded.reshape((-1, padded.shape[-1]))
  products = jnp.einsum('pc,qc->pq', pixels, pixels,
                        precision=jax.lax.Precision.HIGHEST)
  products = products.reshape(padded.shape[:-1] * 2)
  # Turn pixel axes into site axes, one pair of axes (rows, columns) at a time.
  for axis in range(len(taps)):
    products = functools.reduce(jnp.add, (
        _slice(_slice(products, axis + 1, axis, tap, params, out),
               axis + 2 + len(taps), axis, tap, params, out)
        for tap in range(taps[axis])))
  sites = len(image) * math.prod(out)
  return products.reshape((sites, sites))


def num_pixels(image: Sequence[int], params: Mapping[str, Any]) -> int:
  """Returns the number of pixels of a padded image [batch, *size, channels]."""
  return math.prod(_padded_shape(image, params)[:-1])


def _padded_shape(image: Sequence[int],
                  params: Mapping[str, Any]) -> tuple[int, ...]:
  """Returns the shape of a padded image, from the shape of the image."""
  return jax.eval_shape(lambda x: _padded(x, params), jax.ShapeDtypeStruct(
      image, jnp.float32)).shape


def _padded(image: Array, params: Mapping[str, Any]) -> Array:
  """Returns the image with the padding and dilation of the convolution."""
  sides = zip(params['padding'], params['lhs_dilation'], strict=True)
  return jax.lax.pad(image, jnp.zeros([], image.dtype), [(0, 0, 0), *(
      (low, high, dilation - 1) for (low, high), dilation in sides),
      (0, 0, 0)])


def _along(image: Array, axes: Sequence[int], taps: Sequence[int],
           params: Mapping[str, Any], out: Sequence[int]) -> Array:
  """Returns windows of a padded image along some spatial axes only."""
  # In reverse order, so that each new axis goes in front of the later taps.
  for axis in reversed(axes):
    image = jnp.stack([_slice(image, axis + 1, axis, tap, params, out)
                       for tap in range(taps[axis])], len(taps) + 1)
  return image


def _slice(values: Array, at: int, axis: int, tap: int,
           params: Mapping[str, Any], out: Sequence[int]) -> Array:
  """Returns the pixels under one tap of a spatial axis, at all sites.

  Args:
    values: an array whose axis number `at` is the spatial axis `axis`.
    at: position of the axis in `values`.
    axis: number of the spatial axis.
    tap: position along this axis of the kernel.
    params: parameters of the convolution primitive.
    out: spatial sizes of the output.
  """
  stride, start = params['window_strides'][axis], (
      tap * params['rhs_dilation'][axis])
  return jax.lax.slice_in_dim(
      values, start, start + (out[axis] - 1) * stride + 1, stride, at)
