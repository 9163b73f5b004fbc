"""Runs settings in `sweep.py`: those that differ in seed or budget at once."""

from collections.abc import Iterator, Mapping, Sequence
import hashlib
import pathlib
import shutil
from typing import Any

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
from dpjax.train.checkpoint import Checkpoints
from experiments import records
from experiments import rows
from experiments import selection
from experiments.lip_images import hyperparameters
from experiments.lip_images import sweep
from experiments.methods.training import diagnostics

# Chunks are seconds long, so that a stopped run loses little.
_CHUNKS = 250
# Profile that resumes killed runs -> seconds between two checkpoints.
_RESUMED = {'full': 30.0, 'de_et_al': 30.0, 'smoke': 0.0}
# Profiles and numbers of training records whose gradients are compared with
# their bounds.
_PROBED, _PROBE_SIZE = ('cpu', 'features', 'smoke'), 100


def run(settings: Sequence[sweep.Setting], data_dir: str | None, progress, *,
        state_dir: pathlib.Path | None = None
        ) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  if settings[0].profile == 'count':
    for setting in settings:
      yield setting, rows.exact(setting, {'num_parameters': _count(setting)})
    return
  # Runs of de_et_al differ in their numbers of steps, so one trains at a time.
  groups = [[setting] for setting in settings] if (
      settings[0].profile == 'de_et_al') else [settings]
  for group in groups:
    folder = _checkpoint_folder(group, state_dir)
    dataset = registry.load(group[0].dataset, data_dir=data_dir)
    results = training.train(
        [config(setting) for setting in group], dataset=dataset,
        checkpoints=folder and Checkpoints(
            folder=folder, every_seconds=_RESUMED[group[0].profile],
            most_chunks=_CHUNKS if group[0].profile != 'smoke' else None,
            other_devices=True),
        on_progress=lambda done, total, method=group[0].method: progress(
            done / total, method))
    realised = _realised(group, results, dataset)
    for setting, result, more in zip(group, results, realised, strict=True):
      size = tree.count(result.params)
      yield setting, [*rows.of_training(setting, result), *rows.trained(
          setting, result, {'num_parameters': size}), *more]
    # The rows are stored when the next one is asked for.
    if folder is not None:
      shutil.rmtree(folder, ignore_errors=True)


def _realised(group: Sequence[sweep.Setting],
              results: Sequence[training.TrainingResult],
              dataset: images.ImageDataset) -> list[list[records.Row]]:
  """Returns rows of realised bounds of Lipschitz methods on small networks."""
  first = group[0]
  if first.method not in sweep.LIPSCHITZ or first.profile not in _PROBED:
    return [[] for _ in group]
  return [diagnostics.realised_rows(setting, result, diagnosis)
          for setting, result, diagnosis in zip(
              group, results, diagnostics.diagnose(
                  results, dataset, probe_size=_PROBE_SIZE), strict=True)]


def _checkpoint_folder(group: Sequence[sweep.Setting],
                       state_dir: pathlib.Path | None) -> pathlib.Path | None:
  """Returns the folder of the checkpoints of a group; None for none."""
  if state_dir is None or group[0].profile not in _RESUMED:
    return None
  ids = '\n'.join(selection.setting_id('lip_images', each) for each in group)
  return state_dir / hashlib.sha256(ids.encode()).hexdigest()[:16]


def config(setting: sweep.Setting, *, chosen: Mapping[str, Any] | None = None
           ) -> configuration.TrainingConfig | None:
  """Returns the training configuration; None for counts of parameters.

  Args:
    setting: a setting.
    chosen: see `hyperparameters.fields`.
  """
  if setting.profile == 'count':
    return None
  return run_keys.reproducible(configuration.TrainingConfig(
      **hyperparameters.fields(setting, chosen=chosen)))


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
