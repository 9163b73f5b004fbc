"""The configuration of a training run: one frozen, checked value.

`TrainingConfig` declares the options, in `dpjax.runs.options`. Here are the
rules that join several of them, and the values that a run uses for None.
"""

import dataclasses
from typing import Any

from dpjax import errors
from dpjax.data import registry
from dpjax.data import schema_files
from dpjax.data import streamed
from dpjax.data import user_tables
from dpjax.runs import options
from dpjax.runs import recipes
from dpjax.runs import run_features
from dpjax.runs import run_sampling
from dpjax.runs import run_users
from dpjax.runs import settings
from dpjax.runs import training_methods
from dpjax.runs.options import TrainingConfig as TrainingConfig

# Largest epsilon at which noise on a lattice is the default: `release_noise`.
_MOST_ON_LATTICE = 8.0


def check(config: TrainingConfig) -> TrainingConfig:
  """Returns a configuration that can run; raises ValueError if it cannot.

  Nothing is loaded or trained. The error message is one line.
  """
  # First the rules of single options, which `options` declares.
  settings.check(config)
  _check_dataset(config)
  if config.fold is not None and config.fold not in range(config.num_folds):
    raise ValueError(f'fold must be an integer from 0 to '
                     f'{config.num_folds - 1}, got {config.fold}')
  _check_canaries(config)
  run_features.check(config, images=_are_images(config))
  if config.stream:
    _check_stream(config)
  _check_networks(config)
  _check_method(config)
  run_sampling.check(config)
  run_users.check(config)
  return config


def has_images(config: TrainingConfig) -> bool:
  """Returns whether a network gets images: without features, from images."""
  return config.features == 'none' and _are_images(config)


def _are_images(config: TrainingConfig) -> bool:
  return (config.dataset in registry.IMAGES or
          config.dataset.startswith(user_tables.TFDS))


def _check_dataset(config: TrainingConfig) -> None:
  """Checks that the data set is a known name, or a file with a schema."""
  if config.schema is not None:
    if not user_tables.is_path(config.dataset):
      raise ValueError(f'dataset {config.dataset!r} is not the path of a file; '
                       'give a schema with a file only')
    schema_files.parse(config.schema)
  elif user_tables.is_path(config.dataset):
    raise ValueError(
        f'{config.dataset} needs a public schema: bounds of numbers, '
        'categories, and classes of the label')
  elif config.dataset.startswith(user_tables.TFDS):
    if not config.stream:
      raise ValueError(f'{config.dataset} is read from disk: stream must be '
                       'true')
  else:
    errors.check_choice('dataset', config.dataset,
                        (*registry.names(), *registry.image_names()))


def _check_canaries(config: TrainingConfig) -> None:
  """Checks that options of canaries are given with canaries only."""
  # The first kind is the default, which a user need not have given.
  if not config.num_canaries and (
      config.canary_seed is not None or
      config.canary_kind != options.CANARY_KINDS[0]):
    raise ValueError('canary_kind and canary_seed need canaries; '
                     'num_canaries must be at least 1')


def _check_stream(config: TrainingConfig) -> None:
  """Checks that the records can stay on disk."""
  if config.schema is None and not config.dataset.startswith(user_tables.TFDS):
    raise ValueError('stream reads Parquet files of your own, or data sets '
                     f'tfds:...; {config.dataset} is kept in memory')
  streamed.check_format(config.dataset)
  if config.num_canaries:
    raise ValueError('canaries are joined to the records in memory: with '
                     'stream, num_canaries must be 0')


def _check_networks(config: TrainingConfig) -> None:
  """Checks that model, method and data set fit together."""
  images = has_images(config)
  models = options.IMAGE_MODELS if images else options.TABLE_MODELS
  if config.model is not None:
    errors.check_choice(
        f'model on {"images" if images else "tables"}', config.model, models)
  if config.downsample > 1 and not _are_images(config):
    raise ValueError('downsample needs images; tables have no pixels')
  if config.views > 1 and not images:
    raise ValueError('views of a record are augmented images; tables have '
                     'none')
  method = training_methods.METHODS[config.method]
  if config.model == 'orthogonal':
    _check_orthogonal(config, method)
  elif config.branch_share is not None:
    raise ValueError('branch_share needs model = orthogonal')
  if config.views > 1 and not method.views:
    raise ValueError(f'{config.method} bounds single views, not the mean of '
                     'views; with views above 1, method must be one of '
                     f'{", ".join(options.WITH_VIEWS)}')
  if config.compute_dtype != 'float32' and not method.any_dtype:
    raise ValueError(f'{config.method} is bounded in float32 only; with '
                     f'compute_dtype = {config.compute_dtype}, method must be '
                     f'one of {", ".join(options.IN_ANY_DTYPE)}')


