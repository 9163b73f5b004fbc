"""Runs settings of `sweep.py`: those that differ in seed or budget at once."""

from collections.abc import Iterator, Sequence

import jax
import numpy as np

from dpjax import tree
from dpjax.data import containers
from dpjax.data import images
from dpjax.data import registry
from dpjax.privacy.adjacency import Adjacency
from dpjax.report import records
from experiments import building
from experiments import configuration
from experiments import training
from experiments.lip_images import hyperparameters
from experiments.lip_images import sweep


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  if settings[0].profile == 'count':
    for setting in settings:
      yield setting, [_count(setting)]
    return
  results = training.train(
      [config(setting) for setting in settings], data_dir=data_dir,
      on_progress=lambda done, total: progress(done / total,
                                               settings[0].method))
  for setting, result in zip(settings, results, strict=True):
    yield setting, _rows(setting, result)


def config(setting: sweep.Setting) -> configuration.TrainingConfig:
  """What a setting trains."""
  return configuration.TrainingConfig(**hyperparameters.fields(setting))


def blank(name: str) -> images.ImageDataset:
  """A data set of one black record in each part, for its shapes."""
  spec = registry.IMAGES[name]
  part = containers.Images(np.zeros((1, *spec.image_shape), np.uint8),
                           np.zeros(1, np.int32))
  return images.ImageDataset(name, part, part, spec.class_names, 255)


def _count(setting: sweep.Setting) -> records.Row:
  """Parameters of an architecture of Table 5.3: no data, so epsilon 0."""
  asked = configuration.resolve(
      configuration.TrainingConfig(
          dataset=setting.dataset, method='sgd', batch_size=1.0,
          **hyperparameters.MODELS[setting.model]), num_available=1)
  model = building.make_model(asked, blank(setting.dataset))
  shapes = jax.eval_shape(model.init, jax.random.key(0))
  return records.Row(
      seed=setting.seed, metric='num_parameters', value=tree.count(shapes), n=0,
      epsilon_requested=0.0, epsilon=0.0, epsilon_valid=True, delta=0.0,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE.value, accountant='none',
      method=setting.method, dataset=setting.dataset)


def _rows(setting: sweep.Setting,
          result: training.TrainingResult) -> list[records.Row]:
  """Accuracy, the noise and what a step cost."""
  private = result.plan.noise_multiplier is not None
  metrics = {
      'test_accuracy': result.test_accuracy,
      'noise_multiplier': result.plan.noise_multiplier or 0.0,
      'num_parameters': tree.count(result.params),
      'step_microseconds': 1e6 * result.train_seconds / result.plan.num_steps,
  }
  return [
      records.Row(
          seed=setting.seed, metric=metric, value=value, n=result.num_train,
          epsilon_requested=setting.epsilon, epsilon=result.epsilon,
          epsilon_valid=result.epsilon_valid,
          delta=result.config.delta if private else 0.0,
          adjacency=result.config.adjacency,
          accountant=result.config.accountant, method=setting.method,
          dataset=setting.dataset, wall_s=result.train_seconds)
      for metric, value in metrics.items()
  ]
