"""Computes the rows of the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import math

import numpy as np

from experiments import density_settings
from experiments import records
from experiments import rows
from experiments.density_table import sweep
from experiments.methods.theory import density_lower_bounds as lower_bounds
from experiments.methods.theory import density_packings as packings

# Without noise the best N grows slowly with n, so that the rate shows over more
# decades only.
_SCALES = {'pure': 10.0**(np.arange(6, 13) / 2),
           'zcdp': 10.0**(np.arange(6, 13) / 2),
           'sampling': 10.0**(np.arange(8, 21) / 2)}
# Largest numbers of frequencies or bins; enough for all settings.
_LARGEST = {'spectral': 400, 'pure_printed': 400, 'pure_exact': 400}
_MOST = 1500
# Stands for an infinite number of records.
_MANY = 10**15
_RELAXED_AT, _GAMMA = 1e6, 2.0


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.dataset} {setting.term} '
             f'{setting.method}')
    yield setting, rows.exact(setting, rate(setting))


def rate(setting: sweep.Setting) -> dict[str, float]:
  """Returns the measured slope, the slope in theory, and the prefactor."""
  scales, error = _SCALES[setting.term], lower if setting.lower else upper
  result = np.log([error(setting, scale) for scale in scales])
  theory = exponent(setting)
  return dict(slope=np.polyfit(np.log(scales), result, 1)[0], theory=theory,
              prefactor=math.exp(np.mean(result - theory * np.log(scales))))


def exponent(setting: sweep.Setting) -> float:
  """Returns the exponent in the table, or of an estimator that it lacks."""
  beta = setting.smoothness
  if setting.term == 'sampling':
    return -2 * beta / (2 * beta + 1)
  slow = (setting.kind, setting.term) == ('sobolev', 'pure') and (
      setting.method in ('printed', 'oracle', 'exact'))
  return -2 * beta / (beta + (1.5 if slow else 1))


def upper(setting: sweep.Setting, scale: float) -> float:
  """Returns the mean integrated squared error at a scale."""
  pure = setting.term == 'pure'
  size, signal = (scale, math.inf) if setting.term == 'sampling' else (
      math.inf, scale)
  if setting.method == 'relaxed':
    signal = scale * density_settings.relaxed_signal(
        _RELAXED_AT, 1 / _RELAXED_AT, _GAMMA)
    method = 'zcdp_printed'
  elif setting.kind == 'lipschitz':
    method = 'histogram' if pure else 'zcdp_histogram'
  elif setting.method == 'spectral':
    method = 'spectral'
  else:
    method = f'{"pure" if pure else "zcdp"}_' + (
        'exact' if setting.method == 'exact' else 'printed')
  if setting.method != 'printed':
    return density_settings.family(method, setting.dataset, _LARGEST.get(
        method, _MOST)).least(size, signal)
  order = density_settings.printed_order(method, setting.smoothness, size,
                                         signal)
  return density_settings.single(method, setting.dataset, order).least(
      size, signal)


def lower(setting: sweep.Setting, scale: float) -> float:
  """Returns the best lower bound over the class of the density at a scale."""
  truth = density_settings.density(setting.dataset)
  budget = {} if setting.term == 'sampling' else {
      'pure': dict(epsilon=scale / _MANY),
      'zcdp': dict(rho=(scale / _MANY)**2)}[setting.term]
  size = _MANY if budget else round(scale)
  if setting.method == 'pointwise':
    return lower_bounds.pointwise(truth.lipschitz, num_records=size,
                                  **budget).value
  if setting.kind == 'lipschitz':
    kernel, radius = packings.sawtooth(), truth.lipschitz
  else:
    kernel = packings.wave(setting.smoothness)
    radius = truth.sobolev(setting.smoothness)
  return lower_bounds.cells(kernel, radius=radius, num_records=size, sharp=True,
                            **budget).value
