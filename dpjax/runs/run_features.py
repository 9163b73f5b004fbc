"""Fixed features in the place of records, see `dpjax.features`.

Guarantee: the features of a record are a function of that record and of public
numbers, so neighbouring data sets have neighbouring features, and a run on them
has the privacy of a run on records.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from dpjax import features
from dpjax.data import arrays
from dpjax.data import images
from dpjax.data import registry
from dpjax.data import schema_files
from dpjax.data import tabular
from dpjax.features import combining
from dpjax.runs.options import TrainingConfig
from dpjax.typing import Array, ArrayLike

# Groups of channels that are normalised, as Tramer and Boneh (2021) do.
_GROUPS = 27
# Most features of a table, to bound memory; more crosses are hashed.
_MOST = 4000
# Bins of each number beside the number itself.
_BINS = 20


def check(config: TrainingConfig, *, images: bool) -> None:
  """Raises `ValueError` if the records cannot have these features.

  Args:
    config: configuration.
    images: whether its records are images.
  """
  if config.features == 'none':
    return
  if images != (config.features == 'scattering'):
    raise ValueError(
        f'features = {config.features} are of '
        f'{"tables" if images else "images"}: for {config.dataset} take '
        f'{"scattering" if images else "unit, binned or crossed"}')
  if config.stream or config.user_column is not None:
    raise ValueError(
        f'features = {config.features} are computed of records in memory, '
        'without users: stream must be false, and user_column is not allowed')
  if config.views > 1:
    raise ValueError('features of a record are computed once: with features, '
                     'views must be 1')
  if config.pixels != 'signed':
    raise ValueError('features are computed of pixels in [0, 1]: leave pixels '
                     'out')


def of_table(config: TrainingConfig, dataset: arrays.Dataset
             ) -> arrays.Dataset:
  """Returns a table whose columns are features of norm 1."""
  x = _computed(_of_columns(config), dataset.x)
  return dataset._replace(x=jnp.asarray(x), feature_names=tuple(
      f'{config.features}_{number}' for number in range(x.shape[1])))


def _of_columns(config: TrainingConfig) -> Callable[[ArrayLike], Array]:
  """Returns the function of encoded records that `features` names."""
  if config.features == 'crossed':
    return features.crossed(_schema(config), most=_MOST)
  unit = combining.UnitNorm()
  if config.features == 'unit':
    return unit
  return combining.Joined((unit, features.crossed(
      _schema(config), bins=_BINS, crosses=1)))


def of_images(dataset: images.ImageDataset) -> images.ImageDataset:
  """Returns images whose scattering features, of norm 1, replace pixels."""
  shape = dataset.image_shape
  function = features.Composed((
      features.Scattering(image_shape=shape),
      features.GroupNormalisation(groups=_GROUPS), combining.UnitNorm()))
  scaled = dataset._replace(low=0.0)
  train, test = (part._replace(x=_computed(function, scaled.batch(part).x))
                 for part in (dataset.train, dataset.test))
  return dataset._replace(train=train, test=test)


def _computed(function: Callable[[ArrayLike], Array], x: Array) -> np.ndarray:
  """Returns the features of all records, computed in blocks."""
  return features.computed(function, np.asarray(x))


def _schema(config: TrainingConfig) -> tabular.Schema:
  """Returns the public schema of a table."""
  if config.schema is None:
    return registry.DATASETS[config.dataset].schema
  return schema_files.parse(config.schema).schema
