"""Tests upright images against SciPy, and what they should not depend on."""

import numpy as np
import pytest
from scipy import ndimage

from dpjax.features.upright import Upright

pytestmark = pytest.mark.every(2)
SIDE = 28
MIDDLE = (SIDE - 1) / 2


def _stroke(slant, down, right):
  """Returns a smooth stroke [28, 28] of a slant, moved from the middle."""
  rows, columns = np.mgrid[:SIDE, :SIDE] - MIDDLE
  rows = rows - down
  across = columns - right - slant * rows
  return np.exp(-across**2 / 4 - rows**2 / 30)


def _moments(image):
  """Returns centre and covariance of row and column of an image."""
  rows, columns = np.mgrid[:SIDE, :SIDE]
  weights = image / image.sum()
  row, column = (weights * rows).sum(), (weights * columns).sum()
  return row, column, (weights * (rows - row) * (columns - column)).sum()


def _upright(image, **options):
  """Returns one upright image [28, 28]."""
  return np.asarray(Upright(image_shape=(SIDE, SIDE, 1), **options)(
      image[None, ..., None].astype(np.float32)))[0, ..., 0]


def test_it_is_the_affine_map_of_scipy():
  rng = np.random.default_rng(0)
  # A frame of zeros, because SciPy treats the border differently.
  image = np.pad(rng.random((16, 16)), 6)
  row, column, covariance = _moments(image)
  rows = np.mgrid[:SIDE, :SIDE][0]
  shear = covariance / (image * (rows - row)**2).sum() * image.sum()
  matrix = np.array([[1, 0], [shear, 1]])
  wanted = ndimage.affine_transform(
      image, matrix, order=1,
      offset=np.array([row, column]) - matrix @ [MIDDLE, MIDDLE])
  np.testing.assert_allclose(_upright(image), wanted, atol=2e-5)


@pytest.mark.parametrize('slant, down, right', [
    (0.5, 0, 0), (-0.7, 1.5, -2), (0.9, -1, 2.25), (0, 3, 3)])
def test_slant_and_place_disappear(slant, down, right):
  straight = _stroke(0, 0, 0)
  slanted = _stroke(slant, down, right)
  result = _upright(slanted)
  row, column, covariance = _moments(result)
  np.testing.assert_allclose((row, column), MIDDLE, atol=0.02)
  # Interpolation blurs a little.
  assert abs(covariance) < 0.02 * abs(_moments(slanted)[2]) + 0.02
  assert np.abs(result - straight).max() < 0.1
  assert np.abs(slanted - straight).max() > 0.4


def test_the_shear_is_bounded():
  image = _stroke(0.8, 0, 0)
  np.testing.assert_allclose(_upright(image, most_shear=0.0), image, atol=1e-3)
  left = _moments(_upright(image, most_shear=0.5))[2]
  assert 0.3 < left / _moments(image)[2] < 0.5


def test_rows_do_not_depend_on_each_other():
  x = np.random.default_rng(1).random((4, 9, 7, 2)).astype(np.float32)
  upright = Upright(image_shape=(9, 7, 2))
  for i in range(4):
    np.testing.assert_allclose(upright(x[i:i + 1])[0], upright(x)[i], atol=1e-6)


def test_black_images_and_negative_pixels():
  black = np.zeros((1, 9, 9, 1), np.float32)
  upright = Upright(image_shape=(9, 9, 1))
  np.testing.assert_array_equal(upright(black), black)
  np.testing.assert_array_equal(upright(black - 1), black - 1)
  # One row has no slant.
  line = black.copy()
  line[0, 4, 2:7] = 1
  np.testing.assert_allclose(upright(line), line, atol=1e-6)


def test_refusals():
  with pytest.raises(ValueError, match='most_shear'):
    Upright(image_shape=(9, 9, 1), most_shear=-1.0)
  with pytest.raises(ValueError, match='scale bytes'):
    Upright(image_shape=(9, 9, 1))(np.zeros((1, 9, 9, 1), np.uint8))
