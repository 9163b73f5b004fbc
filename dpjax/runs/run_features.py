"""Fixed features in the place of records, see `dpjax.features`.

Guarantee: the features of a record are a function of that record and of public
numbers, so neighbouring data sets have neighbouring features, and a run on them
has the privacy of a run on records.
"""

from collections.abc import Callable
import dataclasses

import jax.numpy as jnp
import numpy as np

from dpjax import features
from dpjax.data import arrays
from dpjax.data import images
from dpjax.data import registry
from dpjax.data import schema_files
from dpjax.data import tabular
from dpjax.runs.options import TrainingConfig
from dpjax.typing import Array, ArrayLike

# Groups of channels that are normalised, as Tramer and Boneh (2021) do.
_GROUPS = 27
# Most features of a table, to bound memory; more crosses are hashed.
_MOST = 4000


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
        f'{"scattering" if images else "crossed"}')
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
  """Returns a table whose columns are crossed one-hot features of norm 1."""
  crossed = features.crossed(_schema(config), most=_MOST)
  x = _computed(crossed, dataset.x)
  return dataset._replace(x=jnp.asarray(x), feature_names=tuple(
      f'crossed_{number}' for number in range(x.shape[1])))


def of_images(dataset: images.ImageDataset) -> images.ImageDataset:
  """Returns images whose scattering features, of norm 1, replace pixels."""
  shape = dataset.image_shape
  function = Flat(features.Composed((
      features.Scattering(image_shape=shape),
      features.GroupNormalisation(groups=_GROUPS))))
  scaled = dataset._replace(low=0.0)
  train, test = (part._replace(x=_computed(function, scaled.batch(part).x))
                 for part in (dataset.train, dataset.test))
  return dataset._replace(train=train, test=test)


@dataclasses.dataclass(frozen=True)
class Flat:
  """Makes features flat, and of norm 1; zeros remain zeros.

  Attributes:
    function: maps records [b, ...] to features [b, ...].
  """
  function: Callable[[ArrayLike], Array]

  def __call__(self, x: ArrayLike) -> Array:
    """Returns the features [b, p] of records [b, ...]."""
    rows = self.function(x)
    flat = rows.reshape(rows.shape[0], -1)
    norm = jnp.sqrt(jnp.square(flat).sum(1, keepdims=True))
    return flat / jnp.where(norm > 0, norm, 1)


def _computed(function: Callable[[ArrayLike], Array], x: Array) -> np.ndarray:
  """Returns the features of all records, computed in blocks."""
  return features.computed(function, np.asarray(x))


def _schema(config: TrainingConfig) -> tabular.Schema:
  """Returns the public schema of a table."""
  if config.schema is None:
    return registry.DATASETS[config.dataset].schema
  return schema_files.parse(config.schema).schema
