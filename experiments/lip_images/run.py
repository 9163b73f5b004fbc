"""Runs settings in `sweep.py`: those that differ in seed or budget at once."""

from collections.abc import Iterator, Sequence

import jax
import numpy as np

from dpjax import tree
from dpjax.data import containers
from dpjax.data import images
from dpjax.data import registry
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import run_keys
from dpjax.runs import training
from experiments import records
from experiments import rows
from experiments.lip_images import hyperparameters
from experiments.lip_images import sweep


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  if settings[0].profile == 'count':
    for setting in settings:
      yield setting, rows.exact(setting, {'num_parameters': _count(setting)})
    return
  results = training.train(
      [config(setting) for setting in settings], data_dir=data_dir,
      on_progress=lambda done, total: progress(done / total,
                                               settings[0].method))
  for setting, result in zip(settings, results, strict=True):
    size = tree.count(result.params)
    yield setting, [*rows.of_training(setting, result), *rows.trained(
        setting, result, {'num_parameters': size})]


def config(setting: sweep.Setting) -> configuration.TrainingConfig | None:
  """Returns the training configuration; None for counts of parameters."""
  if setting.profile == 'count':
    return None
  return run_keys.reproducible(
      configuration.TrainingConfig(**hyperparameters.fields(setting)))


def blank(name: str) -> images.ImageDataset:
  """Returns a data set with one black image in each part, for its shapes."""
  spec = registry.IMAGES[name]
  part = containers.Images(np.zeros((1, *spec.image_shape), np.uint8),
                           np.zeros(1, np.int32))
  return images.ImageDataset(name, part, part, spec.class_names, 255)


def _count(setting: sweep.Setting) -> int:
  """Returns the number of parameters of an architecture of Table 5.3."""
  config = configuration.resolve(
      configuration.TrainingConfig(
          dataset=setting.dataset, method='sgd', batch_size=1.0,
          **hyperparameters.MODELS[setting.model]), num_available=1)
  model = building.make_model(config, blank(setting.dataset))
  shapes = jax.eval_shape(model.init, jax.random.key(0))
  return tree.count(shapes)
