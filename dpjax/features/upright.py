"""Images of strokes, made upright: moved to the middle and sheared.

The slant and the place of a handwritten digit say little about its class. A
linear model needs many parameters to do without them, so it helps to remove
them from each image first.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax.scipy import ndimage

from dpjax import errors
from dpjax.features import images
from dpjax.typing import Array, ArrayLike

# Brightness of all pixels together, below which an image remains as it is.
_LEAST_BRIGHTNESS = 1e-3
# Square of a pixel: the least variance of brightness over rows.
_LEAST_VARIANCE = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Upright:
  """Maps images [b, h, w, c] of bright strokes on black to upright ones.

  Brightness, the sum of a pixel over channels, counts as mass. Each image is
  moved so that its centre of mass is in the middle, and each row is moved along
  the width, in proportion to its distance from the middle, so that the
  covariance of row and column is 0. Values between pixels are interpolated
  linearly, and those from outside the image are 0.

  Guarantee: a row of the result is a function of the same row of the images, so
  it costs no privacy budget.

  Source: removing the slant by second moments is common for handwritten digits
  (LeCun et al., 1998, who call it deslanting).

  Attributes:
    image_shape: height h, width w and channels c of an image.
    most_shear: bound on the movement of a row, in pixels for each row of
      distance; 0 only moves the image to the middle.

  Examples:
    >>> from dpjax.features.upright import Upright
    >>> x = np.eye(5, dtype=np.float32)[None, ..., None]  # a diagonal stroke
    >>> np.round(Upright(image_shape=(5, 5, 1))(x)[0, :, :, 0], 6)[:2]
    Array([[0., 0., 1., 0., 0.],
           [0., 0., 1., 0., 0.]], dtype=float32)
  """
  image_shape: tuple[int, int, int]
  most_shear: float = 1.0

  def __post_init__(self) -> None:
    images.check_shape(self.image_shape)
    errors.check_non_negative('most_shear', self.most_shear)

  @property
  def output_shape(self) -> tuple[int, int, int]:
    """Shape of the features of one image: that of the image."""
    return self.image_shape

  def __call__(self, x: ArrayLike) -> Array:
    """Returns upright images [b, h, w, c]; negative pixels have no mass.

    Raises:
      ValueError: if the images have another shape, or are no floats.
    """
    return _upright(images.check(x, self.image_shape),
                    jnp.float32(self.most_shear))


@jax.jit
def _upright(x: Array, most_shear: Array) -> Array:
  """Returns upright images [b, h, w, c]."""
  return jax.vmap(_one, (0, None))(x, most_shear)


def _one(image: Array, most_shear: Array) -> Array:
  """Returns an upright image [h, w, c]."""
  mass = jnp.maximum(image, 0).sum(-1)
  total = mass.sum()
  rows, columns = (line.astype(jnp.float32) for line in jnp.meshgrid(
      *(jnp.arange(side) for side in mass.shape), indexing='ij'))
  weights = mass / jnp.maximum(total, _LEAST_BRIGHTNESS)
  row, column = (weights * rows).sum(), (weights * columns).sum()
  variance = (weights * jnp.square(rows - row)).sum()
  covariance = (weights * (rows - row) * (columns - column)).sum()
  shear = jnp.clip(covariance / jnp.maximum(variance, _LEAST_VARIANCE),
                   -most_shear, most_shear)
  middle = [jnp.float32((side - 1) / 2) for side in mass.shape]
  # Where the value of each pixel of the result comes from.
  down = rows - middle[0]
  source = [down + row, columns - middle[1] + column + shear * down]
  moved = jax.vmap(lambda channel: ndimage.map_coordinates(
      channel, source, order=1, mode='constant'), in_axes=2, out_axes=2)(image)
  return jnp.where(total > _LEAST_BRIGHTNESS, moved, image)
