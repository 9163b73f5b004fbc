"""Computes and simulates the settings in `sweep.py`."""

from collections.abc import Iterator, Sequence
import functools
import math
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import frequencies
from dpjax.stats import precision
from dpjax.stats.density_methods import adaptive
from dpjax.stats.density_methods import api
from dpjax.stats.density_methods import bandwidths
from dpjax.stats.density_methods import bases
from dpjax.stats.density_methods import densities
from dpjax.stats.density_methods import estimate
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import projections
from dpjax.stats.density_methods import stages
from dpjax.stats.density_methods import weighted
from experiments import density_settings
from experiments import records
from experiments import rows
from experiments import simulation
from experiments.density_adaptive import sweep
from experiments.methods.statistics import projection_tunings

# Number of bins on which estimates are projected to densities.
_PROPER = 2048
# Largest numbers of frequencies and bins; enough for all settings.
_LARGEST = 400
# `single` uses 1.5 times the default number of bins, and its limit on them
# never binds.
_FACTOR, _MOST_BINS = 1.5, 2001
# Sums of basis functions are computed from the counts of so many cells.
_CELLS = 4096
_FAMILIES = {('oracle', 'pure'): 'pure_printed',
             ('oracle', 'zcdp'): 'zcdp_printed',
             ('exact', 'pure'): 'pure_exact', ('exact', 'zcdp'): 'zcdp_exact',
             ('spectral', 'pure'): 'spectral',
             ('histogram', 'pure'): 'histogram',
             ('histogram', 'zcdp'): 'zcdp_histogram'}


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.method} {setting.notion} '
             f'{setting.dataset} n={setting.num_examples} '
             f'epsilon={setting.epsilon:g}')
    if not setting.repetitions:
      yield setting, rows.exact(setting, closed(setting))
      continue
    yield setting, rows.released(
        setting, simulated(setting), n=setting.num_examples,
        # At delta = 0 no epsilon holds for Gaussian noise; its budget is rho.
        epsilon=setting.epsilon if setting.notion == 'pure' else math.inf)


def closed(setting: sweep.Setting) -> dict[str, float]:
  """Returns the errors of a linear estimator and of the uniform density."""
  size, name = setting.num_examples, setting.dataset
  signal = size * setting.epsilon / (
      1 if setting.notion == 'pure' else math.sqrt(2))
  if setting.method == 'linear':
    return dict(mse=_linear(setting))
  if setting.method in ('printed', 'tuned'):
    result = _tuned(setting, signal)
  else:
    result = density_settings.family(_FAMILIES[
        setting.method, setting.notion], name, _LARGEST)
  place = result.best(size, signal)
  metrics = dict(mse=result.risks(size, signal)[place],
                 order=result.orders[place])
  if setting.method == 'printed':
    metrics['uniform'] = density_settings.density(name).energy
  return metrics


def _linear(setting: sweep.Setting) -> float:
  """Returns the error with the best weights of frequencies for a density."""
  truth = density_settings.density(setting.dataset)
  public = dict(num_records=setting.num_examples, rho=setting.epsilon**2 / 2)
  return projections.WeightedProjection(
      coefficient_weights=projection_tunings.oracle_weights(truth, **public),
      adjacency=Adjacency.REPLACE_ONE, **public).expected(truth).total


def _tuned(setting: sweep.Setting, signal: float) -> density_settings.Family:
  """Returns the family with the one tuning that public numbers determine."""
  size, name = setting.num_examples, setting.dataset
  if setting.boundary == 'circle':
    method = setting.notion + '_printed'
    return density_settings.single(method, name, density_settings.printed_order(
        method, density_settings.SMOOTHNESS[name], size, signal))
  method = _FAMILIES['histogram', setting.notion]
  if setting.method == 'tuned':
    bins = bandwidths.tuned_bins(
        num_records=size, variance=density_settings.COUNTS[method]
        * (size / signal)**2, fix_mass=False,
        lipschitz=density_settings.density(name).lipschitz)
  else:
    bins = density_settings.printed_order(method, 1, size, signal)
  return density_settings.single(method, name, bins)


def mechanism_of(setting: sweep.Setting) -> mechanism.DensityMechanism:
  """Returns the adaptive estimator of a setting."""
  public = dict(num_records=setting.num_examples,
                adjacency=Adjacency.REPLACE_ONE)
  if setting.notion == 'pure':
    public['epsilon'] = setting.epsilon
  else:
    public['rho'] = setting.epsilon**2 / 2
  if setting.method in ('single', 'cosine'):
    plain = adaptive.AdaptiveHistogram(num_bins=5, **public)
    return adaptive.AdaptiveHistogram(
        num_bins=bases.adaptive_bins(
            setting.num_examples, plain.noise_variance, factor=_FACTOR,
            most=_MOST_BINS),
        basis='cosine' if setting.method == 'cosine' else 'fourier', **public)
  if setting.method == 'two_resolutions':
    return stages.TwoResolutions(**public)
  if setting.method == 'two_stages':
    return stages.TwoStages(**public)
  return api.plan(
      boundary='interval' if setting.method == 'spline' else setting.boundary,
      method='histogram' if setting.method == 'one_histogram' else 'auto',
      **public)


def simulated(setting: sweep.Setting) -> dict[str, float]:
  """Returns errors of raw releases and of their projections to densities."""
  mechanism = mechanism_of(setting)
  truth = density_settings.density(setting.dataset)
  sums = isinstance(mechanism, weighted.AdaptiveProjection)
  size = _CELLS if sums else mechanism.num_bins
  # Data depend only on the density, n and the statistic.
  generator = np.random.default_rng([
      setting.seed, setting.num_examples, size,
      zlib.crc32(setting.dataset.encode())])
  counts = truth.counts(generator, num_records=setting.num_examples,
                        num_bins=size, repetitions=setting.repetitions)
  result = mechanism.coefficients(
      simulation.key_of(setting),
      mechanism.of_counts(counts) if sums else counts)
  metrics = {}
  for name, errors in (
      ('mse', estimate.errors_of(mechanism.kind, result, truth)),
      ('proper', proper_errors(mechanism.kind, result, truth))):
    metrics[name] = np.mean(errors)
    metrics[f'{name}_se'] = np.std(errors, ddof=1) / math.sqrt(errors.size)
  return metrics


@jax.jit
def _nearest(values):
  return values.shape[-1] * jax.vmap(frequencies.project_on_simplex)(
      values / values.shape[-1])


@precision.in_float64
def proper_errors(kind: str, coefficients: np.ndarray,
                  truth: densities.Density) -> np.ndarray:
  """Returns errors [R] of the densities nearest to estimates [R, c]."""
  values = jax.vmap(functools.partial(
      estimate.on_bins, kind, num_bins=_PROPER))(jnp.asarray(coefficients))
  return estimate.errors_of('histogram', np.asarray(_nearest(values)), truth)
