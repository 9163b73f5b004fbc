"""Loads a finished training run from its folder, to audit it.

The summary contains the configuration and the noise of the run; event, data and
initial parameters follow from them. Canaries and coins are read from a file,
because a release draws them from a secret key that is not kept. If they follow
from a seed, they are drawn again and compared.
"""

from collections.abc import Mapping
import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.models.model import Model
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import run_keys
from dpjax.runs import summary as summaries
from dpjax.runs import training
from dpjax.runs.canaries import Canaries
from dpjax.runs.configuration import TrainingConfig
from dpjax.train.plan import TrainingPlan
from dpjax.typing import ApplyFn, Array, Batch, Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinishedRun:
  """A finished run with canaries, loaded from its folder.

  Attributes:
    summary: the summary file.
    config: the resolved configuration.
    plan: the training plan, with the noise multiplier of the summary.
    model: the trained model.
    predict: maps parameters and records to scores of the classes.
    params: its parameters after training.
    initial: its parameters before the first step, from the public seed.
    canaries: the canaries and their coins, as written by the run.
  """
  summary: Mapping[str, Any]
  config: TrainingConfig
  plan: TrainingPlan
  model: Model
  predict: ApplyFn
  params: Params
  initial: Params
  canaries: Canaries


def find(run_dir: pathlib.Path) -> list[pathlib.Path]:
  """Returns the run folders at or below a folder, sorted.

  Raises:
    FileNotFoundError: if there are none.
  """
  folders = sorted(path.parent for path in run_dir.rglob(summaries.NAME))
  if not folders:
    raise FileNotFoundError(f'no {summaries.NAME} in or below {run_dir}')
  return folders


def load(folder: pathlib.Path, *, data_dir: str | None = None) -> FinishedRun:
  """Loads a finished run and rebuilds its plan, model and initial parameters.

  Args:
    folder: run folder with a summary, parameters and canaries.
    data_dir: folder of the data sets; None for the default.

  Raises:
    ValueError, OSError: if the run had no canaries, a file is missing, or the
      files do not belong to one run.
  """
  summary = summaries.read(folder)
  config = _config(folder, summary)
  if config.user_column is not None:
    raise ValueError(f'the run in {folder} is private for users; only runs '
                     'without --user_column have canaries to look for')
  if not config.num_canaries:
    raise ValueError(f'the run in {folder} has no canaries to look for: train '
                     'with --num_canaries, e.g. 500')
  dataset = building.prepare(config, building.load(config, data_dir=data_dir))
  plan = training.plan_of(config, summary.get('noise_multiplier'),
                          training.lattice_size(config, dataset))
  canaries = _canaries(folder, config, dataset)
  model = building.make_model(config, dataset)
  method = building.make_method(config, model, dataset)
  initial, _ = method.constraint.constrain(model.init(
      run_keys.init_key(config)))
  return FinishedRun(
      summary=summary, config=config, plan=plan, model=model,
      predict=building.make_predictor(config, model, dataset), initial=initial,
      params=_params(folder, initial), canaries=canaries)


def _config(folder: pathlib.Path,
            summary: Mapping[str, Any]) -> TrainingConfig:
  """Returns the checked configuration of a summary."""
  # JSON has lists where the configuration has tuples.
  values: dict[str, Any] = {
      name: tuple(value) if isinstance(value, list) else value
      for name, value in summary['config'].items()}
  try:
    return configuration.check(TrainingConfig(**values))
  except TypeError as error:
    raise ValueError(f'{folder / summaries.NAME} was written by another '
                     f'version of dpjax: {errors.one_line(error)}') from None


def _canaries(folder: pathlib.Path, config: TrainingConfig,
              dataset: building.Dataset) -> Canaries:
  """Reads canaries; rejects those that do not match the configuration."""
  path, shapes = folder / summaries.CANARIES, building.shapes(dataset)
  size = config.num_canaries
  with np.load(path, allow_pickle=False) as file:
    arrays = dict(file)
  expected = {'x': ((size, *shapes.record), 'f'), 'y': ((size,), 'i'),
              'included': ((size,), 'b')}
  matches = all(name in arrays and arrays[name].shape == shape and
                arrays[name].dtype.kind == kind
                for name, (shape, kind) in expected.items())
  if matches and not (config.noise_seed is None and config.canary_seed is None):
    redrawn, _ = training.draw_parts(config, dataset)
    assert redrawn is not None  # The configuration has canaries.
    matches = (np.array_equal(arrays['included'], redrawn.included) and
               np.array_equal(arrays['y'], redrawn.records.y) and
               np.allclose(arrays['x'], redrawn.records.x, atol=1e-6))
  if not matches:
    raise ValueError(f'{path} does not match the configuration: the data or '
                     'the version of dpjax differ')
  return Canaries(Batch(jnp.asarray(arrays['x']), jnp.asarray(arrays['y'])),
                  jnp.asarray(arrays['included']))


def _params(folder: pathlib.Path, like: Params) -> Params:
  """Reads trained parameters with the structure and shapes of `like`."""
  with np.load(folder / summaries.PARAMS, allow_pickle=False) as file:
    arrays = dict(file)

  def leaf(path: tuple[Any, ...], initial: Array) -> Array:
    name = '/'.join(entry.key for entry in path)
    if name not in arrays or arrays[name].shape != initial.shape:
      raise ValueError(f'{folder / summaries.PARAMS} belongs to another model: '
                       f'it has no {name} of shape {initial.shape}')
    return jnp.asarray(arrays[name])

  return jax.tree_util.tree_map_with_path(leaf, like)
