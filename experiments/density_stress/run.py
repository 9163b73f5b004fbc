"""Computes and simulates the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import math
import zlib

import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import adaptive
from dpjax.stats.density_methods import bases
from dpjax.stats.density_methods import densities
from dpjax.stats.density_methods import estimate
from dpjax.stats.density_methods import hierarchies
from dpjax.stats.density_methods import histograms
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import merging
from dpjax.stats.density_methods import projections
from dpjax.stats.density_methods import sparse
from dpjax.stats.density_methods import weighted
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.density_stress import sweep
from experiments.methods.statistics import compared_densities
from experiments.methods.statistics import projection_tunings

_DENSITIES = {'tent2': lambda: compared_densities.tent(2),
              'beta22': lambda: compared_densities.beta(2, 2),
              'blocks': compared_densities.blocks,
              'cos30': compared_densities.cosine_wave,
              'sobrand2': lambda: compared_densities.random_phases(2)}
# Sums of waves are computed at the mid-points of this many cells.
_CELLS = 2**13


@functools.cache
def density(name: str) -> densities.Density:
  """Returns a density of the sweep."""
  return _DENSITIES[name]()


def estimator(setting: sweep.Setting) -> mechanism.DensityMechanism:
  """Returns the mechanism of a setting."""
  public = dict(num_records=setting.num_records,
                adjacency=Adjacency.REPLACE_ONE)
  if setting.notion == 'zcdp':
    return _on_circle(setting, public | dict(rho=setting.epsilon**2 / 2))
  public['epsilon'] = setting.epsilon
  truth, method = density(setting.density), setting.method
  if method == 'adaptive':
    return adaptive.adaptive(**public)
  if method == 'printed':
    return histograms.Histogram.printed(**public)
  if method == 'oracle':
    return histograms.Histogram.oracle_tuned(truth, **public)
  if method == 'dyadic':
    return min((histograms.Histogram(num_bins=2**level, **public)
                for level in range(1, 11)),
               key=lambda candidate: candidate.expected(truth).total)
  if method.startswith('merged'):
    variance = histograms.Histogram(num_bins=2, **public).noise_variance
    bins = bases.adaptive_bins(setting.num_records, variance, factor=1.5)
    return merging.MergedHistogram(
        num_bins=bins, penalty=4.0 if method == 'merged' else 2 * math.log(
            bins), **public)
  if method.startswith('haar'):
    return hierarchies.HaarDensity(
        threshold=0.0 if method == 'haar_all' else 2.0, **public)
  tree = hierarchies.TreeDensity(**public)
  return tree if method == 'leaves' else dataclasses.replace(
      tree, level=hierarchies.oracle_level(tree, truth))


def _on_circle(setting, public):
  if setting.method == 'sums':
    return weighted.adaptive(num_cells=_CELLS, **public)
  if setting.method.startswith('sparse'):
    return sparse.SparseFourier(
        num_rounds=int(setting.method.split('_')[1]), **public)
  plain = projections.Projection(num_functions=3, **public, **(
      dict(tuning='printed', fix_mass=False)
      if setting.method == 'projection' else {}))
  return dataclasses.replace(plain, num_functions=(
      projection_tunings.oracle_num_functions(plain, density(setting.density))))


@functools.lru_cache(maxsize=4)
def _counts(seed: int, name: str, num_records: int, num_bins: int,
            repetitions: int) -> np.ndarray:
  """Returns counts that depend on seed, density, n and bins, not on method."""
  generator = np.random.default_rng([seed, zlib.crc32(name.encode()),
                                     num_records])
  return density(name).counts(generator, num_records=num_records,
                              num_bins=num_bins, repetitions=repetitions)


def simulated(setting: sweep.Setting) -> dict[str, float]:
  """Returns the mean error of releases of fresh records."""
  chosen = estimator(setting)
  size = chosen.num_bins if setting.method in (
      'merged', 'merged_dear', 'adaptive') else _CELLS
  if setting.method == 'haar':
    size = 2**chosen.height
  result = _counts(setting.seed, setting.density, setting.num_records, size,
                  setting.repetitions)
  if setting.method == 'sums':
    result = chosen.of_counts(result)
  elif setting.notion == 'zcdp':
    result = sparse.wave_sums(result, chosen.num_frequencies)
  errors = estimate.errors_of(chosen.kind, chosen.coefficients(
      simulation.key_of(setting), result), density(setting.density))
  return dict(mise=np.mean(errors), mise_se=np.std(errors, ddof=1)
              / math.sqrt(errors.size))


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.method} {setting.density} '
             f'n={setting.num_records} {setting.epsilon:g}')
    if setting.repetitions:
      # Gaussian noise has no finite epsilon at delta = 0.
      yield setting, rows.released(
          setting, simulated(setting), n=setting.num_records,
          epsilon=setting.epsilon if setting.notion == 'pure' else math.inf)
    else:
      risk = estimator(setting).expected(density(setting.density))
      yield setting, rows.exact(setting, dict(
          mise=risk.total, trivial=density(setting.density).energy))
