"""Trains configurations: calibrates noise, splits data, trains, evaluates.

Configurations that differ in seed, epsilon and fold only are trained together
by one compiled program; with records on disk, one at a time.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import tree
from dpjax.data import arrays
from dpjax.data import images
from dpjax.data import splits
from dpjax.data.streamed import StreamedDataset
from dpjax.models.model import Model
from dpjax.papers.bassily import bassily_plan
from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import building
from dpjax.runs import canaries as canaries_lib
from dpjax.runs import configuration
from dpjax.runs import run_data
from dpjax.runs import run_keys
from dpjax.runs import run_sampling
from dpjax.runs import run_users
from dpjax.runs import settings
from dpjax.runs import training_methods
from dpjax.runs.canaries import Canaries
from dpjax.runs.configuration import TrainingConfig
from dpjax.runs.run_data import RunData
from dpjax.train import checkpoint
from dpjax.train import loop
from dpjax.train import sharding
from dpjax.train import step
from dpjax.train.averaging import AverageState
from dpjax.train.checkpoint import Checkpoints
from dpjax.train.placement import Place
from dpjax.train.plan import non_private_plan
from dpjax.train.plan import private_plan
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Params, PRNGKey

# Most float32 values held at once by all runs together: 512 MiB.
_MAX_PARALLEL_VALUES = 2**27

OnPlans = Callable[[list[tuple[TrainingConfig, TrainingPlan]]], None]
"""Called with all runs and their plans before the first step of training."""


class TrainingResult(NamedTuple):
  """Result of one finished run.

  Attributes:
    config: configuration, with every default resolved.
    plan: sampler, steps and noise; its event is the one that ran.
    num_train: number n of training records, without canaries; or of users.
    num_test: number of records evaluated on: held-out ones, or the fold; or of
      users, on all of whose records it is evaluated.
    params: trained parameters, a dict of layers.
    test_accuracy: share of those records classified correctly. On a fold it is
      an exact statistic of private records, which epsilon does not cover.
    epsilon: epsilon of the event that ran; infinite for 'sgd'.
    epsilon_valid: whether the epsilon holds; False for 'lip_printed', whose
      event is claimed, not proved.
      For a run with a noise_seed, epsilon holds only against an adversary who
      neither knows nor guesses the seed.
    joint_noise_multiplier: smallest joint noise multiplier of all steps, as
      measured.
    l2_sensitivity: l2 sensitivity of each block at the last step.
    num_nonfinite: private count of non-finite records, which count as zero,
      over all steps, among them left-out canaries.
    compile_seconds: compile time, shared by the runs trained together.
    train_seconds: training time of these runs, divided by their number.
    canaries: canaries and coin flips; None without canaries.
  """
  config: TrainingConfig
  plan: TrainingPlan
  num_train: int
  num_test: int
  params: Params
  test_accuracy: float
  epsilon: float
  epsilon_valid: bool
  joint_noise_multiplier: float
  l2_sensitivity: tuple[float, ...]
  num_nonfinite: int
  compile_seconds: float
  train_seconds: float
  canaries: Canaries | None = None


def make_plan(config: TrainingConfig,
              lattice_size: int | None = None) -> TrainingPlan:
  """Calibrates the noise of a resolved configuration; returns its plan.

  Args:
    config: resolved configuration.
    lattice_size: value of the function `lattice_size`.

  Raises:
    ValueError: if lattice_size is missing, or given for floating-point noise.
  """
  if (config.noise == 'lattice_gaussian') != (lattice_size is not None):
    raise ValueError('lattice_size must be given if and only if noise = '
                     'lattice_gaussian')
  common = _public(config)
  if config.method == 'sgd':
    return non_private_plan(**common)
  if config.method == 'bassily':
    return dataclasses.replace(
        bassily_plan(
            epsilon=config.epsilon, delta=settings.known(config.delta),
            **common), lattice_size=lattice_size)
  if config.method == 'lip_k_norm':
    common['noise_order'] = float(config.noise_order)
  return private_plan(epsilon=config.epsilon,
                      delta=settings.known(config.delta),
                      accountant=config.accountant, lattice_size=lattice_size,
                      sampler=run_sampling.sampler(config),
                      strategy=run_sampling.strategy(config), **common)


def plan_of(config: TrainingConfig, noise_multiplier: float | None,
            lattice_size: int | None = None) -> TrainingPlan:
  """Returns the plan of a finished run, without calibrating again.

  Args:
    config: resolved configuration.
    noise_multiplier: noise multiplier in its summary; None for 'sgd'.
    lattice_size: see `make_plan`.
  """
  # This plan has the steps, but no noise.
  plan = non_private_plan(**_public(config))
  if config.method == 'sgd':
    return plan
  order = float(config.noise_order) if config.method == 'lip_k_norm' else None
  return dataclasses.replace(
      plan, noise_multiplier=noise_multiplier, noise_order=order,
      lattice_size=lattice_size, strategy=run_sampling.strategy(config),
      sampler=run_sampling.sampler(config))


def _public(config: TrainingConfig) -> dict[str, Any]:
  """Returns the public arguments that all plans of a configuration share."""
  return dict(num_examples=config.num_slots, num_steps=config.num_steps,
              batch_size=config.batch_size,
              max_batch_size=config.max_batch_size,
              adjacency=Adjacency(config.adjacency))


def lattice_size(config: TrainingConfig,
                 dataset: building.AnyDataset) -> int | None:
  """Returns the number of values per step for lattice noise, else None."""
  if config.noise != 'lattice_gaussian':
    return None
  model = building.make_model(config, dataset)
  return step.num_released(
      model, building.make_method(config, model, dataset))


def split_rows(config: TrainingConfig,
               dataset: building.Dataset) -> splits.Split:
  """Splits the rows into training and test; the same for every method.

  Images keep the publisher's split. For tables, a random `test_fraction` of the
  records is held out, or of the users. The split depends on the split seed
  only.
  """
  seed = config.seed if config.split_seed is None else config.split_seed
  # No other stream of the seed folds in 0; runs fold in a digest.
  key = jax.random.fold_in(jax.random.key(seed), 0)
  if isinstance(dataset, images.ImageDataset):
    split = splits.official_split(key, num_train=dataset.train.y.shape[0],
                                  num_test=dataset.test.y.shape[0])
  else:
    split = splits.train_test_split(key, _num_units(dataset),
                                    test_fraction=config.test_fraction)
  if config.fold is not None:
    split = splits.fold(split, config.fold, num_folds=config.num_folds)
  return splits.take(split, settings.known(config.num_examples))


def num_available(config: TrainingConfig,
                  dataset: building.AnyDataset) -> int:
  """Returns how many training records, or users, this split has."""
  # The sizes must agree with those of `split_rows` and `run_data.split`.
  if isinstance(dataset, images.ImageDataset):
    available = dataset.train.y.shape[0]
  elif isinstance(dataset, StreamedDataset) and dataset.num_test:
    available = dataset.num_records - dataset.num_test
  else:
    total = _num_units(dataset)
    available = total - round(config.test_fraction * total)
  if config.fold is None:
    return available
  return (config.num_folds - 1) * (available // config.num_folds)


def _num_units(dataset: arrays.Dataset | run_users.UserTable |
               StreamedDataset) -> int:
  """Returns the number of records of a table, or of its users."""
  if isinstance(dataset, run_users.UserTable):
    return dataset.num_users
  return (dataset.num_records if isinstance(dataset, StreamedDataset)
          else dataset.x.shape[0])


def train(
    configs: Sequence[TrainingConfig], *, data_dir: str | None = None,
    dataset: building.AnyDataset | None = None,
    on_plans: OnPlans | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    mesh: jax.sharding.Mesh | None = None, place: Place | None = None,
    checkpoints: Checkpoints | None = None,
    keys: PRNGKey | None = None,
) -> list[TrainingResult]:
  """Trains configurations that differ in seeds, epsilon and fold only.

  Args:
    configs: the L configurations; all with a noise_seed, or none. Only one
      if its records stay on disk.
    data_dir: folder of the data sets; None for the default folder.
    dataset: the data set if it is loaded already, before `building.prepare`.
    on_plans: called with [(resolved configuration, plan)] before training.
    on_progress: called repeatedly with (steps done, steps in total).
    mesh: devices that share each batch, see `loop.fit`.
    place: divides parameters over the mesh, see `loop.fit`.
    checkpoints: where runs are saved and resumed from.
    keys: [L] secret keys from `run_keys.new_keys`, to resume runs without a
      noise_seed; None draws new ones. They are bound to the configuration and
      the records.

  Returns:
    One result per configuration, in the same order.

  Raises:
    ValueError, FileNotFoundError: with a message of one line, before training.
  """
  first = configuration.check(configs[0])
  _check_devices(first, mesh, place)
  _check_together(configs)
  dataset = _prepared(first, dataset, data_dir)
  available = num_available(first, dataset)
  configs = [configuration.resolve(c, num_available=available) for c in configs]
  description = checkpoint.describe(configs)
  if isinstance(dataset, StreamedDataset):
    # All fields are read, and refused if they are not allowed, before budget
    # is spent. The digest refuses to resume a run on changed files.
    digest = dataset.digest()
    description[checkpoint.ALL_RECORDS] = digest.hex()
    keys = run_keys.draw(configs, keys, digest)
    data = run_data.on_disk(configs[0], dataset)
  else:
    keys = run_keys.draw(configs, keys, dataset.records)
    data = run_data.in_memory(dataset, [
        draw_parts(config, dataset, key)
        for config, key in zip(configs, keys, strict=True)])
  num_released = lattice_size(configs[0], dataset)
  plans = [make_plan(config, num_released) for config in configs]
  if on_plans is not None:
    on_plans(list(zip(configs, plans, strict=True)))
  if checkpoints is not None:
    checkpoints = dataclasses.replace(
        checkpoints, description={**checkpoints.description, **description})
  return _fit(configs, keys, plans, dataset, data, on_progress=on_progress,
              mesh=mesh, place=place, checkpoints=checkpoints)


def _prepared(config: TrainingConfig, dataset: building.AnyDataset | None,
              data_dir: str | None) -> building.AnyDataset:
  """Returns the data set, loaded or opened if it is None, and prepared."""
  if dataset is None:
    dataset = (building.open_streamed if config.stream else building.load)(
        config, data_dir=data_dir)
  return dataset if isinstance(dataset, StreamedDataset) else (
      building.prepare(config, dataset))


def _check_devices(config: TrainingConfig, mesh: jax.sharding.Mesh | None,
                   place: Place | None) -> None:
  """Checks that the devices can share the batches of a run."""
  sharding.check(mesh, config.max_batch_size, data_only=place is None)
  if mesh is not None and config.method == 'lip_printed':
    raise ValueError('lip_printed divides by the maximum over a batch, which '
                     'devices cannot share: train it on one device')
  if mesh is not None and mesh.is_multi_process and config.stream:
    raise ValueError('records on disk are read by one process: without '
                     'stream, several processes can train')


def _check_together(configs: Sequence[TrainingConfig]) -> None:
  """Checks that configurations can be trained by one call of `train`."""
  first = configs[0]
  for config in configs:
    if (dataclasses.replace(config, seed=first.seed, epsilon=first.epsilon,
                            noise_seed=first.noise_seed,
                            fold=first.fold) != first or
        (config.noise_seed is None) != (first.noise_seed is None) or
        (config.fold is None) != (first.fold is None)):
      raise ValueError('runs trained together may differ in seeds and epsilon '
                       'only, or in the fold that they leave out')
  if first.stream and len(configs) > 1:
    raise ValueError('runs on records that stay on disk are trained one at a '
                     'time')


def draw_parts(config: TrainingConfig, dataset: building.Dataset,
               key: PRNGKey | None = None
               ) -> tuple[Canaries | None, splits.Split]:
  """Returns the canaries of a configuration (None without), and its split.

  Args:
    config: resolved configuration.
    dataset: the data set after `building.prepare`.
    key: key of the run; needed for canaries without canary_seed and noise_seed.
  """
  split = split_rows(config, dataset)
  if not config.num_canaries:
    return None, split
  return canaries_lib.draw(config, dataset, split, key)


def _fit(configs: Sequence[TrainingConfig], keys: PRNGKey,
         plans: Sequence[TrainingPlan], dataset: building.AnyDataset,
         data: RunData,
         on_progress: Callable[[int, int], None] | None,
         mesh: jax.sharding.Mesh | None, place: Place | None,
         checkpoints: Checkpoints | None) -> list[TrainingResult]:
  """Trains and evaluates resolved configurations; the arguments of `train`."""
  first = configs[0]
  model = building.make_model(first, dataset)
  result = loop.fit(
      keys, init_keys=jnp.stack(list(map(run_keys.init_key, configs))),
      plans=plans, model=model,
      method=building.make_method(first, model, dataset),
      optimizer=building.make_optimizer(first), records=data.records,
      rows=data.rows, allocation=settings.known(first.allocation),
      on_progress=on_progress, mesh=mesh, place=place, checkpoints=checkpoints,
      max_parallel=_max_parallel(first, plans[0], model),
      averaging=building.make_averaging(first))
  params, average = result.state.params, result.state.average
  if isinstance(average, AverageState):  # else ()
    params = average.mean
  # Divided parameters are evaluated where they are.
  accuracies = data.accuracies(building.make_predictor(first, model, dataset),
                               params, mesh if place else None)
  params = sharding.on_host(params)
  return [
      _result(config, plan, canaries, run=run, fitted=result,
              num_test=data.num_test,
              params=jax.tree.map(lambda leaf, r=run: leaf[r], params),
              test_accuracy=accuracies[run],
              train_seconds=result.train_seconds / len(configs))
      for run, (config, plan, canaries) in enumerate(
          zip(configs, plans, data.canaries, strict=True))
  ]


def _result(config: TrainingConfig, plan: TrainingPlan,
            canaries: Canaries | None, *, run: int, fitted: loop.FitResult,
            num_test: int, params: Params, test_accuracy: float,
            train_seconds: float) -> TrainingResult:
  """Returns the result of one of the runs that were trained together."""
  return TrainingResult(
      config=config, plan=plan, num_train=settings.known(config.num_examples),
      num_test=num_test, params=params, test_accuracy=test_accuracy,
      epsilon=_epsilon(plan, settings.known(config.delta), config.accountant),
      epsilon_valid=training_methods.METHODS[config.method].epsilon_valid,
      joint_noise_multiplier=float(fitted.joint_noise_multipliers[run]),
      l2_sensitivity=tuple(map(float, fitted.info.l2_sensitivity[-1, run])),
      num_nonfinite=int(np.sum(fitted.info.num_nonfinite[:, run])),
      compile_seconds=fitted.compile_seconds, train_seconds=train_seconds,
      canaries=canaries)


@functools.lru_cache(maxsize=1024)
def _epsilon(plan: TrainingPlan, delta: float, accountant: str) -> float:
  """Returns the epsilon of a plan; cached, as sweeps repeat plans."""
  if plan.noise_multiplier is None:
    return math.inf
  return plan.epsilon(delta, accountant=accountant)


def _max_parallel(config: TrainingConfig, plan: TrainingPlan,
                  model: Model) -> int:
  """Returns how many runs to advance at once within `_MAX_PARALLEL_VALUES`."""
  # Only shapes are computed, so any key will do.
  shapes = jax.eval_shape(model.init, jax.random.key(0))
  values = tree.count(shapes)
  # These methods hold one gradient for each record of a microbatch.
  if config.method.startswith('dp_sgd'):
    values *= min(plan.sampler.part_size,
                  config.microbatch_size or plan.sampler.part_size)
  return max(1, _MAX_PARALLEL_VALUES // max(values, 1))
