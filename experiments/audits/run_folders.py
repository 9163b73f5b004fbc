"""Run folders: what a training run was made of, made again.

The summary tells the configuration and the noise that ran; event, data and
initial parameters follow from them. Canaries and coins are read, because a
release draws them from a secret key that is gone; what a seed makes again is
compared.
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
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Batch, Params
from experiments import building
from experiments import configuration
from experiments import run_keys
from experiments import summary as summaries
from experiments import training
from experiments.canaries import Canaries
from experiments.configuration import TrainingConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinishedRun:
  """What a run folder says.

  Attributes:
    summary: as written.
    config: resolved, with canaries.
    plan: of the configuration with the noise that the summary tells.
    model: as trained.
    params: trained.
    initial: parameters before the first step, from the public seed.
    canaries: with their coins, as they were written.
  """
  summary: Mapping[str, Any]
  config: TrainingConfig
  plan: TrainingPlan
  model: Model
  params: Params
  initial: Params
  canaries: Canaries


def find(run_dir: pathlib.Path) -> list[pathlib.Path]:
  """The run folders at or below a folder.

  Raises:
    FileNotFoundError: if there are none.
  """
  found = sorted(path.parent for path in run_dir.rglob(summaries.NAME))
  if not found:
    raise FileNotFoundError(f'no {summaries.NAME} in or below {run_dir}')
  return found


def load(folder: pathlib.Path, *, data_dir: str | None = None) -> FinishedRun:
  """Makes again what a run was made of.

  Args:
    folder: with a summary and parameters.
    data_dir: folder of the data sets.

  Raises:
    ValueError, OSError: one line, if the run had no canaries, or if what was
      written is not of one run.
  """
  summary = summaries.read(folder)
  config = _config(folder, summary)
  if not config.num_canaries:
    raise ValueError(f'the run in {folder} has no canaries to look for: train '
                     'with --num_canaries, e.g. 500')
  dataset = building.prepare(config, building.load(config, data_dir=data_dir))
  plan = training.plan_of(config, summary.get('noise_multiplier'),
                          training.lattice_size(config, dataset))
  canaries = _canaries(folder, config, dataset)
  model = building.make_model(config, dataset)
  method = building.make_method(config, model)
  initial, _ = method.constraint.constrain(model.init(
      run_keys.init_key(config)))
  return FinishedRun(
      summary=summary, config=config, plan=plan, model=model, initial=initial,
      params=_params(folder, initial), canaries=canaries)


def _config(folder: pathlib.Path,
            summary: Mapping[str, Any]) -> TrainingConfig:
  values = {name: tuple(value) if isinstance(value, list) else value
            for name, value in summary['config'].items()}
  try:
    return configuration.check(TrainingConfig(**values))
  except TypeError as error:
    raise ValueError(f'{folder / summaries.NAME} is of another version: '
                     f'{errors.one_line(error)}') from None


def _canaries(folder: pathlib.Path, config: TrainingConfig,
              dataset: building.Dataset) -> Canaries:
  """Reads canaries; refuses those that the configuration does not make."""
  path, shapes = folder / summaries.CANARIES, building.shapes(dataset)
  size = config.num_canaries
  with np.load(path, allow_pickle=False) as file:
    kept = dict(file)
  forms = {'x': ((size, *shapes.record), 'f'), 'y': ((size,), 'i'),
           'included': ((size,), 'b')}
  same = all(name in kept and kept[name].shape == shape and
             kept[name].dtype.kind == kind
             for name, (shape, kind) in forms.items())
  if same and not (config.noise_seed is None and config.canary_seed is None):
    made, _ = training.draw_parts(config, dataset)
    same = (np.array_equal(kept['included'], made.included) and
            np.array_equal(kept['y'], made.records.y) and
            np.allclose(kept['x'], made.records.x, atol=1e-6))
  if not same:
    raise ValueError(f'{path} is not what the configuration makes: other data, '
                     'or another version')
  return Canaries(Batch(jnp.asarray(kept['x']), jnp.asarray(kept['y'])),
                  jnp.asarray(kept['included']))


def _params(folder: pathlib.Path, like: Params) -> Params:
  """Trained parameters, of the structure of these."""
  with np.load(folder / summaries.PARAMS, allow_pickle=False) as kept:
    found = dict(kept)

  def leaf(path, initial):
    name = '/'.join(entry.key for entry in path)
    if name not in found or found[name].shape != initial.shape:
      raise ValueError(f'{folder / summaries.PARAMS} is of another model: '
                       f'{name} is not there in shape {initial.shape}')
    return jnp.asarray(found[name])

  return jax.tree_util.tree_map_with_path(leaf, like)
