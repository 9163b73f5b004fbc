"""Computes bounds and measures errors, for the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import functools
import math

import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods.histogram import HistogramQuantiles
from dpjax.stats.quantile_methods.independent import IndependentQuantiles
from dpjax.stats.quantile_methods.joint import JointQuantiles
from dpjax.stats.quantile_methods.recursive import RecursiveQuantiles
from dpjax.studies import quantile_distributions
from experiments import quantile_answers
from experiments import records
from experiments import rows
from experiments.methods.statistics import histogram_bounds
from experiments.methods.statistics import joint_consistency as consistency
from experiments.methods.statistics import quantile_bounds as bounds
from experiments.methods.statistics import quantile_errors as confidence
from experiments.quantile_beta.sweep import orders
from experiments.quantile_bounds import sweep

_REPLACE = Adjacency.REPLACE_ONE
_UNIFORM = dict(density_min=1.0, density_max=1.0)
# The bound of the histogram assumes a density of slope at most 1 that is at
# least 1/2.
_SMOOTH = dict(lipschitz=1.0, density_floor=0.5)
_FEWEST_BINS = 9


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.method} '
             f'n={setting.num_examples} m={setting.num_orders}')
    mechanism = quantiles(setting)
    distribution = quantile_distributions.named(setting.dataset, data_dir)
    result, _ = quantile_answers.answers(
        distribution, mechanism, coins=f'{setting.method}/{setting.num_orders}',
        num_examples=setting.num_examples, repetitions=setting.repetitions,
        seed=setting.seed)
    missed = np.max(np.abs(
        result - distribution.quantiles(np.array(mechanism.probs))), 1)
    measure = _upper if setting.kind == 'upper' else _lower
    yield setting, rows.released(
        setting, measure(setting, mechanism, missed), n=setting.num_examples,
        epsilon=setting.epsilon)


def quantiles(setting: sweep.Setting) -> mechanism.QuantileMechanism:
  """Returns the mechanism of a setting, on [0, 1]."""
  options = dict(probs=tuple(orders(setting.num_orders).tolist()),
                 epsilon=setting.epsilon, lower=0.0, upper=1.0,
                 adjacency=_REPLACE)
  return {
      'independent': IndependentQuantiles,
      'recursive_printed': functools.partial(
          RecursiveQuantiles, cost='rounded', budget='printed'),
      'recursive': RecursiveQuantiles,
      'joint': JointQuantiles,
      'histogram': lambda **known: HistogramQuantiles(
          num_bins=direct(setting)[0], post='raw', **options),
  }[setting.method](**options)


def direct(setting: sweep.Setting) -> tuple[int, float]:
  """Returns the bins and the error of the direct bound of the histogram."""
  return histogram_bounds.best_bins(
      lambda bins: histogram_bounds.direct_error(
          sweep.LEVEL, num_examples=setting.num_examples,
          epsilon=setting.epsilon, num_bins=bins, **_SMOOTH))


def _upper(setting: sweep.Setting, asked: mechanism.QuantileMechanism,
           missed: np.ndarray) -> dict[str, float]:
  """Returns the 95 % quantile of the error, and bounds where theorems hold."""
  ordered = np.sort(missed)
  values = dict(error=np.quantile(ordered, 1 - sweep.LEVEL),
               mean=ordered.mean())
  if setting.dataset == sweep.UNIFORM:
    printed, corrected, sharp = _bounds(setting, asked)
    values |= dict(printed=printed, corrected=corrected)
    if math.isfinite(sharp):
      values['sharp'] = sharp
  return values


def _bounds(setting: sweep.Setting, asked: mechanism.QuantileMechanism
            ) -> tuple[float, float, float]:
  """Returns printed, corrected and sharp bounds that hold with 95 %."""
  n, probs = setting.num_examples, asked.probs
  if setting.method == 'histogram':
    theorem = [histogram_bounds.best_bins(
        lambda bins: _histogram(setting, bins, printed), first=_FEWEST_BINS)[1]
               for printed in (True, False)]
    return *theorem, direct(setting)[1]
  options = dict(num_examples=n, probs=probs, **_UNIFORM)
  sharp = dict(num_examples=n, probs=probs)
  rates = asked.parameters[1]
  if setting.method == 'independent':
    bound = functools.partial(bounds.independent, epsilon=setting.epsilon,
                              **options)
    best = confidence.independent_error(sweep.LEVEL, rates_=rates, **sharp)
  elif setting.method == 'joint':
    bound = functools.partial(consistency.joint, rate=float(rates), **options)
    best = confidence.joint_error(sweep.LEVEL, rate=float(rates), **sharp)
  else:
    bound = functools.partial(bounds.recursive, epsilon=setting.epsilon,
                              adjacency=_REPLACE, **options)
    best = (confidence.recursive_error(sweep.LEVEL, rate=min(rates), **sharp)
            if setting.method == 'recursive' else math.inf)
  return *(histogram_bounds.smallest(functools.partial(
      bound, printed=printed), sweep.LEVEL) for printed in (True, False)), best


def _histogram(setting: sweep.Setting, bins: int, printed: bool) -> float:
  return histogram_bounds.smallest(
      lambda error: histogram_bounds.theorem_tail(
          error, num_examples=setting.num_examples, epsilon=setting.epsilon,
          num_bins=bins, printed=printed, **_SMOOTH), sweep.LEVEL)


def _lower(setting: sweep.Setting, asked: mechanism.QuantileMechanism,
           missed: np.ndarray) -> dict[str, float]:
  """Returns how often an answer is far off, and the lower bounds on that."""
  first = setting.num_orders // 2
  options = dict(num_examples=setting.num_examples,
                 rate=float(asked.parameters.rates[first]))
  return dict(
      far=np.mean(missed > sweep.FAR),
      printed=bounds.least_failure(sweep.FAR, **options),
      sharp=bounds.least_failure(sweep.FAR, prob=asked.probs[first], **options))
