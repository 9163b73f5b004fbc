"""These tests compare bounds of convolutions with the SVD of dense matrices.

They cover items SPEC-02, SPEC-03, SPEC-05, SPEC-06 and errata E7 (ii) to (iv),
E9, E10.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import convolution
from dpjax.lipschitz import norms
from dpjax.lipschitz.convolution import ConvShape

# Each case has a kernel shape and a geometry: odd and even sizes, strides up to
# beyond the kernel.
GEOMETRIES = [
  ((1, 1, 3, 4), ConvShape((4, 5))),
  ((1, 1, 4, 3), ConvShape((5, 4), (2, 2))),
  ((1, 1, 2, 3), ConvShape((7, 6), (3, 3))),
  ((3, 3, 2, 3), ConvShape((6, 6))),
  ((3, 3, 3, 1), ConvShape((7, 6), (2, 2))),
  ((3, 3, 1, 3), ConvShape((8, 7), (2, 2))),
  ((3, 3, 2, 2), ConvShape((9, 8), (3, 3))),
  ((2, 2, 3, 3), ConvShape((7, 8), (3, 3))),
  ((5, 5, 2, 2), ConvShape((6, 7))),
  ((5, 5, 1, 2), ConvShape((9, 8), (2, 2))),
  ((4, 4, 2, 2), ConvShape((7, 6))),
  ((4, 4, 2, 3), ConvShape((9, 8), (2, 2))),
  ((3, 5, 2, 2), ConvShape((6, 9), (1, 2))),
  ((1, 4, 2, 2), ConvShape((4, 10), (2, 1))),
  ((5, 5, 2, 2), ConvShape((3, 2))),
  ((3, 3, 2, 3), ConvShape((6, 7), padding='valid')),
  ((4, 3, 2, 3), ConvShape((9, 8), (2, 3), 'valid')),
  ((3, 3, 3, 2), ConvShape((6, 7), padding='circular')),
  ((4, 3, 2, 2), ConvShape((8, 6), (2, 3), 'circular')),
  ((3, 3, 2, 2), ConvShape((8, 7), (2, 2), ((1, 1), (1, 1)))),
  ((5, 5, 2, 1), ConvShape((7, 8), (1, 1), ((2, 2), (2, 2)))),
  ((4, 4, 2, 2), ConvShape((6, 7), (2, 2), ((1, 1), (1, 1)))),
  ((3, 3, 2, 2), ConvShape((5, 4), (1, 1), ((2, 2), (4, 0)))),
]
SCALES = (1e-20, 1e-6, 1., 1e6, 1e20)
_name = lambda value: str(value).replace('ConvShape', '')


def _svd(matrices):
  """Returns largest singular values by the smaller Gram matrix, to 1e-14."""
  other = np.swapaxes(matrices, -2, -1).conj()
  pair = (matrices, other) if (matrices.shape[-2] < matrices.shape[-1]) else (
    other, matrices)
  return np.sqrt(np.maximum(np.linalg.eigvalsh(pair[0] @ pair[1])[..., -1], 0))


def _kernels(shape, seed=0):
  """Returns kernels [20, ...] of four kinds at each of the scales.

  The kinds are Gaussian, ones, rank one, and a sparse difference.
  """
  rng = np.random.default_rng(seed)
  kernels = []
  for scale, kind in itertools.product(SCALES, range(4)):
    kernel = rng.normal(size=shape)
    if kind == 1:
      kernel = np.ones(shape)
    elif kind == 2:
      kernel = functools.reduce(np.multiply.outer,
                                [rng.normal(size=n) for n in shape])
    elif kind == 3:
      kernel = np.where(rng.random(shape) < 0.3, kernel, 0.)
      kernel[0, 0] += 1
      kernel[-1, -1] -= 1
    kernels.append(kernel * scale)
  return np.float32(kernels)


@functools.cache
def _compiled(shape, grid=None, num_iterations=6):
  return jax.jit(jax.vmap(lambda kernel: convolution.fourier_upper_bound(
    kernel, shape, grid=grid, num_iterations=num_iterations)))


def _upper(kernels, shape, **options):
  return np.float64(_compiled(shape, **options)(jnp.asarray(kernels)))


def _exact(kernels, shape):
  return np.array([convolution.exact_upper_bound(kernel, shape)
                   for kernel in kernels])


@pytest.mark.every(4)
@pytest.mark.parametrize('kernel_shape, shape', GEOMETRIES, ids=_name)
def test_bounds_are_above_the_dense_svd(operator_matrix, kernel_shape, shape):
  kernels = _kernels(kernel_shape)
  matrices = operator_matrix(kernels, shape)
  truth, exact = _svd(matrices), _exact(kernels, shape)
  bounds = _upper(kernels, shape)
  some = truth > 0
  assert np.all(exact >= truth) and np.all(bounds >= exact * (1 - 1e-9))
  # The bound may exceed by Gram iteration's factor; up to rank two it is exact.
  rank = min(kernel_shape[2] * 9, kernel_shape[3])
  loose = 1 if rank <= 2 else rank**2.0**-7
  assert np.all((bounds / exact)[some] <= loose * (1 + 1e-4))
  # The matrix is that of the map which layers apply.
  image = np.random.default_rng(1).normal(
    size=(1,) + shape.input_size + kernel_shape[2:3]).astype(np.float32)
  output = convolution.convolve(jnp.asarray(image), jnp.asarray(kernels[8]),
                                shape)
  assert output.shape[1:3] == shape.output_size(kernel_shape[:2])
  np.testing.assert_allclose(np.ravel(output), matrices[8] @ image.ravel(),
                             rtol=1e-4, atol=1e-4)


def test_tori_of_all_geometries_are_large_enough(operator_matrix):
  """Tori of all geometries give norms of at least the dense SVD's.

  All bounds rest on this; no program is compiled.
  """
  for number, (kernel_shape, shape) in enumerate(GEOMETRIES):
    kernels = _kernels(kernel_shape, seed=number)[8:12]
    matrices = operator_matrix(kernels, shape)
    ratios = _exact(kernels, shape) / _svd(matrices)
    assert np.all(1 <= ratios), (kernel_shape, shape)
    if shape.padding == 'circular':
      np.testing.assert_allclose(ratios, 1, rtol=1e-8)
    # A pixel is in as many windows as the bound of all patches says, at most.
    seen = np.abs(operator_matrix(np.ones(kernel_shape), shape)).sum(0)
    most = convolution.multiplicity(kernel_shape[:2], shape.strides)
    assert seen.max() <= most * kernel_shape[3]
    assert matrices.shape[1] == kernel_shape[3] * np.prod(
      shape.output_size(kernel_shape[:2]))


@pytest.mark.slow
@pytest.mark.parametrize('kernel_shape, shape', GEOMETRIES[3::5], ids=_name)
def test_cheaper_bounds_are_above_too(operator_matrix, kernel_shape, shape):
  kernels = _kernels(kernel_shape, seed=1)
  truth = _svd(operator_matrix(kernels, shape))
  reshaped = jax.vmap(lambda k: convolution.reshape_upper_bound(k, shape))
  assert np.all(np.float64(reshaped(kernels)) >= truth)
  for grid in (5, 6):
    assert np.all(_upper(kernels, shape, grid=grid) >= truth)


@pytest.mark.slow
def test_tight_where_images_are_large_beside_kernels(operator_matrix):
  rng = np.random.default_rng(0)
  cases = [((3, 3), (1, 1), 1.05), ((5, 5), (1, 1), 1.13),
           ((3, 3), (2, 2), 1.05), ((5, 5), (2, 2), 1.11),
           ((3, 3), (3, 3), 1 + 1e-3), ((4, 4), (2, 2), 1.05)]
  for taps, strides, largest in cases:
    shape = ConvShape((12, 12), strides)
    kernels = np.float32(rng.normal(size=(3,) + taps + (2, 2)))
    ratio = (_exact(kernels, shape)
             / _svd(operator_matrix(kernels, shape)))
    assert ratio.max() <= largest


def test_circular_is_exact(operator_matrix):
  for strides in ((1, 1), (2, 2), (2, 4)):
    shape = ConvShape((8, 8), strides, 'circular')
    kernels = _kernels((3, 3, 2, 2))
    np.testing.assert_allclose(_exact(kernels, shape),
                               _svd(operator_matrix(kernels, shape)), rtol=1e-9)


@pytest.mark.every(2)
def test_published_norms(operator_matrix):
  """Reshaped, true and circular norms of constant kernels are as published.

  This covers items SPEC-05 and NET-02.
  """
  for taps, reshaped, true, circular in ((3, 3., 8.291, 9.),
                                         (5, 5., 20.047, 25.)):
    kernel = np.ones((taps, taps, 1, 1), np.float32)
    shape = ConvShape((8, 8))
    around = ConvShape((8, 8), padding='circular')
    assert norms.exact_upper_bound(
      kernel.reshape((-1, 1))) == pytest.approx(reshaped)
    assert _svd(operator_matrix(kernel, shape)) == pytest.approx(true, abs=1e-3)
    assert convolution.exact_upper_bound(kernel, around) == pytest.approx(
      circular)
    assert convolution.exact_upper_bound(kernel, shape) == pytest.approx(
      circular)
    assert float(convolution.reshape_upper_bound(
      jnp.asarray(kernel), shape)) == pytest.approx(taps * reshaped, rel=1e-4)


def test_a_torus_of_the_size_of_the_image_is_no_bound(operator_matrix):
  """A torus of the image's own size is no bound for (1, 0, -1) on six pixels.

  This is the trap of item SPEC-05.
  """
  kernel = np.array([1, 0, -1], np.float32).reshape((1, 3, 1, 1))
  shape = ConvShape((1, 6))
  truth = _svd(operator_matrix(kernel, shape))
  torus = lambda n: np.abs(np.fft.fft(kernel.ravel(), n)).max()
  assert truth == pytest.approx(1.8019, abs=1e-4)
  assert torus(6) == pytest.approx(1.7321, abs=1e-4)
  assert torus(8) == pytest.approx(2.0)
  # One more pixel is enough, and tighter than the published two.
  assert convolution.torus_size((1, 3), shape) == (1, 7)
  assert truth <= torus(7) == pytest.approx(
    convolution.exact_upper_bound(kernel, shape))


def test_reshaped_kernel_alone_is_no_bound():
  """The reshaped kernel alone gives only .606 of the norm (E7 ii and iv).

  The kernel has 32 input and 64 output channels.
  """
  kernel = np.random.default_rng(1).normal(size=(3, 3, 32, 64))
  kernel = kernel.astype(np.float32)
  shape = ConvShape((14, 14))
  torus = convolution.exact_upper_bound(kernel, shape)
  reshaped = norms.exact_upper_bound(kernel.reshape((-1, 64)))
  assert reshaped / torus == pytest.approx(0.606, abs=0.001)
  assert 3 * reshaped / torus == pytest.approx(1.82, abs=0.005)
  bound = _upper(kernel[None], shape, num_iterations=4)[0]
  assert 1 <= bound / torus <= 1.0077


def test_drift_is_covered():
  rng = np.random.default_rng(0)
  shape = ConvShape((9, 9), (2, 2))
  drifted = jax.jit(lambda bound, old, new: convolution.drifted_bound(
    bound, old, new, shape))
  old = np.float32(rng.normal(size=(3, 3, 4, 8)))
  bound = _upper(old[None], shape)[0]
  for size in (1e-4, 1e-2, 1.):
    new = old + np.float32(size * rng.normal(size=old.shape))
    drifted_bound = float(drifted(jnp.float32(bound), old, new))
    assert drifted_bound >= convolution.exact_upper_bound(new, shape)
    frobenius = 2 * np.linalg.norm(np.float64(new - old))
    assert drifted_bound - bound <= frobenius * (1 + 1e-3) + bound * 1e-6
  # Growth by a factor attains the triangle inequality but for the root.
  twice = float(drifted(jnp.float32(bound), old, 2 * old))
  assert twice >= 2 * convolution.exact_upper_bound(old, shape)
  # An unmoved kernel costs next to nothing, and NaN is not lost.
  assert float(drifted(jnp.float32(bound), old, old)) <= bound * (1 + 1e-6)
  assert np.isnan(drifted(jnp.float32(bound), old, old * np.float32(np.nan)))


def _round_to_bits(x, bits):
  """Returns the nearest numbers with so many bits of significand."""
  mantissa, exponent = np.frexp(np.float64(x))
  return np.ldexp(np.round(mantissa * 2**bits), exponent - bits)


def test_rounded_products_stay_below_as_computed(operator_matrix):
  """The bound covers products whose inputs are rounded to few bits.

  The bits are those of TensorFloat-32 and bfloat16; each kernel entry rounds
  up.
  """
  # This geometry has an exact bound, so that nothing hides the rounding.
  shape = ConvShape((6, 6), padding='circular')
  for bits in (11, 8):
    kernel = np.full((3, 3, 2, 3), 1 + 1.01 * 2.0**-bits, np.float32)
    bound = jnp.float32(convolution.exact_upper_bound(kernel, shape))
    computed_bound = float(convolution.as_computed(
      bound, jnp.asarray(kernel), shape, input_roundoff=2.0**-bits))
    rounded = _svd(operator_matrix(_round_to_bits(kernel, bits), shape))
    # Without the allowance the certificate would not hold.
    assert rounded > float(bound) * (1 + 0.9 * 2.0**-bits)
    # The image is rounded too, by at most as much in norm.
    assert rounded * (1 + 2.0**-bits) <= computed_bound
    assert computed_bound <= float(bound) * (1 + 2.1 * 2.0**-bits + 1e-5)
  exact = float(convolution.as_computed(bound, jnp.asarray(kernel), shape,
                                        input_roundoff=0.))
  assert 1 < exact / float(bound) < 1 + 1e-5


@pytest.mark.every(3)
@pytest.mark.parametrize('kernel_shape, shape', [
  ((3, 3, 2, 3), ConvShape((8, 8))),
  ((4, 3, 2, 2), ConvShape((8, 9), (2, 3))),
  ((3, 3, 2, 2), ConvShape((8, 8), padding='circular'))], ids=_name)
def test_power_iteration_agrees_with_the_dense_svd(operator_matrix,
                                                   kernel_shape, shape):
  """Power iteration approaches the dense SVD
  from below in 500 rounds (SPEC-02).

  After one round it is still far below (E9).
  """
  rng = np.random.default_rng(0)
  # A mean sets the largest singular value apart.
  kernel = jnp.asarray(rng.normal(size=kernel_shape) + 0.7, jnp.float32)
  start = jnp.asarray(rng.normal(size=shape.input_size + kernel_shape[2:3]),
                      jnp.float32)
  truth = _svd(operator_matrix(kernel, shape))
  ratios = [float(convolution.power_iteration(
    kernel, shape, start, num_iterations=t)[0]) / truth for t in (1, 500)]
  assert ratios[0] < 0.97
  assert ratios[1] == pytest.approx(1, abs=2e-6)


def test_adjoint():
  """The transposed map satisfies <f(x), y> =
  <x, f^T(y)>, strided or wrapped."""
  rng = np.random.default_rng(0)
  draw = lambda *size: jnp.asarray(rng.normal(size=size), jnp.float32)
  for shape in (ConvShape((7, 6), (2, 3)),
                ConvShape((6, 6), (2, 2), 'circular')):
    kernel, x = draw(3, 4, 2, 3), draw(1, *shape.input_size, 2)
    apply = lambda x, k=kernel, s=shape: convolution.convolve(x, k, s)
    y = draw(*apply(x).shape)
    back, = jax.linear_transpose(apply, x)(y)
    assert float(jnp.sum(apply(x) * y)) == pytest.approx(
      float(jnp.sum(x * back)), rel=1e-4)


def test_zero_and_not_finite():
  shape = ConvShape((5, 5))
  kernel = np.zeros((1, 3, 3, 2, 3), np.float32)
  assert _upper(kernel, shape)[0] == 0
  assert _exact(kernel, shape)[0] == 0
  for bad in (np.nan, np.inf, -np.inf):
    kernel[0, 1, 2, 0, 1] = bad
    assert not np.isfinite(_upper(kernel, shape)[0])
    assert not np.isfinite(_exact(kernel, shape)[0])
    assert not np.isfinite(convolution.reshape_upper_bound(kernel[0], shape))


@pytest.mark.parametrize('shape, message', [
  (ConvShape((8, 8), padding='same'), 'padding must be one of'),
  (ConvShape((8, 8), (0, 1)), 'stride must be an integer >= 1'),
  (ConvShape((2, 8), padding='valid'), '3 taps does not fit'),
  (ConvShape((2, 8), padding='circular'), '3 taps does not fit'),
  (ConvShape((8, 8), padding=((0, 0), (-1, 2))), 'padding must be an integer'),
  (ConvShape((7, 8), (2, 2), 'circular'), 'stride that divides the image')])
def test_refusals(shape, message):
  kernel = jnp.ones([3, 3, 1, 1])
  with pytest.raises(ValueError, match=message):
    convolution.fourier_upper_bound(kernel, shape)
  with pytest.raises(ValueError, match=message):
    convolution.convolve(jnp.ones([1, *shape.input_size, 1]), kernel, shape)


def test_refuses_kernels_and_grids_that_are_none():
  with pytest.raises(ValueError, match='a kernel has shape'):
    convolution.fourier_upper_bound(jnp.ones([3, 3, 1]), ConvShape((8, 8)))
  with pytest.raises(ValueError, match='grid must be an integer >= 3'):
    convolution.fourier_upper_bound(jnp.ones([3, 3, 1, 1]), ConvShape((8, 8)),
                                    grid=2)


@pytest.mark.parametrize('fault', ['image', 'no_phases', 'half'])
def test_faults_fall_below_the_dense_svd(operator_matrix, fault):
  """Faulty bounds fall below the dense SVD; the library's bound does not.

  The faults are a small torus, a halved strided norm and missing frequencies.
  """
  shape = ConvShape((6, 6), (2, 2) if fault == 'no_phases' else (1, 1))
  rng = np.random.default_rng(0)
  kernels = np.float32(rng.normal(size=(60, 3, 3, 1, 1)))
  kernels -= kernels[:, ::-1] if fault == 'image' else 0
  truth = _svd(operator_matrix(kernels, shape))
  side = (6, 6) if fault == 'image' else (7, 7)
  spectrum = np.abs(np.fft.fft2(kernels[..., 0, 0], side))
  if fault == 'no_phases':
    spectrum = spectrum / 2
  if fault == 'half':
    spectrum = spectrum[:, :4, :4]
  assert np.min(spectrum.max((1, 2)) / truth) < 0.999
  assert np.min(_upper(kernels, shape) / truth) >= 1
