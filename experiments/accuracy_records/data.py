"""The training set of an entry as features, and its test set.

Features of a record are a function of that record and of public numbers, so
they cost no privacy. The test set is computed by a function of its own: nothing
else here reads it.
"""

from collections.abc import Callable
import functools
import os
import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import features
from dpjax.data import containers
from dpjax.data import images
from dpjax.data import registry
from dpjax.data import splits
from dpjax.features import combining
from dpjax.features import upright
from dpjax.typing import Array, ArrayLike, Batch
from experiments.accuracy_records.entries import Entry
from experiments.accuracy_records.entries import Recipe

# One part of so many of the training set scores recipes.
_VALIDATION_PARTS = 6


class Sources(NamedTuple):
  """Where records come from, and where their features are kept.

  Attributes:
    data_dir: folder of the data sets; None for the default folder.
    cache_dir: folder of computed features, as private as the records; None
      keeps none.
  """
  data_dir: str | os.PathLike[str] | None = None
  cache_dir: pathlib.Path | None = None


@functools.lru_cache(maxsize=1)
def load(name: str, data_dir: str | os.PathLike[str] | None
         ) -> images.ImageDataset:
  """Returns the images of a data set."""
  dataset = registry.load(name, data_dir=data_dir)
  if not isinstance(dataset, images.ImageDataset):
    raise ValueError(f'{name} has no images: an entry needs a data set of '
                     'images')
  return dataset._replace(low=0.0)


def num_classes(entry: Entry, sources: Sources) -> int:
  """Returns the public number of classes."""
  return load(entry.dataset, sources.data_dir).num_classes


def training_set(entry: Entry, recipe: Recipe, sources: Sources) -> Batch:
  """Returns features [n, h, w, c] and labels [n] of the training set."""
  return _training_set(entry.dataset, _kind(recipe), sources)


def test_set(entry: Entry, recipe: Recipe, sources: Sources) -> Batch:
  """Returns features and labels of the test set; for `evaluate_on_test`."""
  dataset = load(entry.dataset, sources.data_dir)
  return _features(dataset, dataset.test, _kind(recipe), sources)


def validation_split(num_records: int) -> splits.Split:
  """Returns a public split of the training set: five sixths and one sixth.

  It is the same for all recipes and seeds. The `test` part is for validation.
  """
  # Public: the split.
  return splits.train_test_split(jax.random.key(2026), num_records,
                                 test_fraction=1 / _VALIDATION_PARTS)


class _Kind(NamedTuple):
  """The values of a recipe on which features of records depend."""
  features: str
  upright: bool
  mirrored: bool
  logarithm: float
  num_groups: int


def _kind(recipe: Recipe) -> _Kind:
  return _Kind(*(getattr(recipe, name) for name in _Kind._fields))


@functools.lru_cache(maxsize=1)
def _training_set(dataset: str, kind: _Kind, sources: Sources) -> Batch:
  """Returns the training set; the last one is kept for the next recipe."""
  loaded = load(dataset, sources.data_dir)
  return _features(loaded, loaded.train, kind, sources)


def _features(dataset: images.ImageDataset, part: containers.Images,
              kind: _Kind, sources: Sources) -> Batch:
  """Returns the features of images."""
  batch = dataset.batch(part)
  return Batch(jnp.asarray(features.computed(
      _function(kind, batch.x.shape[1:]), batch.x,
      cache_dir=sources.cache_dir)), batch.y)


def _function(kind: _Kind, shape: tuple[int, int, int]) -> features.Composed:
  """Returns the function of images of a shape [h, w, c]."""
  functions: list[Callable[[ArrayLike], Array]] = []
  if kind.upright:
    functions.append(upright.Upright(image_shape=shape))
  if kind.features == 'scattering':
    functions.append(features.Scattering(image_shape=shape))
  if kind.mirrored:
    functions = [combining.MirrorAverage(features.Composed(tuple(functions)))]
  if kind.logarithm:
    functions.append(combining.Logarithm(kind.logarithm))
  if kind.num_groups:
    functions.append(features.GroupNormalisation(groups=kind.num_groups))
  return features.Composed(tuple(functions))
