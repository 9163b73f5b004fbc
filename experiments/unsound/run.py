"""Runs settings in `sweep.py`; those of one audit share their runs."""

from collections.abc import Iterator, Sequence
import zlib

import jax
import jax.numpy as jnp

from dpjax.audit import empirical
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from experiments import records
from experiments.unsound import attack
from experiments.unsound import exact
from experiments.unsound import sweep
from experiments.unsound import trained

_NUM_FEATURES = 20
_MOMENT_BATCHES = 4000
_SIGNIFICANCE = 0.05

Results = Iterator[tuple[sweep.Setting, list[records.Row]]]


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Results:
  """Yields each setting with its rows; see `experiments.registry`."""
  if settings[0].kind == 'audit':
    yield from _audit(settings, progress)
    return
  for setting in settings:
    if setting.kind == 'training':
      yield setting, _training(setting, data_dir, progress)
    else:
      yield setting, _exact(setting)


def _exact(setting: sweep.Setting) -> list[records.Row]:
  """Returns rows of a setting that needs no simulation."""
  kind, name = setting.kind, setting.case
  if kind == 'published':
    line = exact.published_run(name)
    return _rows(setting, exact.published(name), n=line.num_examples,
                 delta=line.delta, dataset=name, accountant='rdp')
  case = sweep.CASES[kind]['plan' if kind == 'constant' else name]
  metrics = {
      'pair': lambda: exact.pair(case),
      'curve': lambda: exact.curve(case, setting.epsilon),
      'blocks': lambda: exact.blocks_as_one(name, case),
      'batch': lambda: exact.batch(name, case),
      'constant': lambda: exact.constant(name, case),
  }[kind]()
  blocks_curve = kind == 'curve' and case.num_blocks > 1
  return _rows(setting, metrics, n=case.num_examples, delta=case.delta,
               accountant='rdp' if blocks_curve else 'pld')


def _audit(settings: Sequence[sweep.Setting], progress) -> Results:
  """Yields all methods, records and claims of one case, on the same batches."""
  case = sweep.CASES['audit'][settings[0].case]
  sampler = PoissonSampler(num_examples=case.num_examples,
                           batch_size=case.batch_size)
  canaries = tuple(sorted({s.canary for s in settings}))
  epsilons = tuple(sorted({s.epsilon for s in settings}))
  keys = jax.random.split(_key(settings[0]), 4)
  problem = attack.make_problem(
      keys[0], num_examples=case.num_examples, num_features=_NUM_FEATURES,
      canaries=canaries)
  moments = attack.estimate_moments(
      keys[1], problem, sampling_prob=sampler.sampling_prob,
      num_batches=_MOMENT_BATCHES)
  sigmas = [_calibrate(case, sampler.sampling_prob, e) for e in epsilons]
  runs = []
  for part, present in enumerate((True, False)):
    runs.append(attack.statistics(
        keys[2 + part], problem, moments, present=present,
        noise_multipliers=jnp.asarray(sigmas, jnp.float32),
        sampling_prob=sampler.sampling_prob, num_steps=case.num_steps,
        num_runs=case.num_runs))
    progress((part + 1) / 2, 'audit')
  for setting in settings:
    place = (attack.METHODS.index(setting.method),
             canaries.index(setting.canary), epsilons.index(setting.epsilon))
    metrics = dict(epsilon_claimed=setting.epsilon,
                   noise_multiplier=sigmas[place[2]])
    for name in attack.STATISTICS:
      with_canary, without = (outcome[name][:, *place] for outcome in runs)
      # The best of several statistics is reported, so their bounds must hold
      # jointly.
      result = empirical.audit(
          with_canary, without, delta=case.delta,
          significance=_SIGNIFICANCE / len(attack.STATISTICS))
      metrics |= {f'epsilon_lower_{name}': result.epsilon_lower,
                  f'auc_{name}': result.area_under_curve,
                  'largest_lower': result.largest}
    yield setting, _rows(setting, metrics, n=case.num_examples,
                         delta=case.delta)


def _training(setting: sweep.Setting, data_dir: str | None,
              progress) -> list[records.Row]:
  """Yields audits of Algorithm 8 in training, on both data sets."""
  case = sweep.CASES['training'][setting.case]
  experiment = trained.load(seed=setting.seed, data_dir=data_dir)
  algorithm = trained.make_algorithm(
      noise_multiplier=_calibrate(case, case.sampling_prob, setting.epsilon),
      sampling_prob=case.sampling_prob)
  keys = jax.random.split(_key(setting), 3)
  kernels = trained.initial_kernels(
      keys[0], num_features=experiment.records.x.shape[1],
      num_classes=experiment.num_classes, num_layers=case.num_blocks)
  outcomes = []
  for part, present in enumerate((True, False)):
    outcomes.append(trained.run_many(
        keys[1 + part], algorithm, kernels, experiment, present=present,
        num_steps=case.num_steps, num_runs=case.num_runs))
    progress((part + 1) / 2, setting.case)
  result = empirical.audit(*(o.statistics for o in outcomes),
                           delta=case.delta, significance=_SIGNIFICANCE)
  return _rows(setting, dict(
      epsilon_claimed=setting.epsilon,
      epsilon_lower_likelihood=result.epsilon_lower,
      auc_likelihood=result.area_under_curve, largest_lower=result.largest,
      test_accuracy=float(outcomes[1].accuracies.mean())),
      n=case.num_examples, delta=case.delta, dataset='breast_cancer')


def _key(setting: sweep.Setting) -> jax.Array:
  """Returns a key of its own for each case, for data and noise."""
  name = f'{setting.kind}/{setting.case}'
  return jax.random.fold_in(jax.random.key(setting.seed),
                            zlib.crc32(name.encode()))


def _calibrate(case: sweep.Case, sampling_prob: float, epsilon: float):
  """Returns the sigma that the paper's accounting takes for a claim."""
  return accounting.calibrate_noise_multiplier(
      target_epsilon=epsilon, target_delta=case.delta,
      sampling_prob=sampling_prob, num_steps=case.num_steps,
      adjacency=Adjacency.ADD_OR_REMOVE_ONE)


def _rows(setting: sweep.Setting, metrics: exact.Metrics, *, n: int,
          delta: float, dataset: str = 'none',
          accountant: str = 'pld') -> list[records.Row]:
  """Returns rows with the claimed epsilon, valid for the sound method only."""
  claimed = metrics['epsilon_claimed']
  return [
      records.Row(
          seed=setting.seed, metric=metric, value=float(value), n=n,
          epsilon_requested=claimed, epsilon=claimed,
          epsilon_valid=setting.method == sweep.SCALED, delta=delta,
          adjacency=Adjacency.ADD_OR_REMOVE_ONE.value, accountant=accountant,
          method=setting.method, dataset=dataset)
      for metric, value in metrics.items()
  ]
