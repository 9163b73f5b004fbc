"""The training set of an entry as features, and its test set.

Features of a record are a function of that record and of public numbers, so
they cost no privacy. The test set is computed by a function of its own: nothing
else here reads it.
"""

import functools
import os
import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import features
from dpjax.data import containers
from dpjax.data import images
from dpjax.data import registry
from dpjax.data import splits
from dpjax.typing import Batch
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
  return _training_set(entry.dataset, recipe.features, recipe.num_groups,
                       sources)


def test_set(entry: Entry, recipe: Recipe, sources: Sources) -> Batch:
  """Returns features and labels of the test set; for `evaluate_on_test`."""
  dataset = load(entry.dataset, sources.data_dir)
  return _features(dataset, dataset.test, recipe.features, recipe.num_groups,
                   sources)


def validation_split(num_records: int) -> splits.Split:
  """Returns a public split of the training set: five sixths and one sixth.

  It is the same for all recipes and seeds. The `test` part is for validation.
  """
  # Public: the split.
  return splits.train_test_split(jax.random.key(2026), num_records,
                                 test_fraction=1 / _VALIDATION_PARTS)


@functools.lru_cache(maxsize=1)
def _training_set(dataset: str, kind: str, num_groups: int,
                  sources: Sources) -> Batch:
  """Returns the training set; the last one is kept for the next recipe."""
  loaded = load(dataset, sources.data_dir)
  return _features(loaded, loaded.train, kind, num_groups, sources)


def _features(dataset: images.ImageDataset, part: containers.Images,
              kind: str, num_groups: int, sources: Sources) -> Batch:
  """Returns the features of images."""
  batch = dataset.batch(part)
  x = np.asarray(batch.x)
  if kind == 'scattering':
    x = features.computed(features.Scattering(image_shape=x.shape[1:]), x,
                          cache_dir=sources.cache_dir)
  if num_groups:
    x = features.computed(features.GroupNormalisation(groups=num_groups), x)
  return Batch(jnp.asarray(x), batch.y)
