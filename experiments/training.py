"""A private training run as a value: configuration in, results out.

What the launchers and the experiments share. Configurations that differ in
seed, epsilon and fold only are trained at once, by one compiled program.
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
from dpjax.data import images
from dpjax.data import splits
from dpjax.models.model import Model
from dpjax.privacy.adjacency import Adjacency
from dpjax.train import bassily
from dpjax.train import checkpoint
from dpjax.train import evaluate
from dpjax.train import loop
from dpjax.train import sharding
from dpjax.train import step
from dpjax.train.checkpoint import Checkpoints
from dpjax.train.plan import TrainingPlan, non_private_plan, private_plan
from dpjax.typing import Params, PRNGKey
from experiments import building
from experiments import canaries as canaries_lib
from experiments import configuration
from experiments import run_keys
from experiments.canaries import Canaries
from experiments.configuration import TrainingConfig

# Values held at once by all runs together, 4 bytes each: 512 MiB.
_MAX_PARALLEL_VALUES = 2**27


class TrainingResult(NamedTuple):
  """One finished run.

  Attributes:
    config: with every default resolved.
    plan: sampler, steps and noise; its event is what ran.
    num_train: training records n, canaries not counted.
    num_test: records evaluated on: held-out ones, or those of the fold.
    params: trained parameters, a dict of layers.
    test_accuracy: on those records. Of a fold it is an exact statistic of
      private records, not covered by epsilon.
    epsilon: of the event that ran; infinite for 'sgd'.
    epsilon_valid: False for the methods in quarantine, whose event is only
      claimed. Of a run with a noise_seed epsilon holds against whoever does
      not know or guess it.
    joint_noise_multiplier: measured, smallest of all steps.
    l2_sensitivity: of each block at the last step.
    num_nonfinite: records that counted as zero, over all steps; canaries that
      were left out are among them.
    compile_seconds: shared by the runs trained together.
    train_seconds: its share of the time of the runs trained together.
    canaries: in its slots beside the records, if there are any.
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
  """The plan of a resolved configuration; calibrates the noise.

  Args:
    config: resolved.
    lattice_size: how many values a step releases, for noise on a lattice.
  """
  if (config.noise == 'lattice_gaussian') != (lattice_size is not None):
    raise ValueError('noise on a lattice is planned for a number of values')
  common = _public(config)
  if config.method == 'sgd':
    return non_private_plan(**common)
  if config.method == 'bassily':
    return dataclasses.replace(
        bassily.bassily_plan(epsilon=config.epsilon, delta=config.delta,
                             **common), lattice_size=lattice_size)
  if config.method == 'lip_k_norm':
    common['noise_order'] = float(config.noise_order)
  return private_plan(epsilon=config.epsilon, delta=config.delta,
                      accountant=config.accountant, lattice_size=lattice_size,
                      **common)


def plan_of(config: TrainingConfig, noise_multiplier: float | None,
            lattice_size: int | None = None) -> TrainingPlan:
  """The plan of a resolved configuration that ran with this much noise.

  Args:
    config: resolved.
    noise_multiplier: as its summary tells it; None for 'sgd'.
    lattice_size: see `make_plan`.
  """
  plan = non_private_plan(**_public(config))
  if config.method == 'sgd':
    return plan
  order = float(config.noise_order) if config.method == 'lip_k_norm' else None
  return dataclasses.replace(plan, noise_multiplier=noise_multiplier,
                             noise_order=order, lattice_size=lattice_size)


def _public(config: TrainingConfig) -> dict[str, Any]:
  """What all plans of a configuration have in common."""
  return dict(num_examples=config.num_slots, num_steps=config.num_steps,
              batch_size=config.batch_size,
              max_batch_size=config.max_batch_size,
              adjacency=Adjacency(config.adjacency))


def lattice_size(config: TrainingConfig,
                 dataset: building.Dataset) -> int | None:
  """How many values a step releases, if they are on a lattice."""
  if config.noise != 'lattice_gaussian':
    return None
  model = building.make_model(config, dataset)
  return step.num_released(model, building.make_method(config, model))


def split_rows(config: TrainingConfig,
               dataset: building.Dataset) -> splits.Split:
  """The split of a split seed, the same for all methods and budgets.

  Images keep the publisher's parts; of tables a share is held out.
  """
  seed = config.seed if config.split_seed is None else config.split_seed
  key = jax.random.fold_in(jax.random.key(seed), 0)
  if isinstance(dataset, images.ImageDataset):
    split = splits.official_split(key, num_train=dataset.train.y.shape[0],
                                  num_test=dataset.test.y.shape[0])
  else:
    split = splits.train_test_split(key, dataset.x.shape[0],
                                    test_fraction=config.test_fraction)
  if config.fold is not None:
    split = splits.fold(split, config.fold, num_folds=config.num_folds)
  return splits.take(split, config.num_examples)