def _check_orthogonal(config: TrainingConfig,
                      method: training_methods.TrainingMethod) -> None:
  """Checks that a method can train the network that keeps norms."""
  if (method.linear or method.activations == 'adaptive_balls' or
      not method.gaussian and method.bounds_weights):
    raise ValueError(f'{config.method} needs a network of its own: with it, '
                     'model must be mlp')
  if config.depth == 0:
    raise ValueError('model = orthogonal has hidden layers: depth must be at '
                     'least 1, got 0')
  if config.weights != 'free':
    raise ValueError('model = orthogonal keeps its weights orthogonal: weights '
                     f'must be free, got {config.weights}')


def _check_method(config: TrainingConfig) -> None:
  """Checks the options that depend on the method."""
  images = has_images(config)
  method = training_methods.METHODS[config.method]
  if config.recertify_every > 1 and (not method.recertifies or
                                     config.weights != 'free'):
    raise ValueError('recertify_every above 1 needs weights = free and a '
                     f'method of {", ".join(options.RECERTIFYING)}')
  # It normalises groups of channels, which tables do not have.
  if config.method == 'lip_norm' and not images:
    raise ValueError('lip_norm needs images; on tables use lip_dp_sgd')
  if config.method == 'lip_k_norm' and images:
    raise ValueError('lip_k_norm is for perceptrons on tables')
  if config.noise != 'gaussian' and not method.gaussian:
    raise ValueError(f'{config.method} has no Gaussian noise to put on a '
                     'lattice')
  if not method.epsilon_valid and not config.allow_unsound:
    raise ValueError(f'{config.method} is not private: its epsilon does not '
                     'hold; allow_unsound confirms that you accept that')
  if method.activations == 'adaptive_balls' and config.depth == 0:
    raise ValueError(f'{config.method} adapts the radii of balls behind hidden '
                     'layers: depth must be at least 1, got 0')
  if method.linear and config.depth not in (None, 0):
    raise ValueError(f'{config.method} trains a linear model: depth must be 0, '
                     f'got {config.depth}')


def resolve(config: TrainingConfig, *, num_available: int) -> TrainingConfig:
  """Returns the configuration with every None replaced by its default.

  With canaries, the default delta, the recipe and the sampling rate use the
  number of slots (public), so the run leaks nothing about the coin flips.

  Args:
    config: a configuration, maybe with fields that are None.
    num_available: number of training records of the data set, or of users.

  Raises:
    ValueError: with a message of one line, for more records than available or
      an expected batch larger than the training set.
  """
  check(config)
  num_train = config.num_examples or num_available
  if num_train > num_available:
    raise ValueError(f'num_examples must be at most {num_available}, the '
                     f'training part of {config.dataset}, got {num_train}')
  images = has_images(config)
  num_slots = num_train + config.num_canaries
  # Delta is a power of 1/n: a delta of 1/n would allow a release to publish
  # one record at random.
  recipe = recipes.recipe(config.method, num_train=num_slots,
                          images=images, features=config.features,
                          model=config.model, loss=config.loss)
  defaults: dict[str, Any] = {
      **recipe, **run_sampling.defaults(config, recipe, num_slots=num_slots),
      'num_examples': num_train,
      'model': 'convnet' if images else None,
      'user_records': run_users.DEFAULT_RECORDS if config.user_column else None,
      'delta': num_slots**-config.delta_power}
  resolved = dataclasses.replace(config, **{
      setting.name: defaults[setting.name]
      for setting in settings.declared(type(config))
      if setting.filled and getattr(config, setting.name) is None})
  if settings.known(resolved.batch_size) > num_slots:
    slots = ' + num_canaries' if config.num_canaries else ''
    raise ValueError(f'batch_size must be at most num_examples{slots} = '
                     f'{num_slots}, got {resolved.batch_size}')
  return resolved


def release_noise(config: TrainingConfig) -> str:
  """Returns the default noise of a run, 'gaussian' or 'lattice_gaussian'.

  Releases use noise on a lattice. Runs with a noise_seed are for research and
  use floating-point noise: their seed reveals the noise anyway. Lattice noise
  costs e^epsilon times its distance from Gaussian noise in delta. Up to epsilon
  = 8 this is below 10^-10 for 10^10 released values; far above, it would use up
  delta. Correlated noise is floating-point noise.

  Args:
    config: a configuration, resolved or not.
  """
  method = training_methods.METHODS[config.method]
  if (config.noise_seed is None and config.epsilon <= _MOST_ON_LATTICE and
      method.gaussian and method.epsilon_valid and
      config.correlation == 'independent'):
    return 'lattice_gaussian'
  return 'gaussian'
