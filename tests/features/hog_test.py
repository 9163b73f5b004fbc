"""Tests histograms of gradients against scikit-image and known edges."""

import numpy as np
import pytest

from dpjax.features.hog import Hog

pytestmark = pytest.mark.every(3)


@pytest.mark.parametrize('shape, options', [
  ((28, 28, 1), dict(cell=4)), ((32, 32, 3), dict()),
  ((17, 21, 1), dict(cell=5, block=2, orientations=8)),
  ((8, 8, 2), dict(cell=1, block=1, orientations=1))])
def test_histograms_are_those_of_scikit_image(shape, options):
  skimage = pytest.importorskip('skimage.feature')
  rng = np.random.default_rng(0)
  # Integers have many gradients at the limits of directions, floats none.
  for x in (rng.integers(4, size=(3, *shape)).astype(np.float32),
            rng.random((3, *shape)).astype(np.float32)):
    hog = Hog(image_shape=shape, **options)
    wanted = [skimage.hog(
      image.astype(np.float64), orientations=hog.orientations,
      pixels_per_cell=(hog.cell,) * 2, cells_per_block=(hog.block,) * 2,
      block_norm='L2-Hys', channel_axis=-1).reshape(hog.output_shape)
      for image in x]
    np.testing.assert_allclose(hog(x), wanted, rtol=1e-4, atol=2e-6)


def test_an_edge_votes_for_its_direction():
  ramp = np.broadcast_to(np.arange(32, dtype=np.float32), (32, 32))
  hog = Hog(image_shape=(32, 32, 1), cell=32, block=1, orientations=4)
  # Gradients along the width, down the height, and along both diagonals.
  for image, direction in ((ramp, 0), (-ramp, 0), (ramp.T, 2), (-ramp.T, 2),
                           (ramp + ramp.T, 1), (ramp.T - ramp, 3)):
    histogram = np.asarray(hog(image[None, ..., None].copy())).ravel()
    assert histogram.argmax() == direction
    # Only pixels at the border may vote for other directions.
    assert histogram[direction] > 0.9


def test_refusals():
  with pytest.raises(ValueError, match='must fit into the image'):
    Hog(image_shape=(20, 30, 1))
  with pytest.raises(ValueError, match='cell must be an integer >= 1'):
    Hog(image_shape=(20, 30, 1), cell=0)
  with pytest.raises(ValueError, match='scale bytes'):
    Hog(image_shape=(24, 24, 1))(np.zeros((1, 24, 24, 1), np.uint8))