def num_available(config: TrainingConfig, dataset: building.Dataset) -> int:
  """Records of the data set that there are to train on."""
  if isinstance(dataset, images.ImageDataset):
    available = dataset.train.y.shape[0]
  else:
    total = dataset.x.shape[0]
    available = total - round(config.test_fraction * total)
  if config.fold is None:
    return available
  return (config.num_folds - 1) * (available // config.num_folds)


def train(
    configs: Sequence[TrainingConfig], *, data_dir: str | None = None,
    dataset: building.Dataset | None = None,
    on_plans: Callable[[list], None] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    mesh: jax.sharding.Mesh | None = None,
    checkpoints: Checkpoints | None = None,
    keys: PRNGKey | None = None,
) -> list[TrainingResult]:
  """Trains configurations that differ in seeds, epsilon and fold only.

  Args:
    configs: one or more; all with a noise_seed, or none.
    data_dir: folder of the data sets.
    dataset: the data set, if it is loaded already; not prepared.
    on_plans: called with [(resolved configuration, plan)] before training.
    on_progress: called now and then with (steps done, steps in all).
    mesh: devices that share each batch, see `loop.fit`.
    checkpoints: where the runs are saved and resumed from; the configurations
      are added to its description.
    keys: [L] secret keys of configurations without a noise_seed, from
      `run_keys.new_keys`; for runs that have to be resumed with the same ones.
      What is drawn of them depends on configuration and records, too. None
      draws keys.

  Raises:
    ValueError, FileNotFoundError: one line, before anything is trained.
  """
  first = configuration.check(configs[0])
  sharding.check(mesh, first.max_batch_size)
  if mesh is not None and first.method == 'lip_printed':
    raise ValueError('lip_printed divides by the maximum of a batch, which '
                     'cannot be shared out: it trains on one device')
  for config in configs:
    if (dataclasses.replace(config, seed=first.seed, epsilon=first.epsilon,
                            noise_seed=first.noise_seed,
                            fold=first.fold) != first or
        (config.noise_seed is None) != (first.noise_seed is None) or
        (config.fold is None) != (first.fold is None)):
      raise ValueError('runs trained together may differ in seeds and epsilon '
                       'only, or in which fold they leave out')
  if dataset is None:
    dataset = building.load(first, data_dir=data_dir)
  dataset = building.prepare(first, dataset)
  available = num_available(first, dataset)
  configs = [configuration.resolve(c, num_available=available) for c in configs]
  keys = run_keys.draw(configs, keys, dataset.records)
  parts = [draw_parts(config, dataset, key)
           for config, key in zip(configs, keys, strict=True)]
  released = lattice_size(configs[0], dataset)
  plans = [make_plan(config, released) for config in configs]
  if on_plans is not None:
    on_plans(list(zip(configs, plans, strict=True)))
  if checkpoints is not None:
    checkpoints = dataclasses.replace(
        checkpoints, description={**checkpoints.description,
                                  **checkpoint.describe(configs)})
  return _fit(configs, keys, plans, dataset, parts, on_progress, mesh,
              checkpoints)


def draw_parts(config: TrainingConfig, dataset: building.Dataset,
               key: PRNGKey | None = None
               ) -> tuple[Canaries | None, splits.Split]:
  """Returns the canaries of a resolved configuration, if any, and its split.

  Args:
    config: resolved.
    dataset: prepared.
    key: of the run; needed for canaries without any seed.
  """
  split = split_rows(config, dataset)
  if not config.num_canaries:
    return None, split
  return canaries_lib.draw(config, dataset, split, key)


def _fit(configs, keys, plans, dataset, parts, on_progress, mesh,
         checkpoints) -> list[TrainingResult]:
  first = configs[0]
  model = building.make_model(first, dataset)
  canaries, parts = zip(*parts, strict=True)
  records, rows = dataset.records, [part.train for part in parts]
  if first.num_canaries:
    records, slots = canaries_lib.join(records, canaries)
    rows = list(map(jnp.concatenate, zip(rows, slots, strict=True)))
  result = loop.fit(
      keys, init_keys=jnp.stack(list(map(run_keys.init_key, configs))),
      plans=plans, model=model, method=building.make_method(first, model),
      optimizer=building.make_optimizer(first), records=records,
      rows=jnp.stack(rows),
      allocation=first.allocation, on_progress=on_progress,
      max_parallel=_max_parallel(first, plans[0], model),
      averaging=building.make_averaging(first), mesh=mesh,
      checkpoints=checkpoints)
  params = result.state.params
  if first.average != 'none':
    params = result.state.average.mean
  accuracies = evaluate.accuracies(model.apply, params, records,
                                   jnp.stack([part.test for part in parts]))
  return [
      TrainingResult(
          config=config, plan=plan, num_train=config.num_examples,
          num_test=parts[run].test.shape[0],
          params=jax.tree.map(lambda leaf, r=run: np.asarray(leaf[r]), params),
          test_accuracy=float(accuracies[run]),
          epsilon=_epsilon(plan, config.delta, config.accountant),
          epsilon_valid=config.method != 'lip_printed',
          joint_noise_multiplier=float(result.joint_noise_multipliers[run]),
          l2_sensitivity=tuple(
              map(float, result.info.l2_sensitivity[-1, run])),
          num_nonfinite=int(np.sum(result.info.num_nonfinite[:, run])),
          compile_seconds=result.compile_seconds,
          train_seconds=result.train_seconds / len(configs),
          canaries=canaries[run])
      for run, (config, plan) in enumerate(zip(configs, plans, strict=True))
  ]


@functools.lru_cache(maxsize=1024)
def _epsilon(plan: TrainingPlan, delta: float, accountant: str) -> float:
  """Of one plan; sweeps have the same one for many methods."""
  if plan.noise_multiplier is None:
    return math.inf
  return plan.epsilon(delta, accountant=accountant)


def _max_parallel(config: TrainingConfig, plan: TrainingPlan,
                  model: Model) -> int:
  """How many runs to advance at once: as many as fit into memory."""
  shapes = jax.eval_shape(model.init, jax.random.key(0))
  values = tree.count(shapes)
  if config.method.startswith('dp_sgd'):
    values *= min(plan.sampler.part_size,
                  config.microbatch_size or plan.sampler.part_size)
  return max(1, _MAX_PARALLEL_VALUES // max(values, 1))
