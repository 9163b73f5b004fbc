"""Checks of images, which all features of images share."""

import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array, ArrayLike


def check_shape(shape: tuple[int, int, int]) -> None:
  """Raises `ValueError` if this is not height, width and channels."""
  if len(shape) != 3:
    raise ValueError(f'image_shape must be (height, width, channels), got '
                     f'{shape}')
  for name, size in zip(('height', 'width', 'channels'), shape, strict=True):
    errors.check_at_least(name, size, 1)


def check(x: ArrayLike, shape: tuple[int, int, int]) -> Array:
  """Returns images as float32 if they are floats [b, *shape].

  Raises:
    ValueError: otherwise.
  """
  images = jnp.asarray(x)
  if images.ndim != 4 or images.shape[1:] != tuple(shape):
    raise ValueError(f'images must have shape [b, {", ".join(map(str, shape))}]'
                     f', got {list(images.shape)}')
  if not jnp.issubdtype(images.dtype, jnp.floating):
    raise ValueError(f'images must be floats, got {images.dtype}; scale bytes '
                     'by their public range first')
  return images.astype(jnp.float32)
