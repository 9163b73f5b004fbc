"""Runs settings in `sweep.py`; a group shares all but `at` and seed."""

from collections.abc import Iterator, Sequence
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.data import registry
from dpjax.runs import configuration
from experiments import papers
from experiments import records
from experiments import rows
from experiments.clipping_bias import batch_maximum
from experiments.clipping_bias import constraint
from experiments.clipping_bias import curves
from experiments.clipping_bias import descent
from experiments.clipping_bias import regression
from experiments.clipping_bias import sweep

Results = Iterator[tuple[sweep.Setting, list[records.Row]]]

_POISSON_SIZE = 1000
_SIMULATED = {(1, 0.5), (8, 0.5), (64, 0.01)}
_EPSILONS = {line.dataset: line.epsilon for line in papers.TABLE_5_4}


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Results:
  """Yields each setting with its rows; see `experiments.registry`."""
  first = settings[0]
  if first.kind in sweep.LENGTHS:
    yield from _curves(settings, data_dir, progress)
  elif first.kind == 'descent':
    yield from _descents(settings)
  else:
    metrics = {'zero': _zero, 'field': _field, 'ball': _ball,
               'batches': _batches}[first.kind]
    for done, setting in enumerate(settings):
      progress(done / len(settings), first.kind)
      yield setting, rows.exact(setting, metrics(setting))


def config(setting: sweep.Setting) -> configuration.TrainingConfig | None:
  """Returns the training configuration of a curve; None for other kinds."""
  if setting.kind not in sweep.LENGTHS:
    return None
  return curves.make_config(_traced(setting), registry.DATASETS[
      setting.dataset].num_examples)


def _traced(setting: sweep.Setting) -> curves.Run:
  """Returns the training runs whose curve contains the point of a setting."""
  length = sweep.LENGTHS[setting.kind]
  return curves.Run(
      dataset=setting.dataset, method=setting.method,
      clip_norm=setting.clip_norm, num_steps=length.num_steps,
      every=length.every, probe_size=length.probe_size)


def _zero(setting: sweep.Setting) -> dict[str, float]:
  """Returns the zero of the clipped gradient, and its excess risk (BIAS-01).

  With it come gradient norms at the optimum and at the printed zero.
  """
  clip_norm = setting.clip_norm

  def norm(offset):
    return np.linalg.norm(regression.mean_clipped_gradient(
        np.asarray(offset), clip_norm=clip_norm))

  zero = regression.clipped_zero(clip_norm=clip_norm)
  metrics = dict(zero_1=zero[0], zero_2=zero[1],
               excess_risk=regression.excess_risk(zero),
               norm_at_optimum=norm((0, 0)))
  printed = papers.CLIPPING_EXAMPLE
  if clip_norm == printed.clip_norm:
    sampled, error = descent.sampled_norm(jax.random.key(0), 400_000,
                                          clip_norm=clip_norm)
    metrics |= dict(norm_at_printed_zero=norm(printed.zero),
                  norm_sampled=sampled, norm_sampled_se=error)
  return metrics


def _field(setting: sweep.Setting) -> dict[str, float]:
  """Returns the plain and the clipped gradient at one point (BIAS-02)."""
  plain = regression.mean_gradient(np.array(setting.at))
  clipped = regression.mean_clipped_gradient(np.array(setting.at),
                                             clip_norm=setting.clip_norm)
  return dict(gradient_1=plain[0], gradient_2=plain[1],
              clipped_1=clipped[0], clipped_2=clipped[1])


def _ball(setting: sweep.Setting) -> dict[str, float]:
  """Returns the limit of descent on a ball, and its optimum (BIAS-03, E18)."""
  ball = constraint.BALLS[setting.method]
  weights = constraint.rest(ball, jnp.eye(2))
  best = constraint.objective(jnp.diag(jnp.array(ball.optimum)))
  return dict(weight_1=weights[0, 0], weight_2=weights[1, 1],
              objective=constraint.objective(weights), optimum=best)


