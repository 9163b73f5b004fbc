"""Simulates the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import functools
import math
from typing import Any

import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import histogram
from dpjax.stats.quantile_methods import joint
from dpjax.stats.quantile_methods import recursive
from dpjax.stats.quantile_methods import smoothing
from dpjax.stats.quantile_methods import trees
from dpjax.studies import quantile_distributions
from dpjax.studies import quantile_trials
from experiments import records
from experiments import rows
from experiments.quantile_atoms import sweep

_ADJACENCY = Adjacency.REPLACE_ONE
_BINS = 200
_KEPT = ('value_sup', 'value_sup_se', 'rank_mean')
PROBS = np.arange(1, sweep.NUM_ORDERS + 1) / (sweep.NUM_ORDERS + 1)


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.dataset} {setting.method} '
             f'n={setting.num_examples}')
    distribution = quantile_distributions.named(setting.dataset, data_dir)
    metrics = quantile_trials.measure(
        distribution, PROBS, _asked(setting, distribution),
        method=f'{setting.method}/{setting.sigma}',
        num_examples=setting.num_examples, repetitions=setting.repetitions,
        seed=setting.seed)
    yield setting, rows.released(
        setting, {name: metrics[name] for name in _KEPT},
        n=setting.num_examples, epsilon=setting.epsilon, adjacency=_ADJACENCY)


def printed_sigma(setting: sweep.Setting) -> float:
  """Returns the deviation of uniform noise on +-a, a = e^(-n epsilon / 48)."""
  return math.exp(-setting.num_examples * setting.epsilon / 48) / math.sqrt(3)


def _asked(setting: sweep.Setting,
           distribution: quantile_distributions.Distribution
           ) -> quantile_trials.Asked:
  if setting.method == 'emp':
    return quantile_trials.without_privacy(PROBS)
  public = dict(probs=tuple(PROBS.tolist()), epsilon=setting.epsilon,
                lower=distribution.lower, upper=distribution.upper,
                adjacency=_ADJACENCY)
  if setting.method in ('joint', 'hs_printed', *sweep.SMOOTHED):
    return _joint(setting, public)
  bins = dict(coarse=functools.partial(
      histogram.coarse, num_examples=setting.num_examples),
              hist_raw=functools.partial(histogram.HistogramQuantiles,
                                         num_bins=_BINS, post='raw'))
  mechanism = {
      'inverse': joint.InverseQuantiles,
      'joint_floor': lambda **of: smoothing.Smoothed(
          inner=joint.JointQuantiles(**of)),
      'rec_floor': lambda **of: smoothing.Smoothed(
          inner=recursive.RecursiveQuantiles(**of)),
      'tree': trees.TreeQuantiles, **bins}[setting.method](**public)
  return quantile_trials.asked(mechanism)


def _joint(setting: sweep.Setting, public: dict[str, Any]
           ) -> quantile_trials.Asked:
  """Returns JointExp on records with noise, even too small for float64.

  `Smoothed` rejects such noise. Noise 0 gives plain JointExp, so that one
  compiled program serves both.
  """
  mechanism = smoothing.Smoothed(
      inner=joint.JointQuantiles(**public), sigma=1.0,
      kind='gaussian' if setting.method == 'hs_gaussian' else 'uniform')
  sigma = (printed_sigma(setting) if setting.method == 'hs_printed'
           else setting.sigma)
  return quantile_trials.Asked(mechanism.draw, mechanism.parameters._replace(
      sigma=np.float64(sigma)))
