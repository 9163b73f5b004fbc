"""Draws the settings of `sweep.py`."""

from collections.abc import Iterator, Sequence
import functools
import zlib

import jax
import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import adaptive
from dpjax.stats.density_methods import estimate
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import projections
from experiments import density_settings
from experiments import records
from experiments import rows
from experiments.density_draws import sweep
from experiments.methods.statistics import projection_tunings
from experiments.methods.statistics import spectral_risks

_CELLS = 4096
# Number of coefficients of the true density; further ones would not show.
_FREQUENCIES = 24


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  del data_dir
  for done, setting in enumerate(settings):
    progress(done / len(settings), f'{setting.method} {setting.dataset}')
    truth = density_settings.density(setting.dataset)
    if setting.method == 'truth':
      yield setting, rows.exact(setting, _waves(truth.fourier(_FREQUENCIES)))
      continue
    kind, result = released(setting.method, setting.dataset, setting.seed)
    one = result[setting.draw]
    metrics = _waves(one[1:], one[0].real) if kind == 'spectrum' else _waves(
        one)
    yield setting, rows.released(
        setting, metrics | dict(ise=estimate.errors_of(kind, one, truth)),
        n=setting.num_examples, epsilon=setting.epsilon)


def _waves(theta: np.ndarray, mass: float = 1.0) -> dict[str, float]:
  """Returns name -> value of the coefficients that are not 0."""
  values = {'mass': mass}
  for k, value in enumerate(theta, 1):
    if value:
      values |= {f're_{k:02d}': value.real, f'im_{k:02d}': value.imag}
  return values


def mechanism_of(method: str, dataset: str) -> mechanism.DensityMechanism:
  """Returns the estimator of a method, with the constants that it may know."""
  public = dict(num_records=sweep.NUM_EXAMPLES, epsilon=sweep.EPSILON,
                adjacency=Adjacency.REPLACE_ONE)
  smoothness = density_settings.SMOOTHNESS[dataset]
  if method == 'printed':
    return projection_tunings.printed_projection(
        smoothness=smoothness, **public)
  if method == 'spectral':
    return spectral_risks.tuned(
        smoothness=smoothness,
        lipschitz=density_settings.density(dataset).sobolev(smoothness),
        **public)
  return adaptive.adaptive(boundary='circle', **public)


@functools.cache
def released(method: str, dataset: str, seed: int) -> tuple[str, np.ndarray]:
  """Returns the form and coefficients [R, c] of all draws."""
  mechanism = mechanism_of(method, dataset)
  sums = isinstance(mechanism, projections.Projection)
  name = zlib.crc32(dataset.encode())
  counts = density_settings.density(dataset).counts(
      np.random.default_rng([seed, name]), num_records=sweep.NUM_EXAMPLES,
      num_bins=_CELLS if sums else mechanism.num_bins, repetitions=sweep.DRAWS)
  key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(
      f'{method}/{dataset}'.encode()))
  return mechanism.kind, mechanism.coefficients(
      key, mechanism.of_counts(counts) if sums else counts)
