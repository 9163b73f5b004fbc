"""Simulates the settings of `sweep.py`."""

from collections.abc import Iterator, Sequence
import functools
import math
from typing import Any

import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.report import records
from dpjax.stats.quantiles import histogram
from dpjax.stats.quantiles import joint
from dpjax.stats.quantiles import recursive
from dpjax.stats.quantiles import smoothing
from dpjax.stats.quantiles import trees
from experiments import quantile_laws
from experiments import quantile_trials
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
    law = quantile_laws.law(setting.dataset, data_dir)
    found = quantile_trials.measure(
        law, PROBS, _asked(setting, law),
        method=f'{setting.method}/{setting.sigma}',
        num_examples=setting.num_examples, repetitions=setting.repetitions,
        seed=setting.seed)
    yield setting, rows.released(
        setting, {name: found[name] for name in _KEPT},
        n=setting.num_examples, epsilon=setting.epsilon, adjacency=_ADJACENCY)


def printed_sigma(setting: sweep.Setting) -> float:
  """Standard deviation of uniform noise on [-a, a], a = e^(-n epsilon/48)."""
  return math.exp(-setting.num_examples * setting.epsilon / 48) / math.sqrt(3)


def _asked(setting: sweep.Setting, law: quantile_laws.Law
           ) -> quantile_trials.Asked:
  if setting.method == 'emp':
    return quantile_trials.without_privacy(PROBS)
  public = dict(probs=tuple(PROBS.tolist()), epsilon=setting.epsilon,
                lower=law.lower, upper=law.upper, adjacency=_ADJACENCY)
  if setting.method in ('joint', 'hs_printed', *sweep.SMOOTHED):
    return _joint(setting, public)
  bins = dict(coarse=functools.partial(
      histogram.coarse, num_examples=setting.num_examples),
              hist_raw=functools.partial(histogram.HistogramQuantiles,
                                         num_bins=_BINS, post='raw'))
  made = {
      'inverse': joint.InverseQuantiles,
      'joint_floor': lambda **of: smoothing.Smoothed(
          inner=joint.JointQuantiles(**of)),
      'rec_floor': lambda **of: smoothing.Smoothed(
          inner=recursive.RecursiveQuantiles(**of)),
      'tree': trees.TreeQuantiles, **bins}[setting.method](**public)
  return quantile_trials.asked(made)


def _joint(setting: sweep.Setting, public: dict[str, Any]
           ) -> quantile_trials.Asked:
  """JointExp with so much noise, also with less than float64 can tell.

  `Smoothed` refuses that; without noise it is JointExp, one program for both.
  """
  made = smoothing.Smoothed(
      inner=joint.JointQuantiles(**public), sigma=1.0,
      kind='gaussian' if setting.method == 'hs_gaussian' else 'uniform')
  sigma = (printed_sigma(setting) if setting.method == 'hs_printed'
           else setting.sigma)
  return quantile_trials.Asked(made.draw, made.parameters._replace(
      sigma=np.float64(sigma)))
