"""What each site of a convolution meets, and its gradient of one record."""

from collections.abc import Callable, Mapping, Sequence
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.typing import Array


class Split(NamedTuple):
  """The gradient of a record with taps of one axis on either side.

  Attributes:
    product: image and cotangent of one record, channels last -> [rest of the
      taps, channels, taps of the first axis, out], flat on either side.
    to_rows: the same -> [taps, channels, out], as products of `by_slices` are.
    num_values: that are formed on the way.
  """
  product: Callable[[Array, Array], Array]
  to_rows: Callable[[Array], Array]
  num_values: int


def by_slices(image: Array, taps: Sequence[int], params: Mapping[str, Any],
              out: Sequence[int]) -> Array:
  """What each site meets, [batch, *out, *taps, channels].

  One axis after the other. The library's patches are a convolution, which is
  slow on CPU in loops.

  Args:
    image: [batch, *size, channels].
    taps: sizes of the kernel.
    params: of the convolution.
    out: sizes of what leaves it.
  """
  return _along(_padded(image, params), range(len(taps)), taps, params, out)


def split(image: Sequence[int], taps: Sequence[int], params: Mapping[str, Any],
          out: Sequence[int]) -> Split:
  """Windows along all axes but the first, cotangents shifted along that.

  A tap of the first axis meets row r of the image where the cotangent is that
  of row r minus its place. So nine taps are three copies of the image and three
  of the cotangent, where `by_slices` has nine of the image, which is what takes
  the time on accelerators: written to memory and read again.

  Args:
    image: [batch, *size, channels] of a record; in one group.
    taps: sizes of the kernel.
    params: of the convolution.
    out: [batch, *size, channels] of what leaves it.
  """
  rows = _padded_shape(image, params)[1]
  stride, step = params['window_strides'][0], params['rhs_dilation'][0]
  last = (out[1] - 1) * stride + 1
  width, rest = math.prod(taps[1:]) * image[-1], range(1, len(taps))

  def product(x, cotangent):
    x = _along(_padded(x, params), rest, taps, params, out[1:-1])
    shifted = jnp.stack([jax.lax.pad(
        cotangent, jnp.zeros([], cotangent.dtype),
        [(0, 0, 0), (start, rows - last - start, stride - 1),
         *[(0, 0, 0)] * (cotangent.ndim - 2)])
        for start in (tap * step for tap in range(taps[0]))], -2)
    return jnp.einsum('sk,sn->kn', x.reshape((-1, width)),
                      shifted.reshape((-1, taps[0] * out[-1])),
                      preferred_element_type=jnp.float32)

  def to_rows(gradient):
    found = gradient.reshape((width, taps[0], out[-1]))
    return found.transpose((1, 0, 2)).reshape((-1, out[-1]))

  sites = out[0] * rows * math.prod(out[2:-1])
  return Split(product, to_rows, sites * (width + taps[0] * out[-1]))


def gram(image: Array, taps: Sequence[int], params: Mapping[str, Any],
         out: Sequence[int]) -> Array:
  """[sites, sites]: inner products of what sites meet, from those of pixels.

  Args:
    image: [batch, *size, channels] of a record; in one group.
    taps: sizes of the kernel.
    params: of the convolution.
    out: sizes of what leaves it.
  """
  padded = _padded(image, params).astype(jnp.float32)
  pixels = padded.reshape((-1, padded.shape[-1]))
  found = jnp.einsum('pc,qc->pq', pixels, pixels,
                     precision=jax.lax.Precision.HIGHEST)
  found = found.reshape(padded.shape[:-1] * 2)
  for axis in range(len(taps)):
    found = sum(_slice(_slice(found, axis + 1, axis, tap, params, out),
                       axis + 2 + len(taps), axis, tap, params, out)
                for tap in range(taps[axis]))
  sites = len(image) * math.prod(out)
  return found.reshape((sites, sites))


def num_pixels(image: Sequence[int], params: Mapping[str, Any]) -> int:
  """Of an image [batch, *size, channels] with what is padded."""
  return math.prod(_padded_shape(image, params)[:-1])


def _padded_shape(image: Sequence[int],
                  params: Mapping[str, Any]) -> tuple[int, ...]:
  return jax.eval_shape(lambda x: _padded(x, params), jax.ShapeDtypeStruct(
      image, jnp.float32)).shape


def _padded(image: Array, params: Mapping[str, Any]) -> Array:
  sides = zip(params['padding'], params['lhs_dilation'], strict=True)
  return jax.lax.pad(image, jnp.zeros([], image.dtype), [(0, 0, 0), *(
      (low, high, dilation - 1) for (low, high), dilation in sides),
      (0, 0, 0)])


def _along(found: Array, axes: Sequence[int], taps: Sequence[int],
           params: Mapping[str, Any], out: Sequence[int]) -> Array:
  """Windows of a padded image along some axes only."""
  for axis in reversed(axes):
    found = jnp.stack([_slice(found, axis + 1, axis, tap, params, out)
                       for tap in range(taps[axis])], len(taps) + 1)
  return found


def _slice(values: Array, at: int, axis: int, tap: int,
           params: Mapping[str, Any], out: Sequence[int]) -> Array:
  """What a tap of an axis meets, of values that have this axis at `at`."""
  stride, start = params['window_strides'][axis], (
      tap * params['rhs_dilation'][axis])
  return jax.lax.slice_in_dim(
      values, start, start + (out[axis] - 1) * stride + 1, stride, at)
