"""Image data sets in memory: bytes on the host, floats for training.

Pixels stay bytes until `scale` maps them to [-1, 1] or [0, 1] with the
public range of a pixel. The mean and deviation of the training images are not
used: they are computed from private records. That they are printed for these
sets hides the leak, it does not close it for the next set.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.data import containers
from dpjax.data import splits
from dpjax.typing import Array
from dpjax.typing import Batch
from dpjax.typing import PRNGKey

Images = containers.Images


class ImageDataset(NamedTuple):
  """Images in the publisher's training and test part.

  Attributes:
    name: for reports.
    train: [n, h, w, c] uint8 and [n] int32 in [0, num_classes), on the host.
    test: likewise, [m, h, w, c] and [m].
    class_names: one for each class.
    max_value: largest value of a pixel, public; the smallest is 0.
    low: what 0 is mapped to for training, see `scale`.
  """
  name: str
  train: Images
  test: Images
  class_names: tuple[str, ...]
  max_value: int
  low: float = -1.0

  @property
  def num_classes(self) -> int:
    """Number of classes, public."""
    return len(self.class_names)

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """Height, width and channels."""
    return self.train.x.shape[1:]

  @property
  def records(self) -> Batch:
    """All records for training: rows 0..n-1 train, n..n+m-1 test.

    `splits.official_split` gives row numbers that fit.
    """
    return self.batch(Images(*map(np.concatenate, zip(self.train, self.test))))

  def batch(self, images: Images) -> Batch:
    """Returns some of the images as training takes them, see `scale`."""
    return Batch(scale(images.x, max_value=self.max_value, low=self.low),
                 jnp.asarray(images.y))


@functools.partial(jax.jit, static_argnames=('max_value', 'low'))
def scale(x: Array, *, max_value: int, low: float = -1.0) -> Array:
  """Maps pixels linearly from [0, max_value] to [low, 1].

  Guarantee: a number of the result depends on the same pixel alone, and lies
  in [low, 1] whatever the byte is.

  Args:
    x: pixels, [...] uint8.
    max_value: public, in [1, 255]; larger pixels count as this.
    low: public, below 1; at 0 dark images have short vectors, which a ball
      leaves alone.

  Returns:
    [...] float32; 0 and max_value are mapped to low and 1 exactly.
  """
  # A table, since compiled arithmetic rounds differently on each device.
  table = np.clip((1.0 - low) * np.arange(256) / max_value + low, low, 1.0)
  return jnp.asarray(table, jnp.float32)[x]


def subset(key: PRNGKey, dataset: ImageDataset, *, num_train: int,
           num_test: int | None = None) -> ImageDataset:
  """Keeps a uniform subsample of each part, for machines without accelerator.

  The parts are not mixed. Under one key, smaller subsets are contained in
  larger ones, and any container of the data set gives the same subset.

  Args:
    key: for the choice.
    dataset: maybe itself a subset.
    num_train: training records to keep, at least 1.
    num_test: test records to keep, at least 1; all of them if None.

  Raises:
    ValueError: one line, for more records than there are.
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
  test = np.asarray(split.test[:num_test]) - dataset.train.y.shape[0]
  return dataset._replace(
    train=Images(dataset.train.x[train], dataset.train.y[train]),
    test=Images(dataset.test.x[test], dataset.test.y[test]))


def downsample(dataset: ImageDataset, factor: int) -> ImageDataset:
  """Replaces blocks of factor x factor pixels by their mean.

  Guarantee: each record by itself. Means are rounded to the nearest byte,
  halves up, in integers: the same on every machine.

  Args:
    dataset: sides are multiples of `factor`.
    factor: at least 1.

  Raises:
    ValueError: one line, for sides that are no multiples.
  """
  errors.check_at_least('factor', factor, 1)
  height, width, channels = dataset.image_shape
  if height % factor or width % factor:
    raise ValueError(f'downsample must divide the sides {height} and {width} '
                     f'of {dataset.name}, got {factor}')

  def shrink(images: Images) -> Images:
    blocks = images.x.reshape((-1, height // factor, factor, width // factor,
                               factor, channels))
    total = blocks.sum((2, 4), dtype=np.uint32)
    means = (total + factor**2 // 2) // factor**2
    return images._replace(x=means.astype(np.uint8))

  return dataset._replace(train=shrink(dataset.train),
                          test=shrink(dataset.test))
