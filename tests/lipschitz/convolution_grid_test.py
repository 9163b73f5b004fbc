"""These tests check image patches and bounds from a grid of frequencies."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import convolution
from dpjax.lipschitz.convolution import ConvShape


def _svd(matrices):
  """Returns largest singular values by the smaller Gram matrix, to 1e-14."""
  other = np.swapaxes(matrices, -2, -1).conj()
  pair = (matrices, other) if (matrices.shape[-2] < matrices.shape[-1]) else (
    other, matrices)
  return np.sqrt(np.maximum(np.linalg.eigvalsh(pair[0] @ pair[1])[..., -1], 0))


@functools.cache
def _compiled(shape, grid=None, num_iterations=6):
  return jax.jit(jax.vmap(lambda kernel: convolution.fourier_upper_bound(
    kernel, shape, grid=grid, num_iterations=num_iterations)))


def _upper(kernels, shape, **options):
  return np.float64(_compiled(shape, **options)(jnp.asarray(kernels)))


def _exact(kernels, shape):
  return np.array([convolution.exact_upper_bound(kernel, shape)
                   for kernel in kernels])


def test_torus_is_the_least_without_a_seam():
  """The torus is the smallest on which no output mixes up wrapped inputs.

  The test tries one side less for random geometries.
  """
  rng = np.random.default_rng(0)
  for _ in range(300):
    size, taps, stride, before, after = rng.integers((1, 1, 1, 0, 0),
                                                     (9, 6, 4, 5, 5))
    if taps > size + before + after:
      continue
    shape = ConvShape((1, int(size)), (1, int(stride)),
                      ((0, 0), (int(before), int(after))))
    blocks = -(-taps // stride)
    outputs = (size + before + after - taps) // stride + 1
    held = {(before + pixel) // stride for pixel in range(size)}
    held &= set(range(outputs + blocks - 1))
    reads = {m: {b for b in range(m, m + blocks)} for m in range(outputs)
             if held & set(range(m, m + blocks))}

    def seamless(side, held=held, reads=reads):
      """Returns whether each kept output reads
      the same on the torus as on the line."""
      apart = len({m % side for m in reads}) == len(reads)
      return apart and len({b % side for b in held}) == len(held) and all(
        {b for b in held if b % side in {r % side for r in read}}
        == held & read for read in reads.values())

    side = convolution.torus_size((1, int(taps)), shape)[1]
    assert seamless(side)
    assert side == blocks or not seamless(side - 1)


@pytest.mark.every(3)
@pytest.mark.parametrize('taps, stride, published, root', [
  (3, 1, 2.670, 3), (5, 1, 4.018, 5), (3, 2, 1.340, 2), (5, 2, 2.014, 3)])
def test_patches(taps, stride, published, root):
  """The Jacobian in the kernel has norm at most
  sqrt(multiplicity) ||x|| (E7 iii)."""
  shape = ConvShape((10, 10), (stride, stride))
  image = jnp.ones([1, 10, 10, 1])
  jacobian = jax.jacobian(lambda k: convolution.convolve(image, k, shape))(
    jnp.zeros([taps, taps, 1, 1]))
  norm = _svd(np.float64(jacobian).reshape((-1, taps**2))) / 10
  assert norm == pytest.approx(published, abs=1e-3)
  assert convolution.multiplicity((taps, taps), (stride, stride)) == root**2
  assert norm <= root


def test_multiplicity_is_attained_with_circular_padding():
  shape = ConvShape((6, 6), padding='circular')
  jacobian = jax.jacobian(lambda k: convolution.convolve(
    jnp.ones([1, 6, 6, 1]), k, shape))(jnp.zeros([3, 3, 1, 1]))
  assert _svd(np.float64(jacobian).reshape((-1, 9))) == pytest.approx(3 * 6)


@pytest.mark.every(2)
@pytest.mark.parametrize('taps, side', [(2, 3), (2, 5), (3, 6), (3, 10)])
def test_grid_factor_is_attained(taps, side):
  """The grid factor is attained by a kernel
  that peaks between two frequencies."""
  kernel = np.zeros((1, taps, 1, 1), np.float32)
  kernel[0, 0], kernel[0, -1] = 1, -1
  shape = ConvShape((1, 200))
  sampled = np.abs(np.fft.fft(kernel.ravel(), side)).max()
  factor = np.cos(np.pi * (taps - 1) / (2 * side))
  assert sampled == pytest.approx(2 * factor)
  grid = 2 * side if taps == 2 else side
  assert _upper(kernel[None], shape, grid=grid)[0] == pytest.approx(2, rel=1e-5)


def test_grid_is_a_bound_on_every_torus():
  rng = np.random.default_rng(0)
  shape = ConvShape((64, 64))
  for taps, grid in (((3, 3), 3), ((3, 3), 8), ((4, 4), 4), ((5, 2), 8)):
    kernels = np.float32(rng.normal(size=(20,) + taps + (2, 2)))
    fine = np.fft.fft2(np.float64(kernels), (48, 48), axes=(1, 2))
    largest = _svd(fine).max((1, 2))
    ratio = _upper(kernels, shape, grid=grid) / largest
    worst = np.prod([1 / np.cos(np.pi * (k - 1) / 2 / (
      grid // 2 if k == 2 else grid)) for k in taps])
    assert ratio.min() >= 1 and ratio.max() <= worst * (1 + 1e-3)


@pytest.mark.every(2)
def test_fault_grid_without_its_factor():
  kernels = np.float32(np.random.default_rng(0).normal(size=(40, 3, 3, 2, 2)))
  shape = ConvShape((64, 64))
  factor = np.cos(np.pi / 8)**2
  assert np.min(_upper(kernels, shape, grid=8) * factor
                / _exact(kernels, shape)) < 0.99
