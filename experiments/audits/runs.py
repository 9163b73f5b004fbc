"""Audits of finished training runs by their canaries.

A run folder says all that is needed: the summary tells the configuration and
the noise that ran, from which claim, data, canaries and coins are made again.
The claim is held against its event before anything is scored (AUD-01). Then
the final model scores every canary, present or not, in evaluation mode
(AUD-10), and the coins are guessed (AUD-06, AUD-07). Scores, shares that are
guessed and delta are fixed beforehand and pay for each other (AUD-12).

What m canaries show at delta needs m delta far below the significance. A run
that keeps its event keeps it at every delta, so the claim is audited at a
smaller one: the event's epsilon there.
"""

from collections.abc import Mapping
import dataclasses
import json
import math
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.audit import claims
from dpjax.audit import curves
from dpjax.audit import one_run
from dpjax.audit.auditor import Check, Report
from dpjax.data import registry
from dpjax.models.model import Model
from dpjax.privacy import accounting
from dpjax.train import state as states
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Array, Batch, Params
from experiments import building
from experiments import configuration
from experiments import summary as summaries
from experiments import training
from experiments.canaries import Canaries
from experiments.configuration import TrainingConfig

SCORES = ('log_odds', 'calibrated')
"""Log odds of a canary's label, which rank as its loss does; and by how much
training lowered that loss, from the initial parameters, which the seed tells."""

CURVE_FRACTIONS = (0.1, 0.25, 0.5)
"""Shares of the canaries that are guessed against the whole curve."""

