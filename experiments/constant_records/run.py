"""Computes the settings in `sweep.py`, exactly for each drawn noise."""

from collections.abc import Iterator, Sequence
import math

import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import rates
from experiments import records
from experiments import rows
from experiments.constant_records import sweep

_DECAY = {'printed': 48, 'cost': 48, 'half': 24}


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), setting.method)
    yield setting, rows.released(
        setting, (_cost if setting.method == 'cost' else _risk)(setting),
        n=setting.num_examples, epsilon=setting.epsilon)


def amplitude(setting: sweep.Setting) -> float:
  """Returns the amplitude alpha of the noise; 0 for none."""
  if setting.method == 'raw':
    return 0.0
  return math.exp(-setting.num_examples * setting.epsilon
                  / _DECAY[setting.method])


def _noise(setting: sweep.Setting) -> np.ndarray:
  """Returns sorted noise [R, n], from the same uniforms for all methods."""
  rng = np.random.default_rng([setting.seed, setting.num_examples])
  return amplitude(setting) * np.sort(rng.uniform(
      -1, 1, (setting.repetitions, setting.num_examples)))


def _cost(setting: sweep.Setting) -> dict[str, float]:
  below = np.sum(_noise(setting)[0] < setting.place)
  return dict(cost=abs(setting.num_examples / 2 - below),
              amplitude=amplitude(setting))


def _risk(setting: sweep.Setting) -> dict[str, float]:
  size, epsilon, alpha = (setting.num_examples, setting.epsilon,
                          amplitude(setting))
  rate = rates.single(.5, epsilon=epsilon, adjacency=Adjacency.REPLACE_ONE)
  noise = _noise(setting)
  result = squares(noise, rate)
  metrics = dict(risk=result.mean(), amplitude=alpha,
                 risk_se=result.std(ddof=1) / setting.repetitions**.5)
  if not alpha:
    return metrics
  far = size * epsilon / 8
  sides = np.minimum(np.sum(noise < -alpha / 4, 1),
                     np.sum(noise >= alpha / 4, 1))
  return metrics | dict(
      missed=np.mean(sides < size / 4),
      bound_printed=(math.exp(-size / 32) + 4 * math.exp(-far / 2) / alpha
                     + alpha**2),
      bound=(2 * math.exp(-size / 32) + 4 * math.exp(-far) / alpha
             + alpha**2))


def squares(ordered: np.ndarray, rate: float) -> np.ndarray:
  """Returns E M^2 [R] of the exponential mechanism for the median on [-1, 1].

  Args:
    ordered: sorted records [R, n].
    rate: factor of the cost |#{X < x} - n / 2| in the exponent.
  """
  size = ordered.shape[1]
  ends = np.concatenate([np.full([len(ordered), 1], -1.0), ordered,
                         np.full([len(ordered), 1], 1.0)], 1)
  # The largest weight, that of the least cost, is near 1: no sum underflows.
  weights = np.exp(-rate * (np.abs(np.arange(size + 1) - size / 2)))
  return (np.sum(weights * np.diff(ends**3) / 3, 1)
          / np.sum(weights * np.diff(ends), 1))
