"""Tests random convolutions against loops over patches."""

import numpy as np
import pytest

from dpjax.features import convolutions
from dpjax.features.convolutions import RandomConvolutions

pytestmark = pytest.mark.every(3)


def _by_loops(image, features):
  """Returns the features of one image in float64, patch by patch."""
  kernel = convolutions._kernel(
    features.filters, features.size, features.image_shape[2], features.kind,
    features.seed).astype(np.float64)
  size = features.size
  rows, columns = (side - size + 1 for side in image.shape[:2])
  responses = np.zeros((rows, columns, 2 * features.filters))
  for i in range(rows):
    for j in range(columns):
      patch = image[i:i + size, j:j + size].astype(np.float64)
      patch = (patch - patch.mean()) / np.sqrt(
        patch.var() + features.least_variance)
      z = np.tensordot(patch, kernel, 3)
      responses[i, j] = np.concatenate([np.maximum(z, 0), np.maximum(-z, 0)])
  return np.array([[part.mean((0, 1)) for part in np.array_split(
    row, features.pooled, axis=1)] for row in np.array_split(
      responses, features.pooled, axis=0)])


@pytest.mark.parametrize('shape, options', [
  ((9, 9, 1), dict(filters=7, size=3, kind='gaussian', pooled=1)),
  ((9, 13, 3), dict(filters=40, size=2, seed=5)),
  ((12, 12, 2), dict(filters=5, size=5, pooled=2))])
def test_features_are_those_of_patches(shape, options):
  features = RandomConvolutions(image_shape=shape, **options)
  x = 100 + np.random.default_rng(0).random((2, *shape)).astype(np.float32)
  np.testing.assert_allclose(
    features(x), [_by_loops(image, features) for image in x], rtol=1e-3,
    atol=1e-4)


@pytest.mark.parametrize('kind', ['gaussian', 'orthogonal'])
def test_filters_have_norm_one_and_mean_zero(kind):
  kernel = convolutions._kernel(20, 2, 2, kind, 3).reshape(8, 20)
  np.testing.assert_allclose(np.linalg.norm(kernel, axis=0), 1, rtol=1e-6)
  np.testing.assert_allclose(kernel.sum(0), 0, atol=1e-6)
  # Seven are orthogonal to each other, and there are as many in a group.
  gram = kernel[:, :7].T @ kernel[:, :7]
  assert np.allclose(gram, np.eye(7), atol=1e-5) == (kind == 'orthogonal')


def test_the_seed_decides():
  draw = lambda seed: convolutions._kernel(4, 3, 1, 'gaussian', seed)
  assert np.abs(draw(0) - draw(1)).max() > 0.1
  # The stream of a seed must not change, or stored models would not fit.
  np.testing.assert_allclose(
    np.random.RandomState(0).standard_normal(3),
    [1.76405235, 0.40015721, 0.97873798], rtol=1e-8)


def test_refusals():
  for options, message in (
      (dict(size=1), 'size must be an integer >= 2'),
      (dict(kind='sobel'), 'kind must be one of'),
      (dict(seed=2**32), 'seed must be below'),
      (dict(pooled=4), 'must fit into the image'),
      (dict(least_variance=0.0), 'least_variance must be a positive')):
    with pytest.raises(ValueError, match=message):
      RandomConvolutions(image_shape=(8, 9, 1), **options)
