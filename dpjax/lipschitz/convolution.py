"""Spectral norms of convolutions as linear maps on images.

The norm of the kernel reshaped to a matrix is no bound of the convolution: a
pixel enters several windows. Everything here is about the map x -> y on whole
images, at their true size, padding and stride, in float32 on channels-last
images and [kh, kw, c_in, c_out] kernels.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax import floats
from dpjax.lipschitz import norms
from dpjax.typing import Array

PADDINGS = ('zero', 'valid', 'circular')
_UNIT_ROUNDOFF = 2.0**-24
_CACHED_RECORDS = 8
Pads = tuple[tuple[int, int], tuple[int, int]]


class ConvShape(NamedTuple):
  """A convolution's geometry.

  Attributes:
    input_size: (h, w) of what enters.
    strides: (sh, sw).
    padding: one of `PADDINGS`, or the numbers of zeros before and after each
      axis: ((top, bottom), (left, right)). 'zero' keeps ceil(h / sh) rows, as
      'SAME' does, with the odd zero after. 'circular' keeps as many and needs
      strides that divide the image.
  """
  input_size: tuple[int, int]
  strides: tuple[int, int] = (1, 1)
  padding: str | Pads = 'zero'

  def pads(self, kernel_size: tuple[int, int]) -> Pads:
    """Pixels added before and after each axis."""
    if self.padding == 'valid':
      return ((0, 0), (0, 0))
    if self.padding == 'circular':
      return tuple(((k - 1) // 2, k // 2) for k in kernel_size)
    if self.padding == 'zero':
      totals = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(
          self.input_size, kernel_size, self.strides, strict=True)]
      return tuple((total // 2, total - total // 2) for total in totals)
    return self.padding

  def output_size(self, kernel_size: tuple[int, int]) -> tuple[int, int]:
    """(h_out, w_out), floor((n + pads - k) / s) + 1 on each axis."""
    return tuple((n + sum(pad) - k) // s + 1 for n, pad, k, s in zip(
        self.input_size, self.pads(kernel_size), kernel_size, self.strides,
        strict=True))


def convolve(x: Array, kernel: Array, shape: ConvShape, *,
             precision: jax.lax.Precision | None = None) -> Array:
  """The convolution itself, [b, h, w, c_in] -> [b, h_out, w_out, c_out].

  Cross-correlation, as everywhere in deep learning. The bounds of this module
  are of the map in real arithmetic. What a device computes at a lower
  precision, such as the TensorFloat-32 that GPUs use by default, can have a
  larger norm: `as_computed` says by how much, so that speed need not be given
  up for a certificate.
  """
  check_shape(kernel.shape, shape)
  pads = shape.pads(kernel.shape[:2])
  if shape.padding == 'circular':
    x = jnp.pad(x, [(0, 0), *pads, (0, 0)], mode='wrap')
    pads = ((0, 0), (0, 0))
  return jax.lax.conv_general_dilated(
      x, kernel, shape.strides, pads, precision=precision,
      dimension_numbers=('NHWC', 'HWIO', 'NHWC'))


def windows(x: Array, kernel_size: tuple[int, int],
            shape: ConvShape) -> Array:
  """The patches that a convolution sees, [b, h_out w_out, kh kw c_in].

  U(x) of NET-02: a convolution is a product with them.
  """
  mode = 'wrap' if shape.padding == 'circular' else 'constant'
  padded = jnp.pad(x, [(0, 0), *shape.pads(kernel_size), (0, 0)], mode=mode)
  (rows, columns), (down, right) = shape.output_size(kernel_size), shape.strides
  taps = [padded[:, i:i + (rows - 1) * down + 1:down,
                 j:j + (columns - 1) * right + 1:right]
          for i in range(kernel_size[0]) for j in range(kernel_size[1])]
  return jnp.stack(taps, 3).reshape((x.shape[0], rows * columns, -1))


def kernel_gradients(x: Array, cotangent: Array, kernel_size: tuple[int, int],
                     shape: ConvShape) -> Array:
  """The gradient in the kernel of each record, [b, kh, kw, c_in, c_out].

  U(x)^T delta. On CPU a few records at a time, whose windows stay in a cache:
  about as fast there as the sum over all records, and several times as fast as
  the product of all windows.

  Args:
    x: [b, h, w, c_in].
    cotangent: [b, h_out, w_out, c_out].
    kernel_size: (kh, kw).
    shape: of the convolution.
  """
  def product(record):
    one, delta = record
    patches = windows(one[None], kernel_size, shape)[0]
    return jnp.einsum('sk,sc->kc', patches,
                      delta.reshape((-1, delta.shape[-1])),
                      precision=jax.lax.Precision.HIGHEST)

  if jax.default_backend() == 'cpu':
    found = jax.lax.map(product, (x, cotangent), batch_size=_CACHED_RECORDS)
  else:
    found = jax.vmap(product)((x, cotangent))
  return found.reshape((x.shape[0], *kernel_size, x.shape[-1],
                        cotangent.shape[-1]))


def check_shape(kernel_shape: tuple[int, ...], shape: ConvShape) -> None:
  """Refuses geometries that have no bound here, in one line."""
  if isinstance(shape.padding, str):
    errors.check_choice('padding', shape.padding, PADDINGS)
  if len(kernel_shape) != 4 or 0 in kernel_shape:
    raise ValueError('a kernel has shape [kh, kw, c_in, c_out], got '
                     f'{list(kernel_shape)}')
  for size, stride in zip(shape.input_size, shape.strides, strict=True):
    errors.check_at_least('image size', size, 1)
    errors.check_at_least('stride', stride, 1)
  for size, taps, stride, pad in zip(
      shape.input_size, kernel_shape[:2], shape.strides,
      shape.pads(kernel_shape[:2]), strict=True):
    errors.check_at_least('padding', min(pad), 0)
    circular = shape.padding == 'circular'
    if taps > size + (0 if circular else sum(pad)):
      raise ValueError(f'a kernel of {taps} taps does not fit into an image of '
                       f'{size} pixels with {shape.padding} padding')
    if circular and size % stride:
      raise ValueError('circular padding needs a stride that divides the image '
                       f'of {size} pixels, got {stride}')


def multiplicity(kernel_size: tuple[int, int],
                 strides: tuple[int, int]) -> int:
  """In how many windows a pixel can be: ceil(kh / sh) ceil(kw / sw).

  sqrt(multiplicity) ||x|| bounds the norm of all patches of x together, and so
  the Jacobian of the convolution in its kernel. Source: item NET-02, Theorem
  5.2.1 of thesis 003, which is about stride 1: erratum E7 (iii).
  """
  return math.prod(-(-k // s) for k, s in zip(kernel_size, strides,
                                              strict=True))


def reshape_upper_bound(kernel: Array, shape: ConvShape, *,
                        num_iterations: int = 6) -> Array:
  """sqrt(multiplicity) times the norm of the kernel as a matrix; certified.

  Cheap and loose: up to the root of the multiplicity above the truth. Without
  that root it is no bound. Source: NET-02, erratum E7 (ii).
  """
  check_shape(kernel.shape, shape)
  matrix = kernel.reshape((-1, kernel.shape[-1]))
  factor = multiplicity(kernel.shape[:2], shape.strides)**0.5 * (1 + 1e-6)
  return factor * norms.spectral_upper_bound(matrix,
                                             num_iterations=num_iterations)


def drifted_bound(bound: Array, old_kernel: Array, new_kernel: Array,
                  shape: ConvShape, *, num_iterations: int = 2) -> Array:
  """An upper bound for a kernel that has moved since `bound` was certified.

  ||K + dK|| <= ||K|| + `reshape_upper_bound`(dK), which is never above the sum
  with sqrt(multiplicity) ||dK||_F, and for a Gaussian dK far below. Between
  two `fourier_upper_bound`s at a small part of their cost; it adds up over
  steps. Source: triangle inequality.

  Args:
    bound: certified for `old_kernel`.
    old_kernel: [kh, kw, c_in, c_out].
    new_kernel: of the same shape, as it will be used.
    shape: of both.
    num_iterations: of the norm of the difference.
  """
  # The difference of two rounded numbers is rounded once, and the sum.
  drift = reshape_upper_bound(new_kernel - old_kernel, shape,
                              num_iterations=num_iterations)
  return (bound + (1 + 1e-5) * drift) * (1 + 2 * _UNIT_ROUNDOFF)


def as_computed(bound: Array, kernel: Array, shape: ConvShape, *,
                input_roundoff: float) -> Array:
  """`bound` enlarged to what rounded products and sums can attain.

  With inputs rounded by a relative u and sums of m = kh kw c_in products in
  float32, each output moves by at most ((1 + u)^2 (1 + (m + 1) 2^-23) - 1) of
  the convolution of |x| with |K|, whose norm is at most
  sqrt(multiplicity) ||K||_F. It holds for the transposed map of backward
  passes with c_out for c_in, and for direct and implicit-product algorithms,
  not for Winograd's.

  Args:
    bound: certified for the kernel in real arithmetic.
    kernel: [kh, kw, c_in, c_out].
    shape: where it is applied.
    input_roundoff: u; 2^-11 for TensorFloat-32, 2^-8 for bfloat16, 0 for
      float32.
  """
  errors.check_non_negative('input_roundoff', input_roundoff)
  check_shape(kernel.shape, shape)
  kh, kw, c_in, c_out = kernel.shape
  terms = kh * kw * max(c_in, c_out) + 1
  part = (1 + input_roundoff)**2 * (1 + terms * 2.0**-23) - 1
  # One row: its norm is Frobenius'.
  size = norms.spectral_upper_bound(kernel.reshape((1, -1)))
  root = multiplicity((kh, kw), shape.strides)**0.5
  return (bound + (1 + 1e-6) * part * root * size) * (1 + 2 * _UNIT_ROUNDOFF)


def fourier_upper_bound(kernel: Array, shape: ConvShape, *,
                        num_iterations: int = 6,
                        grid: int | None = None) -> Array:
  """A certified upper bound by embedding in a torus; jittable, float32.

  A strided convolution is one of stride 1 on the stride's phases as channels;
  zero padding is circular padding on a torus so large that no output meets
  its own wrapped input, seen through an isometry on both sides. On the torus
  the norm is the largest over frequencies of the c_out x (phases c_in) matrix
  of the kernel's discrete Fourier transform. A torus of the size of the image
  is *no* bound for zero padding. Source: SPEC-05, SPEC-06, erratum E7 (iv);
  the torus is smaller than theirs, see `torus_size`.

  Tight: equal to the norm for circular padding, and within a few per cent of
  it for images that are large beside the kernel, up to the factor of Gram
  iteration.

  With a `grid` of N < torus frequencies an axis, the result bounds the norm on
  every torus: with taps k on an axis and (u, v) the singular vectors at the
  best frequency, p(t) = Re(e^(i c) u^* K(t) v), shifted by (k - 1) / 2 taps,
  is a real trigonometric polynomial of degree d = (k - 1) / 2 in the frequency
  of that axis. From its maximum it falls no faster than cos(d t) (M. Riesz),
  and a grid point is within pi / N, so

    max ||K|| <= max over the grid / cos(pi (k - 1) / (2 N))  for each axis.

  At k = 3 and N = 8, 12, 16: 8, 4 and 2 % for each axis. On 28 x 28 images
  that is 34, 74 and 130 frequencies, up to conjugation, in the place of 421.

  Args:
    kernel: [kh, kw, c_in, c_out].
    shape: where it is applied.
    num_iterations: of `norms.spectral_upper_bound` at each frequency.
    grid: N, or None for the torus itself, which serves too where it is no
      larger. At least ceil(k / s); on an axis with ceil(k / s) = 2, half of it
      gives the same factor and is what is taken.

  Returns:
    A scalar, NaN or infinite if an entry of the kernel is.
  """
  check_shape(kernel.shape, shape)
  phases = phases_as_channels(kernel, shape.strides)
  sides, correction = _frequency_grid(phases.shape, kernel.shape, shape, grid)
  # Frequencies beside which others are tiny do not matter: by Parseval the
  # largest norm is at least the largest entry over the root of the rank.
  scale = floats.power_of_two_below(jnp.max(jnp.abs(kernel)))
  bounds = norms.spectral_upper_bound(
      _transform(phases * floats.inverse_power_of_two(scale), sides),
      num_iterations=num_iterations, any_scale=False)
  # An entry is a sum of at most `taps` terms, and the norm of the kernel at
  # most sqrt(rank) times the largest over frequencies.
  taps = math.prod(phases.shape[:2])
  rank = min(phases.shape[2:])
  margin = 1 + 2 * (taps + 4) * (taps * rank)**0.5 * _UNIT_ROUNDOFF
  return scale * (correction * margin * jnp.max(bounds))


def exact_upper_bound(kernel: np.ndarray, shape: ConvShape) -> float:
  """`fourier_upper_bound` by float64 SVD on the host, rounded up. SPEC-03.

  NaN if an entry is not finite.
  """
  check_shape(kernel.shape, shape)
  if not np.all(np.isfinite(kernel)):
    return math.nan
  phases = phases_as_channels(np.asarray(kernel, np.float64), shape.strides)
  sides = torus_size(kernel.shape[:2], shape)
  spectrum = np.fft.fft2(phases, sides, axes=(0, 1))
  return float(np.max(np.linalg.norm(spectrum, 2, axis=(2, 3)))) * (1 + 1e-10)


def power_iteration(kernel: Array, shape: ConvShape, start: Array, *,
                    num_iterations: int) -> tuple[Array, Array]:
  """A *lower* bound by powers of the convolution and its transpose.

  Args:
    kernel: [kh, kw, c_in, c_out].
    shape: where it is applied.
    start: [h, w, c_in] image, not orthogonal to the leading one; that of the
      step before is a good one.
    num_iterations: at least 1.

  Returns:
    (norm of the image of v, v), v of unit norm. Source: SPEC-02.
  """
  return norms.power_iteration_of_map(
      lambda x: convolve(x[None], kernel, shape,
                         precision=jax.lax.Precision.HIGHEST)[0],
      start, num_iterations=num_iterations)


def torus_size(kernel_size: tuple[int, int],
               shape: ConvShape) -> tuple[int, int]:
  """Sides of the torus on whose norm `fourier_upper_bound` rests.

  In blocks of one stride, output m reads the blocks m .. m + k - 1 of the
  padded image, k = ceil(taps / stride), and the image fills first .. last.
  Only the outputs that meet the image count: from low = max(0, first - k + 1)
  to high. On a torus of N blocks nothing is read across the seam if
  N >= high + k - first and N >= last + 1 - low. For 3 taps, stride 1 and zero
  padding that is n + 1, where SPEC-05 takes n + 2.
  """
  sides = []
  for size, taps, stride, pad, outputs in zip(
      shape.input_size, kernel_size, shape.strides, shape.pads(kernel_size),
      shape.output_size(kernel_size), strict=True):
    blocks = -(-taps // stride)
    if shape.padding == 'circular':
      sides.append(size // stride)
      continue
    first = pad[0] // stride
    last = min((pad[0] + size - 1) // stride, outputs + blocks - 2)
    low, high = max(0, first - blocks + 1), min(outputs - 1, last)
    # No fewer than the taps, or they would add up.
    sides.append(max(high + blocks - first, last + 1 - low, blocks))
  return tuple(sides)


def _frequency_grid(phases_shape, kernel_shape, shape: ConvShape,
                    grid: int | None) -> tuple[tuple[int, int], float]:
  """Frequencies on each axis, and what their maximum is to be multiplied by."""
  sides, correction = [], 1.0
  for taps, side in zip(phases_shape[:2], torus_size(kernel_shape[:2], shape),
                        strict=True):
    if taps == 1:
      side = 1
    elif grid is not None:
      errors.check_at_least('grid', grid, taps)
      # Two taps are as far from the maximum between half as many points.
      points = max(taps, -(-grid // 2)) if taps == 2 else grid
      if points < side:
        side = points
        correction /= math.cos(math.pi * (taps - 1) / (2 * side))
    sides.append(side)
  return tuple(sides), correction


def phases_as_channels(kernel: Array | np.ndarray,
                       strides: tuple[int, int]) -> Array | np.ndarray:
  """[kh, kw, ci, co] -> [ceil(kh/sh), ceil(kw/sw), phases ci, co].

  A stride above the taps leaves phases that no tap reads; they are left out.
  """
  kh, kw, c_in, c_out = kernel.shape
  sh, sw = min(strides[0], kh), min(strides[1], kw)
  numpy = np if isinstance(kernel, np.ndarray) else jnp
  padded = numpy.pad(kernel, [(0, -kh % sh), (0, -kw % sw), (0, 0), (0, 0)])
  split = padded.reshape((-(-kh // sh), sh, -(-kw // sw), sw, c_in, c_out))
  return split.transpose((0, 2, 1, 3, 4, 5)).reshape(
      (split.shape[0], split.shape[2], sh * sw * c_in, c_out))


def _transform(kernel: Array, sides: tuple[int, int]) -> Array:
  """The discrete Fourier transform, [frequencies, c, c_out].

  As products with cosines and sines of the few taps; of the frequencies that
  are conjugates of each other one is kept.
  """
  if sides == (1, 1):
    return kernel[0]
  own = [(i, j) for i in range(sides[0]) for j in range(sides[1])
         if (i, j) <= (-i % sides[0], -j % sides[1])]
  places = np.stack(np.mgrid[:kernel.shape[0], :kernel.shape[1]], -1)
  angles = 2 * np.pi * (np.array(own) / sides) @ places.reshape((-1, 2)).T
  taps = kernel.reshape((angles.shape[1], -1))
  parts = [jnp.matmul(jnp.asarray(wave, jnp.float32), taps,
                      precision=jax.lax.Precision.HIGHEST)
           for wave in (np.cos(angles), -np.sin(angles))]
  return jax.lax.complex(*parts).reshape((-1,) + kernel.shape[2:])
