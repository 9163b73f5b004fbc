"""Simulates the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import math

import numpy as np

from dpjax.privacy import notions
from dpjax.stats import intervals
from dpjax.theory.parametric import normal_bounds
from dpjax.theory.parametric import normal_intervals
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.price_intervals import sweep


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.method} n='
             f'{setting.num_examples} epsilon={setting.epsilon:g}')
    yield setting, rows.released(setting, measured(setting),
                                 n=setting.num_examples,
                                 epsilon=setting.epsilon)


def measured(setting: sweep.Setting) -> dict[str, float]:
  """Returns coverage, half-width and risk, with a bound on the risk."""
  guarantee = (notions.ZCDP(rho=setting.epsilon**2 / 2)
               if setting.method == 'gaussian'
               else notions.PureDP(epsilon=setting.epsilon))
  maker = (normal_intervals.karwa_vadhan if setting.method == 'karwa_vadhan'
           else normal_intervals.tuned)
  model = dict(num_examples=setting.num_examples, radius=sweep.RADIUS,
               sigma=1.0, guarantee=guarantee)
  interval = maker(**model, confidence=sweep.CONFIDENCE)
  result = interval.simulated(simulation.key_of(setting), sweep.MEAN,
                         num_repetitions=setting.repetitions)
  value, low, high = (np.asarray(part) for part in result)
  held = np.mean((low <= sweep.MEAN) & (sweep.MEAN <= high))
  squares = np.square(value - sweep.MEAN)
  root = math.sqrt(setting.repetitions)
  # A coverage of 1 would get a standard error of 0, which is overconfident.
  spread = max(held * (1 - held), 1 / setting.repetitions)
  return dict(
      coverage=held, coverage_se=math.sqrt(spread) / root,
      half=min(interval.half, sweep.RADIUS),
      free=intervals.normal_quantile(sweep.CONFIDENCE) / math.sqrt(
          setting.num_examples),
      centred=float(interval.finder != 'none'), risk=np.mean(squares),
      risk_se=np.std(squares) / root, lower=normal_bounds.STUDY.best_lower(
          **model, dimension=1).value)
