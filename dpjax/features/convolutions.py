"""Random convolutions of images: filters that nobody has to learn.

Coates and Ng (2011) compare filters that are learned from patches without
labels with random ones. Here patches are normalised one by one, and there is no
whitening, because its matrix would be computed from the data.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.features import images
from dpjax.typing import Array, ArrayLike

_KINDS = ('gaussian', 'orthogonal')
_AXES = ('NHWC', 'HWIO', 'NHWC')
# Images whose responses are computed at once.
_TOGETHER = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomConvolutions:
  """Maps images [b, h, w, c] to averages of rectified random convolutions.

  Each patch has its mean removed and is divided by its standard deviation; then
  filters of zero mean and norm 1 respond to it, positive and negative parts are
  separated, and each is averaged over a grid of areas.

  Guarantee: a row of the result is a function of the same row of the images, so
  it costs no privacy budget. The seed is public and hides nothing.

  Attributes:
    image_shape: height h, width w and channels c of an image.
    filters: number of filters.
    size: side of a patch in pixels.
    pooled: number of areas along each axis, over which responses are averaged.
    kind: 'gaussian', or 'orthogonal' for filters of which any size^2 c - 1 in a
      row are orthogonal, so that they cover patches more evenly.
    least_variance: positive number that is added to the variance of a patch;
      patches of less contrast are hardly amplified.
    seed: public seed of the filters.

  Examples:
    >>> from dpjax.features.convolutions import RandomConvolutions
    >>> convolve = RandomConvolutions(image_shape=(28, 28, 1), filters=100)
    >>> convolve(np.ones((3, 28, 28, 1), np.float32)).shape
    (3, 2, 2, 200)
  """
  image_shape: tuple[int, int, int]
  filters: int = 256
  size: int = 6
  pooled: int = 2
  kind: str = 'orthogonal'
  least_variance: float = 0.01
  seed: int = 0

  def __post_init__(self) -> None:
    images.check_shape(self.image_shape)
    for name in ('filters', 'pooled'):
      errors.check_at_least(name, getattr(self, name), 1)
    errors.check_at_least('size', self.size, 2)
    errors.check_choice('kind', self.kind, _KINDS)
    errors.check_positive('least_variance', self.least_variance)
    errors.check_seed('seed', self.seed)
    if self.size + self.pooled - 1 > min(self.image_shape[:2]):
      raise ValueError(
        f'{self.pooled} areas of patches of {self.size} pixels must fit into '
        f'the image {self.image_shape}')

  @property
  def output_shape(self) -> tuple[int, int, int]:
    """Shape of the features of one image."""
    return self.pooled, self.pooled, 2 * self.filters

  def __call__(self, x: ArrayLike) -> Array:
    """Returns the averages [b, *output_shape] of images [b, h, w, c].

    Raises:
      ValueError: if the images have another shape, or are no floats.
    """
    return _convolved(images.check(x, self.image_shape), self)


@functools.partial(jax.jit, static_argnums=1)
def _convolved(x: Array, features: RandomConvolutions) -> Array:
  """Returns the features of images [b, h, w, c]."""
  one = functools.partial(_of_one, features=features, kernel=_kernel(
    features.filters, features.size, features.image_shape[2], features.kind,
    features.seed))
  return jax.lax.map(one, x, batch_size=_TOGETHER)


def _of_one(image: Array, *, features: RandomConvolutions, kernel: np.ndarray
            ) -> Array:
  """Returns the features [p, p, 2 k] of one image [h, w, c]."""
  mean = jnp.ones(kernel.shape[:3], jnp.float32)[..., None] / math.prod(
    kernel.shape[:3])
  # A mean that is taken off the image first keeps digits of the variance.
  centred = image - jnp.mean(image)
  variance = (_convolution(jnp.square(centred), mean) -
              jnp.square(_convolution(centred, mean)))
  # Filters have zero mean, so the mean of a patch adds nothing.
  responses = _convolution(centred, jnp.asarray(kernel)) * jax.lax.rsqrt(
    jnp.maximum(variance, 0) + features.least_variance)
  parts = jnp.concatenate([jax.nn.relu(responses), jax.nn.relu(-responses)],
                          axis=-1)
  rows, columns = (jnp.asarray(_areas(side, features.pooled))
                   for side in parts.shape[:2])
  return jnp.einsum('ah,hwk,bw->abk', rows, parts, columns,
                    precision=jax.lax.Precision.HIGHEST)


def _convolution(image: Array, kernel: Array) -> Array:
  """Returns the responses [h', w', k] of an image at all whole patches."""
  return jax.lax.conv_general_dilated(
    image[None], kernel, (1, 1), 'VALID', dimension_numbers=_AXES,
    precision=jax.lax.Precision.HIGHEST)[0]


def _areas(side: int, pooled: int) -> np.ndarray:
  """Returns a matrix [pooled, side] that averages over nearly equal parts."""
  ends = np.round(np.linspace(0, side, pooled + 1)).astype(int)
  matrix = np.zeros((pooled, side), np.float32)
  for area, (start, end) in enumerate(zip(ends[:-1], ends[1:], strict=True)):
    matrix[area, start:end] = 1 / (end - start)
  return matrix


@functools.lru_cache(maxsize=16)
def _kernel(filters: int, size: int, channels: int, kind: str, seed: int
            ) -> np.ndarray:
  """Returns filters of zero mean and norm 1, [size, size, c, filters]."""
  dimension = size * size * channels
  # The stream of RandomState is fixed for all versions of NumPy.
  draw = np.random.RandomState(seed).standard_normal
  if kind == 'gaussian':
    rows = draw((filters, dimension))
    rows -= rows.mean(1, keepdims=True)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
  else:
    groups = []
    for _ in range(-(-filters // (dimension - 1))):
      # The first direction is that of the mean, which is left out.
      columns = np.concatenate([np.ones((dimension, 1)),
                                draw((dimension, dimension - 1))], axis=1)
      orthogonal, upper = np.linalg.qr(columns)
      groups.append((orthogonal * np.sign(np.diag(upper))).T[1:])
    rows = np.concatenate(groups)[:filters]
  return rows.T.reshape(size, size, channels, filters).astype(np.float32)
