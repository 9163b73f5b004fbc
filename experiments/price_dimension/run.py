"""Computes and simulates the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence

import jax
import numpy as np

from dpjax.theory.parametric import coinpress
from dpjax.theory.parametric import normal_bounds
from dpjax.theory.parametric import normal_means
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.price_dimension import sweep

_FAILURE = 0.01


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.kind} {setting.notion} '
             f'n={setting.num_examples} d={setting.dimension} '
             f'R={setting.radius:g}')
    metrics = bounds(setting)
    if setting.simulated:
      metrics |= measured(setting)
    yield setting, rows.released(
        setting, metrics, n=setting.num_examples,
        epsilon=setting.budget if setting.notion == 'pure' else np.inf)


def _model(setting: sweep.Setting) -> dict[str, object]:
  return dict(num_examples=setting.num_examples, guarantee=setting.guarantee,
              dimension=setting.dimension, radius=setting.radius)


def bounds(setting: sweep.Setting) -> dict[str, float]:
  """Returns upper and lower bounds of the worst risk, for s = 1."""
  known, study = _model(setting), normal_bounds.STUDY
  normal = dict(known, sigma=1.0)
  clip = setting.radius + coinpress.tail(setting.dimension,
                                         failure_prob=_FAILURE)
  values = dict(
      once=normal_means.clipped_once(**normal, clip=clip).worst_risk(),
      shrunk=normal_means.clipped_once(**normal).worst_risk(),
      rounds=coinpress.risk_bound(**normal),
      lower=study.best_lower(**normal).value,
      free=study.non_private(**normal), trivial=setting.radius**2)
  values |= {bound.name.replace(' ', '_'): bound.value
            for bound in study.lower(**normal)}
  for version in ('printed', 'optimised'):
    if setting.dimension >= 66:
      values[version] = normal_bounds.proposition(**known, gamma=0.5,
                                                 version=version)
  return values


def measured(setting: sweep.Setting) -> dict[str, float]:
  """Returns the larger of two measured risks, for each method of rounds."""
  normal = dict(_model(setting), sigma=1.0)
  makers = {'ours': coinpress.tuned}
  if setting.notion == 'zcdp':
    makers['coinpress'] = coinpress.printed
  values = {}
  for place, (name, maker) in enumerate(makers.items()):
    mechanism = maker(**normal)
    risks = [_risk(mechanism, setting, share, place) for share in (0.0, 1.0)]
    values[name], values[f'{name}_se'] = max(risks)
  return values


def _risk(mechanism, setting, share, place):
  mean = np.zeros(setting.dimension)
  mean[0] = share * setting.radius
  key = jax.random.fold_in(simulation.key_of(setting), 2 * place + int(share))
  estimates = np.asarray(mechanism.simulated(key, mean,
                                        num_repetitions=setting.repetitions))
  squares = np.sum(np.square(estimates - mean), -1)
  return np.mean(squares), np.std(squares) / setting.repetitions**0.5
