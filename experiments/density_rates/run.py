"""Computes the rows of the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import math

from dpjax.privacy.adjacency import Adjacency
from experiments import density_settings
from experiments import records
from experiments import rows
from experiments.density_rates import sweep
from experiments.methods.statistics import spectral_risks

# Largest number of frequencies: `_FEW` for scales up to `_SMALL`; above, by
# method.
_FEW, _SMALL = 100, 1e4
_LARGEST = {'spectral': 400, 'pure_printed': 400, 'pure_exact': 400}
_ZCDP = 1500
_FIXED = (5, 21)
_GAMMA = 2.0
# Stands for an infinite number of records.
_MANY = 10**15
# The n that sets delta = n^-2 if the setting has infinite n.
_RELAXED_AT = 1e6


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.study} {setting.method} '
             f'{setting.dataset} {setting.scale:g}')
    yield setting, rows.exact(setting, error(setting))


def sizes(setting: sweep.Setting) -> tuple[float, float]:
  """Returns n and n alpha; infinite if their error term is left out."""
  if setting.study == 'sampling':
    return setting.scale, math.inf
  if setting.study == 'privacy':
    if setting.method == 'relaxed':
      return math.inf, setting.scale * density_settings.relaxed_signal(
          _RELAXED_AT, 1 / _RELAXED_AT, _GAMMA)
    return math.inf, setting.scale
  if setting.method == 'relaxed':
    return setting.scale, density_settings.relaxed_signal(
        setting.scale, setting.epsilon, _GAMMA)
  alpha = setting.epsilon / (
      math.sqrt(2) if setting.method.startswith('zcdp') else 1)
  return setting.scale, setting.scale * alpha


def error(setting: sweep.Setting) -> dict[str, float]:
  """Returns the mean integrated squared error and the tuning."""
  num_records, signal = sizes(setting)
  if setting.method == 'taper':
    return _tuned_for_class(setting, num_records, signal)
  if setting.method == 'uniform':
    return dict(mse=density_settings.density(setting.dataset).energy)
  name, method = setting.dataset, {
      'relaxed': 'zcdp_printed', 'none': 'zcdp_exact'}.get(
          setting.method, setting.method)
  if setting.tuning == 'printed':
    order = density_settings.printed_order(method, setting.smoothness,
                                           num_records, signal)
    result = density_settings.single(method, name, order)
  elif setting.tuning == 'fixed':
    result = density_settings.spectral(method, name, (_FIXED,))
  else:
    largest = _FEW if setting.scale <= _SMALL else _LARGEST.get(method, _ZCDP)
    result = density_settings.family(method, name, largest)
  place = result.best(num_records, signal)
  metrics = dict(mse=result.risks(num_records, signal)[place],
                 order=result.orders[place])
  if method == 'spectral':
    metrics['frequencies'] = result.frequencies[place]
  return metrics


def _tuned_for_class(setting: sweep.Setting, num_records: float,
                     signal: float) -> dict[str, float]:
  truth = density_settings.density(setting.dataset)
  size = round(min(num_records, _MANY))
  result = spectral_risks.tuned(
      size, adjacency=Adjacency.REPLACE_ONE, epsilon=signal / size,
      smoothness=setting.smoothness,
      lipschitz=truth.sobolev(setting.smoothness))
  risk = result.expected(truth)
  sampling = risk.sampling if math.isfinite(num_records) else 0.0
  return dict(mse=sampling + risk.privacy + risk.bias, order=result.num_bins)
