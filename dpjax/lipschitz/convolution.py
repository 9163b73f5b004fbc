"""Spectral norms of convolutions as linear maps on images.

The norm of the kernel reshaped to a matrix does not bound the convolution,
because a pixel enters several windows. All bounds here are for the map x -> y
on whole images, at their true size, padding and stride, in float32 on
channels-last images and [kh, kw, c_in, c_out] kernels.
"""

import math
from typing import NamedTuple, TypeVar

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

Size = tuple[int, ...]
"""Two numbers, of rows and of columns."""

Pads = tuple[tuple[int, int], ...]
"""Numbers of pixels before and after the rows, and the columns."""

_Kernel = TypeVar('_Kernel', Array, np.ndarray)


class ConvShape(NamedTuple):
  """Image size, strides and padding of a convolution.

  Attributes:
    input_size: (h, w) of the input, in pixels.
    strides: (sh, sw).
    padding: one of `PADDINGS`, or the numbers of zeros before and after each
      axis: ((top, bottom), (left, right)). 'zero' gives ceil(h / sh) rows, as
      'SAME' does, with an odd zero at the end. 'circular' gives the same size
      and needs strides that divide the image size.
  """
  input_size: Size
  strides: Size = (1, 1)
  padding: str | Pads = 'zero'

  def pads(self, kernel_size: Size) -> Pads:
    """Returns the numbers of pixels added before and after each axis."""
    if not isinstance(self.padding, str):
      return self.padding
    errors.check_choice('padding', self.padding, PADDINGS)
    if self.padding == 'valid':
      return ((0, 0), (0, 0))
    if self.padding == 'circular':
      return tuple(((k - 1) // 2, k // 2) for k in kernel_size)
    # ceil(n / s) windows of k taps span this many pixels beyond the image.
    totals = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(
        self.input_size, kernel_size, self.strides, strict=True)]
    return tuple((total // 2, total - total // 2) for total in totals)

  def output_size(self, kernel_size: Size) -> Size:
    """Returns (h_out, w_out), floor((n + pads - k) / s) + 1 on each axis."""
    return tuple((n + sum(pad) - k) // s + 1 for n, pad, k, s in zip(
        self.input_size, self.pads(kernel_size), kernel_size, self.strides,
        strict=True))


def convolve(x: Array, kernel: Array, shape: ConvShape, *,
             precision: jax.lax.Precision | None = None) -> Array:
  """Convolves images: [b, h, w, c_in] -> [b, h_out, w_out, c_out].

  This is the cross-correlation of deep learning. The bounds of this module
  are for the map in real arithmetic. At a lower precision, such as the
  TensorFloat-32 that GPUs use by default, the computed map can have a larger
  norm; `as_computed` enlarges a bound to cover it.
  """
  check_shape(kernel.shape, shape)
  pads = shape.pads(kernel.shape[:2])
  if shape.padding == 'circular':
    x = jnp.pad(x, [(0, 0), *pads, (0, 0)], mode='wrap')
    pads = ((0, 0), (0, 0))
  return jax.lax.conv_general_dilated(
      x, kernel, shape.strides, pads, precision=precision,
      dimension_numbers=('NHWC', 'HWIO', 'NHWC'))


def windows(x: Array, kernel_size: Size, shape: ConvShape) -> Array:
  """Returns the patches U(x) of a convolution, [b, h_out w_out, kh kw c_in].

  The convolution is the product of U(x) and the kernel matrix. Item NET-02.
  """
  mode = 'wrap' if shape.padding == 'circular' else 'constant'
  padded = jnp.pad(x, [(0, 0), *shape.pads(kernel_size), (0, 0)], mode=mode)
  (rows, columns), (down, right) = shape.output_size(kernel_size), shape.strides
  taps = [padded[:, i:i + (rows - 1) * down + 1:down,
                 j:j + (columns - 1) * right + 1:right]
          for i in range(kernel_size[0]) for j in range(kernel_size[1])]
  return jnp.stack(taps, 3).reshape((x.shape[0], rows * columns, -1))


def kernel_gradients(x: Array, cotangent: Array, kernel_size: Size,
                     shape: ConvShape) -> Array:
  """Returns each record's kernel gradient U(x)^T delta.

  Args:
    x: inputs [b, h, w, c_in].
    cotangent: delta, loss gradients at the output [b, h_out, w_out, c_out].
    kernel_size: (kh, kw).
    shape: geometry of the convolution.

  Returns:
    Per-record gradients [b, kh, kw, c_in, c_out].
  """
  def product(record: tuple[Array, Array]) -> Array:
    image, delta = record
    patches = windows(image[None], kernel_size, shape)[0]
    return jnp.einsum('sk,sc->kc', patches,
                      delta.reshape((-1, delta.shape[-1])),
                      precision=jax.lax.Precision.HIGHEST)

  if jax.default_backend() == 'cpu':
    # The windows of a few records fit into the cache: several times as fast as
    # one product of all windows.
    products = jax.lax.map(product, (x, cotangent), batch_size=_CACHED_RECORDS)
  else:
    products = jax.vmap(product)((x, cotangent))
  return products.reshape((x.shape[0], *kernel_size, x.shape[-1],
                           cotangent.shape[-1]))


def check_shape(kernel_shape: tuple[int, ...], shape: ConvShape) -> None:
  """Raises ValueError for a geometry that this module has no bound for."""
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


def multiplicity(kernel_size: Size, strides: Size) -> int:
  """Returns the most windows one pixel enters, ceil(kh / sh) ceil(kw / sw).

  sqrt(multiplicity) ||x|| bounds the norm of all patches of x together, and so
  the Jacobian of the convolution in its kernel. Barczewski (2025, Theorem
  5.2.1) covers stride 1 only: erratum E7 (iii). Item NET-02.
  """
  return math.prod(-(-k // s) for k, s in zip(kernel_size, strides,
                                              strict=True))


def reshape_upper_bound(kernel: Array, shape: ConvShape, *,
                        num_iterations: int = 6) -> Array:
  """Bounds the norm by sqrt(multiplicity) times that of the kernel matrix.

  Certified, cheap and loose: up to sqrt(multiplicity) times the true norm.
  Without this factor it would not be a bound. Item NET-02, erratum E7 (ii).
  """
  check_shape(kernel.shape, shape)
  matrix = kernel.reshape((-1, kernel.shape[-1]))
  factor = multiplicity(kernel.shape[:2], shape.strides)**0.5 * (1 + 1e-6)
  return factor * norms.spectral_upper_bound(matrix,
                                             num_iterations=num_iterations)


def drifted_bound(bound: Array, old_kernel: Array, new_kernel: Array,
                  shape: ConvShape, *, num_iterations: int = 2) -> Array:
  """Returns a certified bound for a kernel that changed since the last bound.

  By the triangle inequality ||K + dK|| <= ||K|| + `reshape_upper_bound`(dK).
  It costs a small part of `fourier_upper_bound`, but the slack adds up over
  steps. For a Gaussian dK it is far below ||K|| + sqrt(multiplicity) ||dK||_F.

  Args:
    bound: certified bound for `old_kernel`.
    old_kernel: [kh, kw, c_in, c_out].
    new_kernel: kernel in use, of the same shape.
    shape: geometry of both.
    num_iterations: iterations for the norm of the difference.
  """
  # Covers one rounding of the difference and one of the sum.
  drift = reshape_upper_bound(new_kernel - old_kernel, shape,
                              num_iterations=num_iterations)
  return (bound + (1 + 1e-5) * drift) * (1 + 2 * _UNIT_ROUNDOFF)


def as_computed(bound: Array, kernel: Array, shape: ConvShape, *,
                input_roundoff: float) -> Array:
  """Enlarges a bound to cover rounded products and sums.

  With inputs rounded by a relative u and sums of m = kh kw c_in products in
  float32, each output changes by at most (1 + u)^2 (1 + (m + 1) 2^-23) - 1
  times the convolution of |x| with |K|, whose norm is at most
  sqrt(multiplicity) ||K||_F. It also holds for the transposed map of backward
  passes, with c_out for c_in, and for direct and implicit-product algorithms,
  but not for Winograd's.

  Args:
    bound: certified bound in real arithmetic.
    kernel: [kh, kw, c_in, c_out].
    shape: geometry of the convolution.
    input_roundoff: u; 2^-11 for TensorFloat-32, 2^-8 for bfloat16, 0 for
      float32.
  """
  errors.check_non_negative('input_roundoff', input_roundoff)
  check_shape(kernel.shape, shape)
  kh, kw, c_in, c_out = kernel.shape
  terms = kh * kw * max(c_in, c_out) + 1
  part = (1 + input_roundoff)**2 * (1 + terms * 2.0**-23) - 1
  # The spectral norm of one row is its Frobenius norm.
  size = norms.spectral_upper_bound(kernel.reshape((1, -1)))
  root = multiplicity((kh, kw), shape.strides)**0.5
  return (bound + (1 + 1e-6) * part * root * size) * (1 + 2 * _UNIT_ROUNDOFF)


def fourier_upper_bound(kernel: Array, shape: ConvShape, *,
                        num_iterations: int = 6,
                        grid: int | None = None) -> Array:
  """Computes a certified upper bound of the norm; jittable, float32.

  1. With the stride's phases as channels, every convolution has stride 1.
  2. A zero-padded convolution is the circular one on a torus so large that no
     output reads across its seam, restricted to some inputs and outputs. So
     its norm is no larger. (The torus of the image's size is too small.)
  3. On the torus the norm is the largest, over frequencies, of the norms of
     the kernel's Fourier matrices c_out x (phases c_in).
  4. On a `grid` of N < torus frequencies an axis with k taps, let (u, v) be
     the singular vectors at the best frequency. p(t) = Re(e^(i c) u^* K(t) v),
     shifted by (k - 1) / 2 taps, is a real trigonometric polynomial of degree
     d = (k - 1) / 2. From its maximum it falls no faster than cos(d t) (M.
     Riesz), and a grid point is within pi / N, so, for each axis,

       max ||K|| <= max over the grid / cos(pi (k - 1) / (2 N)).

  The torus gives the norm for circular padding, and a few per cent more for
  images much larger than the kernel, times the factor of Gram iteration. A grid
  adds 8, 4 and 2 % per axis for k = 3 and N = 8, 12, 16; on 28 x 28 images it
  needs 34, 74 and 130 frequencies (up to conjugation), not 421.
  Items SPEC-05 and SPEC-06 with a smaller torus; erratum E7 (iv).

  Args:
    kernel: [kh, kw, c_in, c_out].
    shape: geometry of the convolution.
    num_iterations: see `norms.spectral_upper_bound`.
    grid: N >= ceil(k / s), or None for the torus, which is also used where it
      is no larger. An axis with ceil(k / s) = 2 uses half of N at equal slack.

  Returns:
    A scalar, NaN or infinite if an entry of the kernel is.
  """
  check_shape(kernel.shape, shape)
  # Step 1 of the docstring, then 2 and 4.
  phases = phases_as_channels(kernel, shape.strides)
  sides, correction = _frequency_grid(phases.shape, kernel.shape, shape, grid)
  # One scale serves all frequencies: by Parseval the largest norm is at least
  # the largest entry over sqrt(rank), so no tiny frequency is the maximum.
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
  """Computes the torus bound by float64 SVD on the host, rounded up. SPEC-03.

  Returns NaN if an entry is not finite.
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
  """Computes a *lower* bound by power iteration; never use it for sensitivity.

  Args:
    kernel: [kh, kw, c_in, c_out].
    shape: geometry of the convolution.
    start: [h, w, c_in] image, not orthogonal to the leading singular vector;
      the vector of the previous step is a good start.
    num_iterations: at least 1.

  Returns:
    (norm of the convolution of v, v) with v of unit norm. Item SPEC-02.
  """
  return norms.power_iteration_of_map(
      lambda x: convolve(x[None], kernel, shape,
                         precision=jax.lax.Precision.HIGHEST)[0],
      start, num_iterations=num_iterations)


def torus_size(kernel_size: Size, shape: ConvShape) -> Size:
  """Returns the sides of the torus that `fourier_upper_bound` uses.

  Count in blocks of one stride. With k = ceil(taps / stride), output m reads
  the blocks m .. m + k - 1 of the padded image; the image fills first .. last.
  Only outputs that read the image count: low = max(0, first - k + 1) to high.
  No output reads across the seam of a torus of N blocks if
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
    # With fewer points than taps, taps would alias and add up.
    sides.append(max(high + blocks - first, last + 1 - low, blocks))
  return tuple(sides)


def _frequency_grid(phases_shape: tuple[int, ...],
                    kernel_shape: tuple[int, ...], shape: ConvShape,
                    grid: int | None) -> tuple[Size, float]:
  """Returns the frequencies of each axis and the factor for their maximum."""
  sides, correction = [], 1.0
  for taps, side in zip(phases_shape[:2], torus_size(kernel_shape[:2], shape),
                        strict=True):
    if taps == 1:
      side = 1
    elif grid is not None:
      errors.check_at_least('grid', grid, taps)
      # Two taps on N / 2 points have the same correction as three on N points.
      points = max(taps, -(-grid // 2)) if taps == 2 else grid
      if points < side:
        side = points
        correction /= math.cos(math.pi * (taps - 1) / (2 * side))
    sides.append(side)
  return tuple(sides), correction


def phases_as_channels(kernel: _Kernel, strides: Size) -> _Kernel:
  """Reshapes [kh, kw, ci, co] to [ceil(kh/sh), ceil(kw/sw), phases ci, co].

  Phases that no tap reads, under strides larger than the kernel, are dropped.
  """
  kh, kw, c_in, c_out = kernel.shape
  sh, sw = min(strides[0], kh), min(strides[1], kw)
  numpy = np if isinstance(kernel, np.ndarray) else jnp
  padded = numpy.pad(kernel, [(0, -kh % sh), (0, -kw % sw), (0, 0), (0, 0)])
  split = padded.reshape((-(-kh // sh), sh, -(-kw // sw), sw, c_in, c_out))
  return split.transpose((0, 2, 1, 3, 4, 5)).reshape(
      (split.shape[0], split.shape[2], sh * sw * c_in, c_out))


def _transform(kernel: Array, sides: Size) -> Array:
  """Computes the discrete Fourier transform, [frequencies, c, c_out].

  Kernels have few taps, so products with cosines and sines replace an FFT. One
  frequency of each conjugate pair is kept; both have the same norm.
  """
  if sides == (1, 1):
    return kernel[0]
  frequencies = [(i, j) for i in range(sides[0]) for j in range(sides[1])
                 if (i, j) <= (-i % sides[0], -j % sides[1])]
  places = np.moveaxis(np.mgrid[:kernel.shape[0], :kernel.shape[1]], 0, -1)
  angles = 2 * np.pi * (np.array(frequencies) / sides) @ places.reshape(
      (-1, 2)).T
  taps = kernel.reshape((angles.shape[1], -1))
  parts = [jnp.matmul(jnp.asarray(wave, jnp.float32), taps,
                      precision=jax.lax.Precision.HIGHEST)
           for wave in (np.cos(angles), -np.sin(angles))]
  return jax.lax.complex(*parts).reshape((-1,) + kernel.shape[2:])
