"""A private training run as a value: configuration in, results out.

What the launchers and the experiments share. Configurations that differ in
seed, epsilon and fold only are trained at once, by one compiled program.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
from typing import Any, NamedTuple
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpjax import errors
from dpjax import tree
from dpjax.data import arrays
from dpjax.data import registry
from dpjax.data import splits
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.models.model import Model
from dpjax.privacy import accounting
from dpjax.privacy import blocks
from dpjax.privacy.adjacency import Adjacency
from dpjax.train import evaluate
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train.plan import TrainingPlan, non_private_plan, private_plan
from dpjax.typing import Params
from experiments import recipes

METHODS = ('sgd', 'dp_sgd', 'lip_dp_sgd', 'fix_lip_dp_sgd')
OPTIMIZERS = ('sgd', 'momentum', 'adam')
SCHEDULES = ('constant', 'cosine')
LIPSCHITZ_METHODS = ('lip_dp_sgd', 'fix_lip_dp_sgd')

# Values held at once by all runs together, 4 bytes each: 512 MiB.
_MAX_PARALLEL_VALUES = 2**27


def _later(default: Any) -> Any:
  """A field that came after rows were published, see `run_key`."""
  return dataclasses.field(default=default, metadata={'later': True})


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
  """Everything a run depends on; None stands for the recipe's value.

  Attributes:
    dataset: a name of `data.registry`.
    method: one of `METHODS`.
    epsilon: target; not used by 'sgd'.
    delta: a number, or None for n^-delta_power with n training records.
    delta_power: 1.1 keeps delta below 1/n, where releasing one record at
      random would be called private.
    adjacency: a value of `Adjacency`.
    accountant: 'pld' or 'rdp', for calibration and the reported epsilon.
    num_examples: training records to use; None for all that are not held out.
    test_fraction: share held out, at random for each split seed.
    split_seed: of the split; None for `seed`.
    fold: None to train on all that is not held out and to evaluate on what
      is; or which fold of the former to leave out and evaluate on.
    num_folds: equal parts that `fold` counts.
    num_steps: of training.
    batch_size: expected size of a Poisson batch.
    max_batch_size: rows computed at once.
    microbatch_size: records whose gradients dp_sgd holds at once.
    depth: hidden layers.
    width: units of each.
    activation: of the hidden layers.
    temperature: of the cross entropy.
    optimizer: one of `OPTIMIZERS`.
    schedule: of the learning rate, one of `SCHEDULES`.
    learning_rate: at the start.
    clip_norm: dp_sgd's bound on a record's gradient.
    weight_norm: the bound of the Lipschitz methods on each weight matrix.
    input_radius: their ball for records.
    hidden_radius: their ball for hidden activations.
    logit_clip: their bound on a record's cotangent at the logits.
    allocation: their split of the noise over layers.
    seed: of split, initialisation, batches and noise.
  """
  dataset: str
  method: str
  epsilon: float = 1.0
  delta: float | None = None
  delta_power: float = 1.1
  adjacency: str = Adjacency.ADD_OR_REMOVE_ONE.value
  accountant: str = 'pld'
  num_examples: int | None = None
  test_fraction: float = 0.2
  num_steps: int | None = None
  batch_size: float | None = None
  max_batch_size: int | None = None
  microbatch_size: int | None = None
  depth: int | None = None
  width: int | None = None
  activation: str | None = None
  temperature: float | None = None
  optimizer: str | None = None
  schedule: str | None = None
  learning_rate: float | None = None
  clip_norm: float | None = None
  weight_norm: float | None = None
  input_radius: float | None = None
  hidden_radius: float | None = None
  logit_clip: float | None = None
  allocation: str | None = None
  seed: int = 0
  split_seed: int | None = _later(None)
  fold: int | None = _later(None)
  num_folds: int = _later(5)


class TrainingResult(NamedTuple):
  """One finished run.

  Attributes:
    config: with every default resolved.
    plan: sampler, steps and noise; its event is what ran.
    num_train: training records n.
    num_test: records evaluated on: held-out ones, or those of the fold.
    params: trained parameters, a dict of layers.
    test_accuracy: on those records. Of a fold it is an exact statistic of
      private records, not covered by epsilon.
    epsilon: of the event that ran; infinite for 'sgd'.
    joint_noise_multiplier: measured, smallest of all steps.
    l2_sensitivity: of each block at the last step.
    num_nonfinite: records that counted as zero, over all steps.
    compile_seconds: shared by the runs trained together.
    train_seconds: its share of the time of the runs trained together.
  """
  config: TrainingConfig
  plan: TrainingPlan
  num_train: int
  num_test: int
  params: Params
  test_accuracy: float
  epsilon: float
  joint_noise_multiplier: float
  l2_sensitivity: tuple[float, ...]
  num_nonfinite: int
  compile_seconds: float
  train_seconds: float


def check(config: TrainingConfig) -> TrainingConfig:
  """Refuses a configuration that cannot run, in one line, at no cost."""
  errors.check_choice('dataset', config.dataset, registry.names())
  errors.check_choice('method', config.method, METHODS)
  errors.check_positive('epsilon', config.epsilon)
  if config.delta is not None:
    accounting.check_delta(config.delta)
  errors.check_choice('adjacency', config.adjacency,
                      [a.value for a in Adjacency])
  errors.check_choice('accountant', config.accountant, accounting.ACCOUNTANTS)
  for name, choices in (('optimizer', OPTIMIZERS), ('schedule', SCHEDULES),
                        ('allocation', blocks.ALLOCATIONS)):
    if getattr(config, name) is not None:
      errors.check_choice(name, getattr(config, name), choices)
  errors.check_open_unit('test_fraction', config.test_fraction)
  errors.check_at_least('seed', config.seed, 0)
  if config.split_seed is not None:
    errors.check_at_least('split_seed', config.split_seed, 0)
  errors.check_at_least('num_folds', config.num_folds, 2)
  if config.fold is not None and config.fold not in range(config.num_folds):
    raise ValueError(f'fold must be an integer from 0 to '
                     f'{config.num_folds - 1}, got {config.fold}')
  for name in ('num_examples', 'num_steps', 'max_batch_size',
               'microbatch_size'):
    if getattr(config, name) is not None:
      errors.check_at_least(name, getattr(config, name), 1)
  for name in ('batch_size', 'delta_power', 'learning_rate', 'clip_norm',
               'weight_norm', 'input_radius', 'hidden_radius', 'logit_clip',
               'temperature'):
    if getattr(config, name) is not None:
      errors.check_positive(name, getattr(config, name))
  return config


def resolve(config: TrainingConfig, *, num_available: int) -> TrainingConfig:
  """Fills in what the configuration leaves to its recipe.

  Args:
    config: maybe with None in places.
    num_available: training records there are.

  Raises:
    ValueError: one line, for more records than there are or a batch larger
      than the training set.
  """
  check(config)
  num_train = config.num_examples or num_available
  if num_train > num_available:
    raise ValueError(f'num_examples must be at most {num_available}, the '
                     f'training part of {config.dataset}, got {num_train}')
  filled = dict(num_examples=num_train)
  if config.delta is None:
    filled['delta'] = num_train**-config.delta_power
  defaults = recipes.recipe(config.method, num_train=num_train,
                            dataset=config.dataset)
  for name, value in dataclasses.asdict(defaults).items():
    if getattr(config, name) is None:
      filled[name] = value
  resolved = dataclasses.replace(config, **filled)
  if resolved.batch_size > num_train:
    raise ValueError(f'batch_size must be at most num_examples = {num_train}, '
                     f'got {resolved.batch_size}')
  return resolved


def make_plan(config: TrainingConfig) -> TrainingPlan:
  """The plan of a resolved configuration; calibrates the noise."""
  common = dict(num_examples=config.num_examples, num_steps=config.num_steps,
                batch_size=config.batch_size,
                max_batch_size=config.max_batch_size,
                adjacency=Adjacency(config.adjacency))
  if config.method == 'sgd':
    return non_private_plan(**common)
  return private_plan(epsilon=config.epsilon, delta=config.delta,
                      accountant=config.accountant, **common)


def make_model(config: TrainingConfig, dataset: arrays.Dataset) -> Model:
  """The perceptron; certified for the methods that need it."""
  certified = config.method in LIPSCHITZ_METHODS
  return mlp.mlp(
      num_features=dataset.x.shape[1], num_classes=dataset.num_classes,
      depth=config.depth, width=config.width, activation=config.activation,
      input_radius=config.input_radius if certified else None,
      hidden_radius=config.hidden_radius if certified else None)


def make_method(config: TrainingConfig, model: Model):
  """The method by its name, with its constants."""
  certified = config.method in LIPSCHITZ_METHODS
  loss = losses.cross_entropy(
      temperature=config.temperature,
      logit_clip=config.logit_clip if certified else None)
  weight_norm = config.weight_norm
  makers = {
      'sgd': methods.sgd,
      'dp_sgd': functools.partial(methods.dp_sgd, clip_norm=config.clip_norm,
                                  microbatch_size=config.microbatch_size),
      'lip_dp_sgd': functools.partial(methods.lip_dp_sgd,
                                      weight_norm=weight_norm),
      'fix_lip_dp_sgd': functools.partial(methods.fix_lip_dp_sgd,
                                          weight_norm=weight_norm),
  }
  return makers[config.method](model, loss)


def make_optimizer(config: TrainingConfig) -> optax.GradientTransformation:
  """The optimiser; whatever it does to noisy means is post-processing."""
  rate = config.learning_rate
  if config.schedule == 'cosine':
    decay = optax.cosine_decay_schedule(rate, config.num_steps)
    rate = lambda count: decay(count.astype(jnp.float32))
  makers = {'sgd': optax.sgd, 'adam': optax.adam,
            'momentum': functools.partial(optax.sgd, momentum=0.9)}
  return makers[config.optimizer](rate)


def run_key(config: TrainingConfig) -> jax.Array:
  """The key of a run: every configuration has noise of its own.

  Two releases that shared their noise would cancel it. Fields that came later
  count once they are not at their default, so that a run from before they
  were there still has the noise that it had.
  """
  fields = [
      f'{field.name}={getattr(config, field.name)!r}'
      for field in dataclasses.fields(config)
      if not field.metadata.get('later') or
      getattr(config, field.name) != field.default
  ]
  digest = zlib.crc32(f'TrainingConfig({", ".join(fields)})'.encode())
  return jax.random.fold_in(jax.random.key(config.seed), digest)


def split_rows(config: TrainingConfig, num_examples: int) -> splits.Split:
  """The split of a split seed, the same for all methods and budgets."""
  seed = config.seed if config.split_seed is None else config.split_seed
  key = jax.random.fold_in(jax.random.key(seed), 0)
  split = splits.train_test_split(key, num_examples,
                                  test_fraction=config.test_fraction)
  if config.fold is not None:
    split = splits.fold(split, config.fold, num_folds=config.num_folds)
  return splits.take(split, config.num_examples)


def num_available(config: TrainingConfig, num_examples: int) -> int:
  """Records there are to train on, of `num_examples` in the data set."""
  available = num_examples - round(config.test_fraction * num_examples)
  if config.fold is None:
    return available
  return (config.num_folds - 1) * (available // config.num_folds)


def train(
    configs: Sequence[TrainingConfig], *, data_dir: str | None = None,
    dataset: arrays.Dataset | None = None,
    on_plans: Callable[[list], None] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[TrainingResult]:
  """Trains configurations that differ in seed, epsilon and fold only.

  Args:
    configs: one or more.
    data_dir: folder of the data sets.
    dataset: the data set, if it is loaded already.
    on_plans: called with [(resolved configuration, plan)] before training.
    on_progress: called now and then with (steps done, steps in all).

  Raises:
    ValueError, FileNotFoundError: one line, before anything is trained.
  """
  first = check(configs[0])
  for config in configs:
    if (dataclasses.replace(config, seed=first.seed, epsilon=first.epsilon,
                            fold=first.fold) != first or
        (config.fold is None) != (first.fold is None)):
      raise ValueError('runs trained together may differ in seed and epsilon '
                       'only, or in which fold they leave out')
  if dataset is None:
    dataset = registry.load(first.dataset, data_dir=data_dir)
  available = num_available(first, dataset.x.shape[0])
  configs = [resolve(c, num_available=available) for c in configs]
  plans = [make_plan(config) for config in configs]
  if on_plans is not None:
    on_plans(list(zip(configs, plans, strict=True)))
  return _fit(configs, plans, dataset, on_progress)


def _fit(configs, plans, dataset, on_progress) -> list[TrainingResult]:
  first = configs[0]
  model = make_model(first, dataset)
  parts = [split_rows(config, dataset.x.shape[0]) for config in configs]
  result = loop.fit(
      jnp.stack([run_key(config) for config in configs]), plans=plans,
      model=model, method=make_method(first, model),
      optimizer=make_optimizer(first), records=dataset.records,
      rows=jnp.stack([part.train for part in parts]),
      allocation=first.allocation, on_progress=on_progress,
      max_parallel=_max_parallel(first, plans[0], model))
  accuracies = evaluate.accuracies(
      model.apply, result.state.params, dataset.records,
      jnp.stack([part.test for part in parts]))
  epsilons = {plan: _epsilon(config, plan)
              for config, plan in zip(configs, plans, strict=True)}
  return [
      TrainingResult(
          config=config, plan=plan, num_train=config.num_examples,
          num_test=parts[run].test.shape[0],
          params=jax.tree.map(lambda leaf, r=run: np.asarray(leaf[r]),
                              result.state.params),
          test_accuracy=float(accuracies[run]), epsilon=epsilons[plan],
          joint_noise_multiplier=float(result.joint_noise_multipliers[run]),
          l2_sensitivity=tuple(
              map(float, result.info.l2_sensitivity[-1, run])),
          num_nonfinite=int(np.sum(result.info.num_nonfinite[:, run])),
          compile_seconds=result.compile_seconds,
          train_seconds=result.train_seconds / len(configs))
      for run, (config, plan) in enumerate(zip(configs, plans, strict=True))
  ]


def _epsilon(config: TrainingConfig, plan: TrainingPlan) -> float:
  if plan.noise_multiplier is None:
    return math.inf
  return plan.epsilon(config.delta, accountant=config.accountant)


def _max_parallel(config: TrainingConfig, plan: TrainingPlan,
                  model: Model) -> int:
  """How many runs to advance at once: as many as fit into memory."""
  shapes = jax.eval_shape(model.init, jax.random.key(0))
  values = tree.count(shapes)
  if config.method == 'dp_sgd':
    values *= min(plan.sampler.part_size,
                  config.microbatch_size or plan.sampler.part_size)
  return max(1, _MAX_PARALLEL_VALUES // max(values, 1))
