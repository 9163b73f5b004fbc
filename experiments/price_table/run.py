"""Computes the rows of the settings in `sweep.py`; no records, no noise."""

from collections.abc import Iterator, Sequence
import math

import numpy as np

from dpjax.privacy import notions
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.parametric import moment_bounds
from dpjax.theory.parametric import moment_risks
from dpjax.theory.parametric import subsampling
from dpjax.theory.parametric import truncated_means
from experiments import records
from experiments import rows
from experiments.price_table import sweep


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.notion} {setting.method} '
             f'{setting.axis}, k = {setting.moment:g}')
    yield setting, rows.exact(setting, rate(setting))


def rate(setting: sweep.Setting) -> dict[str, float]:
  """Returns the slope, the slope in theory, and the risks."""
  risk = lower if setting.method == 'lower' else upper
  result = [risk(setting, *place) for place in setting.places]
  along = [place[sweep.AXES.index(setting.axis)] for place in setting.places]
  return dict(slope=np.polyfit(np.log(along), np.log(result), 1)[0],
              theory=setting.theory) | {
                  f'risk_{i}': value for i, value in enumerate(result)}


def guarantee(notion: str, level: float) -> Guarantee:
  """Returns a guarantee; its level is epsilon, rho or a divergence."""
  return {'none': None, 'pure': notions.PureDP(epsilon=level),
          'approx': notions.ApproxDP(epsilon=level, delta=sweep.DELTA),
          'kl': notions.KullbackLeiblerPrivacy(level=level),
          'zcdp': notions.ZCDP(rho=level),
          'tv': notions.TotalVariationPrivacy(level=level)}[notion]


def lower(setting: sweep.Setting, num_examples: int, dimension: int,
          level: float) -> float:
  """Returns the best lower bound."""
  return truncated_means.STUDY.best_lower(
      num_examples=num_examples, dimension=dimension, moment=setting.moment,
      radius=1.0, guarantee=guarantee(setting.notion, level)).value


def upper(setting: sweep.Setting, num_examples: int, dimension: int,
          level: float) -> float:
  """Returns the worst risk of an estimator."""
  if setting.method in ('shrunk', 'subsample'):
    size = num_examples if setting.method == 'shrunk' else (
        subsampling.subset_size(num_examples, level))
    return moment_bounds.non_private(num_examples=size, radius=1.0)
  factor = truncated_means.noise_factor(
      setting.method, num_examples=num_examples, dimension=dimension,
      guarantee=guarantee(setting.notion, level))
  options = dict(noise_factor=factor, moment=setting.moment, radius=1.0)
  threshold = moment_risks.best_threshold(**options)
  value = moment_risks.worst(num_examples=num_examples, threshold=threshold,
                             **options).value
  assert math.isfinite(value)
  return value