def _batches(setting: sweep.Setting) -> dict[str, float]:
  """Returns the exact fixed point, for some settings also simulated (E19)."""
  size, share = setting.at
  if setting.method == 'poisson':
    large = round(share * _POISSON_SIZE)
    batches = batch_maximum.poisson(_POISSON_SIZE - large, large,
                                    size / _POISSON_SIZE)
  else:
    batches = batch_maximum.with_replacement(size, share)
  metrics = dict(fixed_point=batch_maximum.fixed_point(batches),
               least_squares=batch_maximum.least_squares(share))
  if setting.method == 'with_replacement' and setting.at in _SIMULATED:
    means = batch_maximum.simulate(
        jax.random.key(size), batch_size=size, share=share, num_steps=20_000,
        num_runs=64)
    metrics |= dict(simulated=means.mean(),
                  simulated_se=means.std(ddof=1) / len(means)**0.5)
  return metrics


def _descents(settings: Sequence[sweep.Setting]) -> Results:
  """Yields the point where each training ends (BIAS-01).

  Rows of private training state the epsilon that it spends.
  """
  first = settings[0]
  size = first.dataset.removeprefix('regression_')
  num_examples, num_steps = sweep.DESCENT_SIZE[size]
  delta = num_examples**-1.1
  plan = descent.make_plan(first.method, num_examples=num_examples,
                           num_steps=num_steps, epsilon=sweep.EPSILON,
                           delta=delta)
  private = plan.noise_multiplier is not None
  offsets = descent.rest(first.method, plan, clip_norm=first.clip_norm,
                       seeds=[setting.seed for setting in settings])
  for setting, offset in zip(settings, offsets, strict=True):
    yield setting, [
        records.Row(
            seed=setting.seed, metric=f'rest_{index + 1}',
            value=float(offset[index]), n=num_examples,
            epsilon_requested=sweep.EPSILON if private else math.inf,
            epsilon=plan.epsilon(delta), epsilon_valid=True,
            delta=delta if private else 0.0, adjacency=plan.adjacency.value,
            accountant='pld', method=setting.method, dataset=setting.dataset)
        for index in range(2)
    ]


def _curves(settings: Sequence[sweep.Setting], data_dir: str | None,
            progress) -> Results:
  """Yields all points of a curve, from one run for each seed (BIAS-04)."""
  first = settings[0]
  length = sweep.LENGTHS[first.kind]
  result = curves.trace(
      _traced(first), range(length.num_runs), data_dir=data_dir,
      on_progress=lambda done, total: progress(done / total, first.method))
  for setting in settings:
    yield setting, _curve_rows(setting, result, length)


def _curve_rows(setting: sweep.Setting, cells: curves.Curves,
                length: sweep.Length) -> list[records.Row]:
  """Returns rows of means over the runs at one step.

  Exact statistics of training records are not private: their epsilon is
  infinite. The accuracy of the last parameters on held-out records costs only
  the epsilon of the training.
  """
  step, = setting.at
  private = cells.plan.noise_multiplier is not None

  def row(metric, value, epsilon):
    return records.Row(
        seed=setting.seed, metric=metric, value=float(value),
        n=cells.plan.sampler.num_examples,
        epsilon_requested=_EPSILONS[setting.dataset] if private else math.inf,
        epsilon=epsilon, epsilon_valid=True,
        delta=cells.delta if private else 0.0,
        adjacency=cells.plan.adjacency.value, accountant='pld',
        method=setting.method, dataset=setting.dataset)

  lines = []
  for metric, values in cells.measures._asdict().items():
    at_step = values[:, step // length.every].astype(np.float64)
    if np.isnan(at_step).any():
      continue
    lines.append(row(metric, at_step.mean(), math.inf))
    if metric in ('clipped_norm', 'error_norm'):
      error = at_step.std(ddof=1) / len(at_step)**0.5
      lines.append(row(f'{metric}_se', error, math.inf))
  if step == length.num_steps:
    lines.append(row('test_accuracy', cells.test_accuracy.mean(),
                     cells.epsilon))
  return lines