_DELTA_SHARE = 1e-3
_PART = 500
_TOLERANCE = 1e-6
_ABOVE = 1e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinishedRun:
  """What a run folder says.

  Attributes:
    summary: as written.
    config: resolved, with canaries.
    plan: of the configuration with the noise that the summary tells.
    model: as trained.
    params: trained.
    initial: parameters before the first step, from the seed.
    canaries: with their coins.
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
  dataset = building.prepare(config, registry.load(config.dataset,
                                                   data_dir=data_dir))
  plan = training.plan_of(config, summary.get('noise_multiplier'),
                          training.lattice_size(config, dataset))
  canaries, _ = training.draw_parts(config, dataset)
  _check_canaries(folder, canaries)
  model = building.make_model(config, dataset)
  method = building.make_method(config, model)
  initial, _ = method.constraint.constrain(model.init(
      states.streams(configuration.run_key(config)).init))
  return FinishedRun(
      summary=summary, config=config, plan=plan, model=model, initial=initial,
      params=_params(folder, initial), canaries=canaries)


def audit(run: FinishedRun, *, name: str, delta: float | None = None,
          significance: float = 0.05) -> Report:
  """Guesses the coins of a run, and holds what that shows against its claim.

  Args:
    run: see `load`.
    name: for the report.
    delta: at which the event is audited; None for that of the summary, or
      significance / (1000 m) where that is less.
    significance: probability of `violated` for a true claim, at most; shared.
  """
  config, plan = run.config, run.plan
  size = config.num_canaries
  if delta is None:
    delta = min(config.delta, max(significance * _DELTA_SHARE / size,
                                  accounting.MIN_DELTA))
  first = _claim_check(run)
  private = config.method != 'sgd'
  said = claims.Claim(
      epsilon=plan.epsilon(delta, accountant=config.accountant),
      delta=delta, adjacency=plan.adjacency, num_examples=config.num_slots,
      event=plan.event if private else None)
  details = dict(_details(run), threshold_rule='shares that are guessed and '
                 'scores fixed beforehand, Bonferroni')
  report = Report(target=name, claim=said, checks=(first,), details=details,
                  significance=significance, detectable=math.nan)
  if first.failed:
    return dataclasses.replace(report, claim=dataclasses.replace(
        said, epsilon=_claimed(run.summary), delta=config.delta))
  scores = score(run)
  included = np.asarray(run.canaries.included)
  curve = _curve(plan) if private else curves.NOTHING
  level = significance / len(SCORES) / (2 if curve.epsilons.size else 1)
  bounds = {key: one_run.grid_bound(scores[key], included, delta=delta,
                                    significance=level) for key in SCORES}
  checks = [Check(
      f'one run, {key}', found.epsilon_lower > said.epsilon,
      f'{found.num_correct} of {found.num_guesses} coins: epsilon is at least '
      f'{found.epsilon_lower:.4g}', None, level)
            for key, found in bounds.items()]
  if curve.epsilons.size:
    checks += [_curve_check(curve, key, scores[key], included, level)
               for key in SCORES]
  return dataclasses.replace(
      report, checks=(first, *checks),
      epsilon_lower=max(found.epsilon_lower for found in bounds.values()),
      cap=one_run.grid_largest_bound(num_canaries=size, delta=delta,
                                     significance=level),
      refutable=bool(curve.epsilons.size) and refutes_curve(
          curve, np.where(included, 1.0, 0.0), included,
          significance=level)[0],
      details=dict(details, level=level, bounds={
          key: found._asdict() for key, found in bounds.items()}),
      scores=dict(scores, included=included))


def score(run: FinishedRun) -> dict[str, np.ndarray]:
  """Scores [m] of all canaries by the final model, high if they look present."""
  final, initial = (np.asarray(log_odds(
      run.model.apply, params, run.canaries.records))
      for params in (run.params, run.initial))
  return {'log_odds': final,
          'calibrated': np.logaddexp(0, -initial) - np.logaddexp(0, -final)}


def log_odds(apply, params: Params, records: Batch) -> Array:
  """z_y - logsumexp of the other logits, [m] float32, of each record alone."""
  def one(record):
    logits = apply(params, record.x[None])[0]
    others = jnp.where(jnp.arange(logits.size) == record.y, -jnp.inf, logits)
    return logits[record.y] - jax.nn.logsumexp(others)

  return jax.jit(lambda batch: jax.lax.map(one, batch, batch_size=_PART))(
      records)


def refutes_curve(curve: curves.PrivacyCurve, scores: np.ndarray,
                  included: np.ndarray, *, significance: float
                  ) -> tuple[bool, int, int]:
  """Whether right guesses refute all that an event says (AUD-07).

  Returns:
    Whether they do; and the numbers of guesses and right ones that do, or
    those of the largest share.
  """
  counts = one_run.grid_counts(len(scores), CURVE_FRACTIONS)
  for count in counts:
    right = one_run.count_guesses(scores, included, count)
    if one_run.rejects_trade_off(
        lambda power: curves.least_alarm(curve, power),
        num_canaries=len(scores), num_guesses=count, num_correct=right,
        significance=significance / len(counts)):
      return True, count, right
  return False, count, right


def _curve_check(curve, key: str, scores: np.ndarray, included: np.ndarray,
                 level: float) -> Check:
  failed, count, right = refutes_curve(curve, scores, included,
                                       significance=level)
  return Check(f'whole curve, {key}', failed,
               f'{right} of {count} coins', None, level)


def _curve(plan: TrainingPlan) -> curves.PrivacyCurve:
  """Of the event; noise on a lattice pays for its variation."""
  curve = curves.of_event(plan.event, adjacency=plan.adjacency)
  paid = (1 + np.exp(curve.epsilons)) * plan.noise_variation
  return curve._replace(deltas=np.minimum(1.0, curve.deltas + paid))


def _claimed(summary: Mapping[str, Any]) -> float:
  """The epsilon of a summary; null claims nothing."""
  return math.inf if summary['epsilon'] is None else summary['epsilon']


def _claim_check(run: FinishedRun) -> Check:
  """The summary's epsilon against the event of its configuration (AUD-01).

  Raises:
    ValueError: if the summary tells of another event, or claims far more.
  """
  summary, plan, config = run.summary, run.plan, run.config
  for name, ours in (('sampling_prob', plan.sampler.sampling_prob),
                     ('num_steps', plan.num_steps),
                     ('delta', None if config.method == 'sgd' else
                      config.delta)):
    if summary[name] != ours:
      raise ValueError(f'summary and configuration are not of one run: {name} '
                       f'= {summary[name]}, by the configuration {ours}')
  claimed = _claimed(summary)
  spent = plan.epsilon(config.delta, accountant=config.accountant)
  if claimed < spent * (1 - _TOLERANCE):
    return Check('claim', True, f'epsilon {claimed:.4g} at delta '
                 f'{config.delta:.3g} is below the {spent:.4g} that the event '
                 'costs')
  if claimed > spent * (1 + _ABOVE):
    raise ValueError('summary and configuration are not of one run: epsilon = '
                     f'{claimed:g}, the event costs {spent:g}')
  measured = summary['joint_noise_multiplier']
  if measured is not None and not measured >= plan.noise_multiplier * (
      1 - _TOLERANCE):
    return Check('claim', True, f'noised with {measured:.5g}, planned '
                 f'{plan.noise_multiplier:.5g}')
  if math.isinf(claimed):
    return Check('claim', False, 'none, the run is not private')
  return Check('claim', False, f'epsilon {claimed:.4g} at delta '
               f'{config.delta:.3g} is what its event costs')


def _details(run: FinishedRun) -> dict[str, Any]:
  config, included = run.config, run.canaries.included
  return dict(
      estimator='coins of one run (AUD-06); the whole curve (AUD-07)',
      threat_model='final parameters', canary=config.canary_kind,
      num_canaries=config.num_canaries, num_included=int(included.sum()),
      claimed_epsilon=_claimed(run.summary), claimed_delta=config.delta,
      test_accuracy=run.summary['test_accuracy'], config=run.summary['config'])


def _config(folder: pathlib.Path,
            summary: Mapping[str, Any]) -> TrainingConfig:
  values = {name: tuple(value) if isinstance(value, list) else value
            for name, value in summary['config'].items()}
  try:
    return configuration.check(TrainingConfig(**values))
  except TypeError as error:
    raise ValueError(f'{folder / summaries.NAME} is of another version: '
                     f'{errors.one_line(error)}') from None


def _check_canaries(folder: pathlib.Path, canaries: Canaries) -> None:
  """Refuses canaries on disk that the configuration does not make."""
  with np.load(folder / summaries.CANARIES, allow_pickle=False) as kept:
    same = (np.array_equal(kept['included'], canaries.included) and
            np.array_equal(kept['y'], canaries.records.y) and
            np.shape(kept['x']) == canaries.records.x.shape and
            np.allclose(kept['x'], canaries.records.x, atol=1e-6))
  if not same:
    raise ValueError(f'{folder / summaries.CANARIES} is not what the '
                     'configuration makes: other data, or another version')


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
