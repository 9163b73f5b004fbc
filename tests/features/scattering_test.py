"""Tests the scattering transform against Kymatio and its definition."""

import numpy as np
import pytest

from dpjax.features import scattering
from dpjax.features.scattering import Scattering

pytestmark = pytest.mark.every(3)

# Sides that are odd, unequal and small, and several scales and angles.
_CASES = [((28, 28, 1), 2, 8, 2), ((16, 16, 3), 2, 8, 2),
          ((32, 24, 1), 3, 6, 2), ((9, 11, 2), 1, 3, 2), ((8, 8, 1), 2, 8, 1),
          ((13, 16, 1), 2, 5, 2)]


def _images(shape, num=3, seed=0):
  return np.random.default_rng(seed).random((num, *shape)).astype(np.float32)


@pytest.mark.parametrize('shape, scale, angles, order', _CASES)
def test_coefficients_are_those_of_kymatio(shape, scale, angles, order):
  kymatio = pytest.importorskip(
    'kymatio.scattering2d.frontend.numpy_frontend')
  x = _images(shape)
  peer = kymatio.ScatteringNumPy2D(
    J=scale, shape=shape[:2], L=angles, max_order=order)
  wanted = peer(np.moveaxis(x, -1, 1).copy())
  wanted = np.moveaxis(wanted.reshape(len(x), -1, *wanted.shape[-2:]), 1, -1)
  transform = Scattering(image_shape=shape, scale=scale, angles=angles,
                         order=order)
  ours = np.asarray(transform(x))
  assert ours.shape[1:] == wanted.shape[1:] == transform.output_shape
  assert np.abs(ours - wanted).max() <= 2e-6 * np.abs(wanted).max()
  # Coefficients of order two are small, so each is compared by itself, too.
  axes = (0, 1, 2)
  assert (np.abs(ours - wanted).max(axes) <=
          1e-5 * np.abs(wanted).max(axes)).all()


def test_order_one_is_the_modulus_of_a_convolution():
  """One path by plain convolutions in space, in float64, with pi itself."""
  x = _images((16, 16, 1), num=1)[0, ..., 0].astype(np.float64)
  scale, angles, j, angle = 2, 4, 1, 3
  ours = Scattering(image_shape=(16, 16, 1), scale=scale, angles=angles)(
    x[None, ..., None].astype(np.float32))[0, ..., 1 + j * angles + angle]
  padded = np.pad(x, 4, 'reflect')
  size = np.arange(-60, 61)
  y, x = np.meshgrid(size, size, indexing='ij')
  theta = (angles // 2 - 1 - angle) * np.pi / angles
  along = y * np.cos(theta) + x * np.sin(theta)
  across = x * np.cos(theta) - y * np.sin(theta)
  # With four angles the envelope is round.
  envelope = np.exp(-(along**2 + across**2) / 2 / 1.6**2) / (
    2 * np.pi * 1.6**2)
  wave = envelope * np.exp(1j * 3 * np.pi / 8 * along)
  wave -= envelope * wave.sum() / envelope.sum()
  blur = np.exp(-(x**2 + y**2) / 2 / 1.6**2) / (2 * np.pi * 1.6**2)
  # Convolutions on the torus; the modulus is sampled at every second pixel.
  modulus = np.abs(_around(padded, wave))[::2, ::2]
  averages = _around(modulus, blur, step=2)[::2, ::2]
  # The transform cuts off frequencies that a sampled Gaussian folds back.
  np.testing.assert_allclose(ours, averages[1:-1, 1:-1], rtol=1e-2)


def _around(image, kernel, step=1):
  """Returns the circular convolution of an image with a kernel in space.

  Samples of the kernel that are `step` apart are used, and weighted for it.
  """
  half = kernel.shape[0] // 2
  result = np.zeros(image.shape, kernel.dtype)
  for a in range(-half // step, half // step + 1):
    for b in range(-half // step, half // step + 1):
      if abs(a * step) <= half and abs(b * step) <= half:
        result = result + step**2 * kernel[
          half + a * step, half + b * step] * np.roll(image, (a, b), (0, 1))
  return result


def test_constant_images_have_coefficients_of_order_zero_alone():
  transform = Scattering(image_shape=(16, 16, 1))
  features = np.asarray(transform(np.full((2, 16, 16, 1), 3, np.float32)))
  np.testing.assert_allclose(features[..., 0], 3, rtol=1e-4)
  np.testing.assert_allclose(features[..., 1:], 0, atol=1e-5)


def test_blocks_do_not_change_coefficients(monkeypatch):
  transform = Scattering(image_shape=(8, 8, 1))
  x = _images((8, 8, 1), num=21)
  whole = np.asarray(transform(x))
  monkeypatch.setattr(scattering, '_TOGETHER_ON_CPU', 16)
  np.testing.assert_allclose(transform(x), whole, rtol=1e-6, atol=1e-6)
  for size in (0, 9):
    np.testing.assert_allclose(transform(x[:size]), whole[:size], rtol=1e-6,
                               atol=1e-6)


@pytest.mark.parametrize('fields, message', [
  (dict(image_shape=(8, 8)), 'image_shape must be'),
  (dict(image_shape=(8, 0, 1)), 'width must be an integer >= 1'),
  (dict(image_shape=(8, 3, 1)), r'2\^scale must be at most'),
  (dict(image_shape=(8, 8, 1), order=3), 'order must be 1 or 2'),
  (dict(image_shape=(8, 8, 1), scale=0), 'scale must be an integer >= 1'),
  (dict(image_shape=(8, 8, 1), angles=0), 'angles must be an integer >= 1')])
def test_refusals(fields, message):
  with pytest.raises(ValueError, match=message):
    Scattering(**fields)


def test_refusals_of_images():
  transform = Scattering(image_shape=(8, 8, 1))
  with pytest.raises(ValueError, match=r'must have shape \[b, 8, 8, 1\], got'):
    transform(np.zeros((8, 8, 1), np.float32))
  with pytest.raises(ValueError, match='scale bytes by their public range'):
    transform(np.zeros((2, 8, 8, 1), np.uint8))
