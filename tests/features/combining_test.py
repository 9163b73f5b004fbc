"""Tests features that are made of other features."""

import numpy as np
import pytest

from dpjax import features
from dpjax.features import combining
from dpjax.features.upright import Upright

pytestmark = pytest.mark.every(2)


def _images(channels=1):
  return np.random.default_rng(0).random((3, 8, 8, channels)).astype(np.float32)


def test_functions_are_applied_in_order():
  both = features.Composed((lambda x: x + 1, lambda x: 2 * x))
  np.testing.assert_array_equal(both(np.float32([1])), [4])


def test_joined_features_have_the_norm_of_their_parts():
  x = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)
  joined = combining.Joined((combining.UnitNorm(), combining.UnitNorm(2.0)))
  rows = np.asarray(joined(x))
  assert rows.shape == (4, 8)
  np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
  for part, constant in ((rows[:, :4], 1), (rows[:, 4:], 2)):
    np.testing.assert_allclose(np.square(part).sum(1), 0.5, rtol=1e-5)
    np.testing.assert_allclose(part[:, :3] / part[:, 3:], x / constant,
                               rtol=1e-4)


def test_records_of_zeros_have_norm_1():
  rows = combining.UnitNorm(0.5)(np.zeros((2, 3, 2), np.float32))
  np.testing.assert_array_equal(rows, [[0] * 6 + [1]] * 2)
  with pytest.raises(ValueError, match='constant'):
    combining.UnitNorm(0.0)


def test_the_average_is_that_of_both_images():
  x = _images()
  hog = features.Hog(image_shape=(8, 8, 1), cell=2)
  wanted = (np.asarray(hog(x)) + np.asarray(hog(x[:, :, ::-1]))) / 2
  average = combining.MirrorAverage(hog)
  np.testing.assert_allclose(average(x), wanted, rtol=1e-6)
  np.testing.assert_allclose(average(x[:, :, ::-1]), wanted, rtol=1e-6)
  # Upside down is no mirror image.
  assert np.abs(np.asarray(average(x[:, ::-1])) - wanted).max() > 0.01


def test_mirrored_scattering_varies_in_fewer_directions():
  x = np.random.default_rng(1).random((400, 16, 16, 1)).astype(np.float32)
  scattering = features.Scattering(image_shape=(16, 16, 1), order=1)

  def spectrum(function):
    rows = np.asarray(function(x)).reshape(400, -1)
    return np.linalg.svd(rows - rows.mean(0), compute_uv=False)

  plain, mirrored = map(spectrum, (
      scattering, combining.MirrorAverage(scattering)))
  # 123 directions and 84.
  count = lambda values: (values > 0.1 * values[0]).sum()
  assert count(mirrored) < 0.75 * count(plain)
  # Averages of two equally distributed features never vary more.
  assert np.square(mirrored).sum() < 0.7 * np.square(plain).sum()


def test_contrast_moves_logarithms():
  x = np.float32([0.01, 0.5, 1])
  logarithm = combining.Logarithm(1e-6)
  np.testing.assert_allclose(
      np.asarray(logarithm(10 * x)) - np.asarray(logarithm(x)), np.log(10),
      rtol=1e-4)
  np.testing.assert_allclose(logarithm(np.float32([-5, 0])), np.log(1e-6))
  assert logarithm(np.arange(3)).dtype == np.float32


def test_they_have_descriptions(tmp_path):
  functions = [combining.MirrorAverage(features.Composed((
      Upright(image_shape=(8, 8, 1)), combining.Logarithm(offset))))
               for offset in (0.1, 0.2)]
  first, second = (features.computed(function, _images(), cache_dir=tmp_path)
                   for function in functions)
  assert np.abs(first - second).max() > 0.1
  assert len(list(tmp_path.glob('*.features'))) == 2


def test_refusals():
  with pytest.raises(ValueError, match='offset'):
    combining.Logarithm(0.0)
  with pytest.raises(ValueError, match=r'shape \[b, h, w, c\]'):
    combining.MirrorAverage(combining.Logarithm(1.0))(np.ones((3, 4)))
