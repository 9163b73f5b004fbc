"""Histograms of oriented gradients of images (Dalal and Triggs, 2005)."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.features import images
from dpjax.typing import Array, ArrayLike

# Bound on entries of a normalised block, and the number below its norm.
_CLIP, _LEAST_NORM = 0.2, 1e-5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hog:
  """Maps images [b, h, w, c] to normalised histograms of edge directions.

  Each pixel votes with the length of its gradient for the direction of the
  gradient, without sign. Votes are averaged over cells. Each square block of
  cells is divided by its l2 norm, clipped at 0.2, and divided again. Directions
  of several channels are those of the channel with the longest gradient. The
  numbers are those of `skimage.feature.hog` with `block_norm='L2-Hys'`.

  Guarantee: a row of the result is a function of the same row of the images, so
  it costs no privacy budget.

  Attributes:
    image_shape: height h, width w and channels c of an image.
    orientations: number of directions in 180 degrees.
    cell: side of a cell in pixels; pixels beyond the last whole cell count for
      gradients alone.
    block: side of a block in cells; blocks overlap, at steps of one cell.

  Examples:
    >>> from dpjax.features.hog import Hog
    >>> Hog(image_shape=(28, 28, 1), cell=4)(
    ...     np.ones((3, 28, 28, 1), np.float32)).shape
    (3, 5, 5, 81)
  """
  image_shape: tuple[int, int, int]
  orientations: int = 9
  cell: int = 8
  block: int = 3

  def __post_init__(self) -> None:
    images.check_shape(self.image_shape)
    for name in ('orientations', 'cell', 'block'):
      errors.check_at_least(name, getattr(self, name), 1)
    if self.cell * self.block > min(self.image_shape[:2]):
      raise ValueError(f'a block of {self.block} cells of {self.cell} pixels '
                       f'must fit into the image {self.image_shape}')

  @property
  def output_shape(self) -> tuple[int, int, int]:
    """Shape of the features of one image."""
    rows, columns = (side // self.cell - self.block + 1
                     for side in self.image_shape[:2])
    return rows, columns, self.block**2 * self.orientations

  def __call__(self, x: ArrayLike) -> Array:
    """Returns the histograms [b, *output_shape] of images [b, h, w, c].

    Raises:
      ValueError: if the images have another shape, or are no floats.
    """
    return _histograms(images.check(x, self.image_shape), self)


@functools.partial(jax.jit, static_argnums=1)
def _histograms(x: Array, hog: Hog) -> Array:
  """Returns the features of images [b, h, w, c]."""
  # Pixels at the border have no gradient across it.
  down = jnp.pad(x[:, 2:] - x[:, :-2], ((0, 0), (1, 1), (0, 0), (0, 0)))
  right = jnp.pad(x[:, :, 2:] - x[:, :, :-2], ((0, 0), (0, 0), (1, 1), (0, 0)))
  length = jnp.sqrt(jnp.square(down) + jnp.square(right))
  longest = jnp.argmax(length, axis=-1)[..., None]
  down, right, length = (jnp.take_along_axis(each, longest, -1)[..., 0]
                         for each in (down, right, length))
  direction = _directions(down, right, hog.orientations)
  votes = length[..., None] * jax.nn.one_hot(direction, hog.orientations)
  rows, columns = (side // hog.cell for side in hog.image_shape[:2])
  cells = votes[:, :rows * hog.cell, :columns * hog.cell].reshape(
    -1, rows, hog.cell, columns, hog.cell, hog.orientations).mean((2, 4))
  return _blocks(cells, hog)


def _directions(down: Array, right: Array, orientations: int) -> Array:
  """Returns the number of the direction of each gradient, int32.

  A direction k holds angles from k to k + 1 times 180 degrees / orientations.
  Cross products with the limits avoid the rounding of an angle.
  """
  flip = (down < 0) | ((down == 0) & (right < 0))
  down, right = (jnp.where(flip, -each, each) for each in (down, right))
  number = jnp.zeros(down.shape, jnp.int32)
  for k in range(1, orientations):
    angle = k * math.pi / orientations
    number += (math.cos(angle) * down >= math.sin(angle) * right).astype(
      jnp.int32)
  # Where both are 0 the vote is 0, too.
  return number


def _blocks(cells: Array, hog: Hog) -> Array:
  """Returns normalised blocks of cells [b, rows, columns, orientations]."""
  rows, columns, _ = hog.output_shape
  parts = [cells[:, i:i + rows, j:j + columns]
           for i, j in np.ndindex(hog.block, hog.block)]
  blocks = jnp.concatenate(parts, axis=-1)
  for clip in (_CLIP, math.inf):
    norm = jnp.sqrt(jnp.square(blocks).sum(-1, keepdims=True) + _LEAST_NORM**2)
    blocks = jnp.minimum(blocks / norm, clip)
  return blocks
