"""Computes and simulates the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import math
import zlib

import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import histograms
from experiments import density_settings
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.density_histograms import sweep


def histogram(setting: sweep.Setting) -> histograms.Histogram:
  """Returns the estimator of a setting."""
  density = density_settings.density(setting.density)
  names = {'pure': 'epsilon', 'zcdp': 'rho'}
  public = dict(num_records=setting.num_records,
                adjacency=Adjacency.REPLACE_ONE)
  if setting.notion in names:
    public[names[setting.notion]] = setting.budget
  if setting.method == 'polygon':
    return histograms.Polygon.tuned(lipschitz=density.lipschitz, post='none',
                                    **public)
  if setting.method == 'printed':
    return histograms.Histogram.printed(**public)
  public |= dict(noise='laplace', fix_mass=False)
  if setting.method == 'tuned':
    return histograms.Histogram.tuned(lipschitz=density.lipschitz, **public)
  if setting.method == 'oracle':
    return histograms.Histogram.oracle_tuned(density, **public)
  return histograms.Histogram(num_bins=setting.num_bins, **public)


def _expected(setting: sweep.Setting) -> dict[str, float]:
  estimator = histogram(setting)
  density = density_settings.density(setting.density)
  risk = estimator.expected(density)
  values = dict(mse=risk.total, sampling=risk.sampling, privacy=risk.privacy,
               bias=risk.bias)
  if setting.method != 'fixed':
    values['bins'] = estimator.num_bins
  if setting.part == 'table':
    values['trivial'] = density.energy
  return values


def _simulated(setting: sweep.Setting) -> dict[str, float]:
  """Returns the mean largest squared error, and the largest mean at a point."""
  estimator = histogram(setting)
  density = density_settings.density(setting.density)
  generator = np.random.default_rng(
      [setting.seed, zlib.crc32(repr(setting).encode())])
  counts = density.counts(generator, num_records=setting.num_records,
                          num_bins=estimator.num_bins,
                          repetitions=setting.repetitions)
  largest = histograms.sup_errors(estimator.coefficients(
      simulation.key_of(setting), counts), density)**2
  at_point = max(estimator.expected_at(density, x).total
                 for x in np.arange(estimator.num_bins) / estimator.num_bins)
  return dict(largest=np.mean(largest), largest_se=np.std(largest, ddof=1)
              / math.sqrt(largest.size), at_point=at_point,
              bins=estimator.num_bins)


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.part} {setting.method} '
             f'{setting.density} n={setting.num_records} {setting.budget:g}')
    if setting.repetitions:
      # Gaussian noise has no finite epsilon at delta = 0.
      yield setting, rows.released(
          setting, _simulated(setting), n=setting.num_records,
          epsilon=setting.budget if setting.notion == 'pure' else math.inf)
    else:
      yield setting, rows.exact(setting, _expected(setting))
