"""Computes and simulates the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import functools
import math
from typing import Any
import zlib

import numpy as np

from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import bandwidths
from dpjax.stats.density_methods import cubes
from dpjax.theory.parametric import densities as density_study
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.methods.statistics import compared_densities
from experiments.methods.statistics import cube_densities
from experiments.price_histograms import sweep

_MOST_NUMBERS = 4 * 10**6


def guarantee(setting: sweep.Setting) -> notions.PureDP | notions.ZCDP:
  """Returns the privacy guarantee of the estimators of a setting."""
  if setting.notion == 'pure':
    return notions.PureDP(epsilon=setting.alpha)
  return notions.ZCDP(rho=setting.alpha**2)


def histogram(setting: sweep.Setting) -> cubes.CubeHistogram:
  """Returns the estimator of a setting."""
  budget = (dict(epsilon=setting.alpha) if setting.notion == 'pure'
            else dict(rho=setting.alpha**2))
  public = dict(num_records=setting.num_records, dimension=setting.dimension,
                adjacency=Adjacency.REPLACE_ONE, **budget)
  if setting.method == 'tuned':
    return cubes.CubeHistogram.tuned(lipschitz=density_study.LIPSCHITZ,
                                     **public)
  bins = setting.num_bins
  if not bins:
    bins = bandwidths.printed_bins(
        num_records=setting.num_records, budget=setting.alpha,
        dimension=setting.dimension, total=setting.method == 'printed')
  if setting.part == 'golden':
    public |= dict(noise='laplace', fix_mass=False)
  return cubes.CubeHistogram(num_bins=bins, **public)


def _densities(setting: sweep.Setting, bins: int) -> list[Any]:
  """Returns the densities over which the largest risk is taken."""
  if setting.part == 'golden':
    return [compared_densities.linear(1.0)]
  if setting.dimension == 1:
    return [cube_densities.worst(bins, 1),
            compared_densities.linear(1.0), compared_densities.tent(1.0)]
  root = math.sqrt(setting.dimension)
  return [cube_densities.worst(bins, setting.dimension),
          *(cube_densities.AxisMixture(
              parts=(distribution,) * setting.dimension)
            for distribution in (compared_densities.tent(root),
                                 compared_densities.linear(root)))]


@functools.cache
def _any(num_records: int, promised: notions.PureDP | notions.ZCDP,
         dimension: int) -> dict[str, float]:
  """Returns bounds for any estimator, and risks without privacy or data."""
  study = density_study.STUDY
  options = dict(num_examples=num_records, dimension=dimension)
  values = {bound.name: bound.value for bound in study.lower(
      guarantee=promised, **options)}
  return dict(
      lower=study.best_lower(guarantee=promised, **options).value,
      code=values.get('code of cells, private', math.nan),
      non_private=study.non_private(**options),
      trivial=study.trivial(dimension=dimension))


def exact(setting: sweep.Setting) -> dict[str, float]:
  """Returns bounds, and risks in closed form."""
  estimator, dimension = histogram(setting), setting.dimension
  noise = dict(num_records=estimator.num_records,
               variance=estimator.noise_variance,
               lipschitz=density_study.LIPSCHITZ, fix_mass=estimator.fix_mass,
               dimension=dimension)
  return dict(
      bins=estimator.num_bins,
      upper=bandwidths.histogram_bound(estimator.num_bins, **noise),
      least=bandwidths.histogram_bound(bandwidths.tuned_bins(**noise), **noise),
      risk=max(estimator.expected(density).total
               for density in _densities(setting, estimator.num_bins)),
      **_any(setting.num_records, guarantee(setting), dimension))


def simulated(setting: sweep.Setting) -> dict[str, float]:
  """Returns the mean error on the worst density, and its standard error."""
  estimator = histogram(setting)
  density = max(_densities(setting, estimator.num_bins),
            key=lambda density: estimator.expected(density).total)
  generator = np.random.default_rng(
      [setting.seed, zlib.crc32(repr(setting).encode())])
  repetitions = max(100, min(setting.repetitions,
                             _MOST_NUMBERS // estimator.num_bins))
  counts = density.counts(generator, num_records=estimator.num_records,
                      num_bins=estimator.num_bins, repetitions=repetitions)
  heights = estimator.coefficients(simulation.key_of(setting), counts)
  wanted = estimator.num_bins * density.masses(estimator.num_bins)
  result = np.mean((heights - wanted)**2, -1) + estimator.expected(density).bias
  return dict(measured=result.mean(), measured_se=result.std(ddof=1)
              / math.sqrt(repetitions))


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.part} {setting.method} '
             f'd={setting.dimension} n={setting.num_records}')
    metrics = exact(setting)
    if not setting.repetitions:
      yield setting, rows.exact(setting, metrics)
      continue
    yield setting, rows.released(
        setting, metrics | simulated(setting), n=setting.num_records,
        # Gaussian noise has no finite epsilon at delta = 0; its budget is rho.
        epsilon=setting.alpha if setting.notion == 'pure' else math.inf)
