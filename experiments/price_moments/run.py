"""Computes and simulates the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import math
import zlib

import numpy as np
from scipy import optimize

from dpjax.privacy.notions import PureDP
from dpjax.theory.parametric import moment_bounds
from dpjax.theory.parametric import moment_risks
from dpjax.theory.parametric import truncated_means
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.methods.theory import printed_moments
from experiments.price_moments import sweep


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'k = {setting.moment:g}, n = '
             f'{setting.num_examples}, epsilon = {setting.epsilon:.3g}')
    if setting.kind == 'border':
      yield setting, rows.exact(setting, dict(border=border(setting)))
      continue
    yield setting, rows.released(
        setting, lower(setting) | upper(setting), n=setting.num_examples,
        epsilon=setting.epsilon)


def _known(setting: sweep.Setting) -> dict:
  return dict(num_examples=setting.num_examples, moment=setting.moment,
              radius=1.0, dimension=sweep.DIMENSION)


def lower(setting: sweep.Setting) -> dict[str, float]:
  """Returns lower bounds: those that hold, and the printed one."""
  known = _known(setting)
  guarantee, study = PureDP(epsilon=setting.epsilon), truncated_means.STUDY
  values = {bound.name.replace(' ', '_'): bound.value for bound in study.lower(
      guarantee=guarantee, **known)}
  values['non_private'] = moment_bounds.non_private(
      num_examples=setting.num_examples, radius=1.0)
  values['lower'] = study.best_lower(guarantee=guarantee, **known).value
  del values['minimax_risk_without_privacy']
  if setting.epsilon < sweep.DIMENSION / 2:
    values['proposition_4'] = printed_moments.printed_proposition_4(
        epsilon=setting.epsilon, **known)
  return values


def upper(setting: sweep.Setting) -> dict[str, float]:
  """Returns worst risks of estimators, and measured risks of the tuned one."""
  known, guarantee = _known(setting), PureDP(epsilon=setting.epsilon)
  size = dict(moment=setting.moment, radius=1.0)
  tuned = truncated_means.tuned(guarantee=guarantee, noise='l2', **known)
  printed = truncated_means.printed(guarantee=guarantee, **known)
  worst = tuned.worst(**size)
  spread = dict(num_examples=setting.num_examples,
                noise_factor=tuned.noise_factor)
  optimal = moment_risks.best_threshold(noise_factor=tuned.noise_factor, **size)
  values = dict(
      tuned=worst.value, tuned_at=tuned.threshold,
      shrinkage=tuned.shrinkage, printed_at=printed.threshold,
      optimal=moment_risks.worst(threshold=optimal, **spread, **size).value,
      threshold=moment_risks.worst(threshold=printed.threshold, **spread,
                                   **size).value,
      printed=printed.worst(**size).value,
      proposition_6=moment_risks.bound(
          num_examples=setting.num_examples, threshold=printed.threshold,
          noise_factor=printed.noise_factor, printed=True, **size))
  values |= _risks(tuned, setting.moment)
  values['measured'], values['measured_se'] = measured(
      setting, tuned, worst.distribution)
  return values


def border(setting: sweep.Setting) -> float:
  """Returns the epsilon at which the risk is twice that without privacy."""
  options = dict(num_examples=setting.num_examples)
  size = dict(moment=setting.moment, radius=1.0)
  free = moment_bounds.non_private(**options, radius=1.0)

  def excess(log_epsilon):
    factor = truncated_means.noise_factor(
        'l2', dimension=sweep.DIMENSION, **options,
        guarantee=PureDP(epsilon=math.exp(log_epsilon)))
    threshold = moment_risks.best_threshold(noise_factor=factor, **size)
    return moment_risks.worst(threshold=threshold, noise_factor=factor,
                              **options, **size).value - 2 * free
  return math.exp(optimize.brentq(excess, -16, 16, xtol=1e-4))


def _risks(mean: truncated_means.TruncatedMean, moment: float
          ) -> dict[str, float]:
  """Returns exact risks at distributions of the class."""
  options = dict(num_examples=mean.num_examples, threshold=mean.threshold,
                 shrinkage=mean.shrinkage, noise_factor=mean.noise_factor)
  values = dict(signs=moment_risks.risk(moment_risks.signs(1.0), **options))
  prob = 1.0 if math.isinf(moment) else min(
      1.0, ((moment - 1) / (moment * mean.threshold))**moment)
  values['outliers'] = moment_risks.risk(moment_risks.two_points(
      prob, moment=moment, radius=1.0), **options)
  if math.isfinite(moment):
    values['pareto'] = moment_risks.pareto_risk(
        moment + 0.2, moment=moment, radius=1.0, **options)
  return values


def measured(setting: sweep.Setting, mean: truncated_means.TruncatedMean,
             worst: moment_risks.FiniteDistribution) -> tuple[float, float]:
  """Returns the mean squared error at a distribution on a line.

  The standard error comes with it. The sum of n records is drawn from its own
  distribution, by the number of records at each place.

  Probabilities are rounded to four digits first: their last digits depend on
  the processor, through the minimum that `worst` is computed for, and one draw
  that is rejected on one processor alone would change all later draws.
  """
  probs = np.array([float(f'{prob:.4g}') for prob in worst.probs])
  largest = int(np.argmax(probs))
  probs[largest] = 1 - np.delete(probs, largest).sum()
  worst = moment_risks.FiniteDistribution(worst.places, probs)
  generator = np.random.default_rng(zlib.crc32(repr(setting).encode()))
  counts = generator.multinomial(setting.num_examples, probs,
                                 setting.repetitions)
  statistics = np.zeros((setting.repetitions, mean.dimension))
  statistics[:, 0] = counts @ np.clip(
      worst.places, -mean.threshold, mean.threshold) / setting.num_examples
  released = np.asarray(mean.estimates(simulation.key_of(setting), statistics))
  truth = np.eye(mean.dimension)[0] * worst.mean
  squares = np.sum((released - truth)**2, 1)
  return squares.mean(), squares.std(ddof=1) / math.sqrt(len(squares))
