"""Image data sets in memory: bytes on the host, floats for training.

Pixels stay bytes until `scale` maps them to [-1, 1] or [0, 1] with the public
range of a pixel. The mean and deviation of the training images are not used:
normalising a private data set by its own statistics would leak.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.data import containers
from dpjax.data import splits
from dpjax.typing import Array, Batch, PRNGKey

Images = containers.Images


class ImageDataset(NamedTuple):
  """An image data set with the publisher's training and test parts.

  Attributes:
    name: name for reports.
    train: images [n, h, w, c] uint8, or features of images [n, p] float32 in
      their place; and labels [n] int32 in [0, num_classes), on the host.
    test: likewise, of m records.
    class_names: one name for each class.
    max_value: largest pixel value, public; the smallest is 0.
    low: value that pixel 0 is mapped to for training, see `scale`.
  """
  name: str
  train: Images
  test: Images
  class_names: tuple[str, ...]
  max_value: int
  low: float = -1.0

  @property
  def num_classes(self) -> int:
    """Returns the public number of classes."""
    return len(self.class_names)

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """Returns height, width and channels; (p,) for features."""
    return self.train.x.shape[1:]

  @property
  def records(self) -> Batch:
    """Returns all records: rows 0..n-1 are the training part, the rest test.

    `splits.official_split` returns the matching row numbers.
    """
    return self.batch(Images(*map(np.concatenate, zip(self.train, self.test))))

  def batch(self, images: Images) -> Batch:
    """Returns images as a batch for training, scaled; features as they are."""
    if images.x.dtype != np.uint8:
      return Batch(jnp.asarray(images.x), jnp.asarray(images.y))
    return Batch(scale(images.x, max_value=self.max_value, low=self.low),
                 jnp.asarray(images.y))


def levels(*, max_value: int, low: float) -> np.ndarray:
  """Returns what `scale` maps the bytes 0, ..., 255 to, [256] float32."""
  # The clip bounds bytes above max_value.
  return np.clip((1.0 - low) * np.arange(256) / max_value + low, low,
                 1.0).astype(np.float32)


@functools.partial(jax.jit, static_argnames=('max_value', 'low'))
def scale(x: Array, *, max_value: int, low: float = -1.0) -> Array:
  """Maps pixels linearly from [0, max_value] to [low, 1].

  Guarantee: each number of the result depends on its own pixel alone, and lies
  in [low, 1] for every byte.

  Args:
    x: pixels, [...] uint8.
    max_value: public, in [1, 255]; larger pixels count as `max_value`.
    low: public, below 1. With 0, dark images have small norms, which a
      projection on a ball does not change.

  Returns:
    [...] float32; 0 and max_value are mapped to low and 1 exactly.
  """
  # A lookup table gives the same floats on every device; compiled arithmetic
  # rounds differently.
  return jnp.asarray(levels(max_value=max_value, low=low))[x]


def subset(key: PRNGKey, dataset: ImageDataset, *, num_train: int,
           num_test: int | None = None) -> ImageDataset:
  """Returns a uniform subsample of each part.

  For one key, smaller subsets are contained in larger ones, and every format of
  the data set gives the same subset.

  Args:
    key: random key of the selection.
    dataset: data set, which may be a subset.
    num_train: training records to keep, at least 1.
    num_test: test records to keep, at least 1; all of them if None.

  Raises:
    ValueError: a part has fewer records than requested.
  """
  available = dataset.test.y.shape[0]
  num_test = available if num_test is None else num_test
  errors.check_at_least('num_test', num_test, 1)
  if num_test > available:
    raise ValueError(f'num_test must be at most {available}, the size of the '
                     f'test part, got {num_test}')
  split = splits.take(splits.official_split(
    key, num_train=dataset.train.y.shape[0], num_test=available), num_train)
  train = np.asarray(split.train)
  # `official_split` numbers the test records after the training records.
  test = np.asarray(split.test[:num_test]) - dataset.train.y.shape[0]
  return dataset._replace(
    train=Images(dataset.train.x[train], dataset.train.y[train]),
    test=Images(dataset.test.x[test], dataset.test.y[test]))


def downsample(dataset: ImageDataset, factor: int) -> ImageDataset:
  """Replaces blocks of factor x factor pixels by their mean.

  Guarantee: each image depends on its own record alone. Means are rounded to
  the nearest byte in integer arithmetic, so they are the same on every machine.

  Args:
    dataset: images whose sides are multiples of `factor`.
    factor: side of a block in pixels, at least 1.

  Raises:
    ValueError: a side is not a multiple of `factor`.
  """
  train, test = (part._replace(x=shrink(part.x, factor, dataset.name))
                 for part in (dataset.train, dataset.test))
  return dataset._replace(train=train, test=test)


def shrink(x: np.ndarray, factor: int, name: str) -> np.ndarray:
  """Returns images [n, h, w, c] uint8 with smaller sides, see `downsample`.

  Args:
    x: the images.
    factor: side of a block in pixels, at least 1.
    name: name of the data set, for messages.
  """
  errors.check_at_least('factor', factor, 1)
  _, height, width, channels = x.shape
  if height % factor or width % factor:
    raise ValueError(f'downsample must divide the sides {height} and {width} '
                     f'of {name}, got {factor}')
  blocks = x.reshape((-1, height // factor, factor, width // factor, factor,
                      channels))
  # 4,000 x 4,000 pixels of 255 still add up to less than 2^32.
  total = blocks.sum((2, 4), dtype=np.uint32)
  # Half of the divisor, added before the division, rounds halves up.
  return ((total + factor**2 // 2) // factor**2).astype(np.uint8)
