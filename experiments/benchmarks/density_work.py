"""Inputs of the benchmarks of densities: estimators, and counts of bins.

Each repetition has its own data set of records of one density, of which only
the counts of bins are drawn. A budget is for one release under replace-one.
"""

from collections.abc import Callable
import functools
from typing import NamedTuple

import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import adaptive
from dpjax.stats.density_methods import densities
from dpjax.stats.density_methods import hierarchies
from dpjax.stats.density_methods import histograms
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import merging
from dpjax.stats.density_methods import sparse
from dpjax.stats.density_methods import stages
from dpjax.stats.density_methods import weighted
from experiments.benchmarks import methods
from experiments.methods.statistics import compared_densities
from experiments.methods.statistics import projection_tunings
from experiments.methods.statistics import spectral_risks

REPETITIONS = 10_000
"""Number of repetitions in a step."""

EPSILON = 0.1
RHO = EPSILON**2 / 2
SMOOTHNESS = 2
_CELLS = 1024
"""Number of cells whose counts give the sums of waves."""

_HEIGHT, _ROUNDS = 8, 4


class Work(NamedTuple):
  """An estimator, and how its statistics follow from counts.

  Attributes:
    estimator: the private estimator.
    num_bins: number of bins of the counts that are drawn.
    statistics: function from counts [R, bins] to statistics [R, s].
  """
  estimator: mechanism.DensityMechanism
  num_bins: int
  statistics: Callable[[np.ndarray], np.ndarray] = lambda counts: counts


@functools.cache
def density() -> densities.Density:
  """Returns a density at the edge of the class with `SMOOTHNESS` derivatives.
  """
  return compared_densities.random_phases(SMOOTHNESS)


def counts(rng: np.random.Generator, given: Work,
           repetitions: int) -> np.ndarray:
  """Returns the counts of `repetitions` data sets, [R, bins] float64."""
  return density().counts(
      rng, num_records=given.estimator.num_records, num_bins=given.num_bins,
      repetitions=repetitions).astype(np.float64)


def checked(given: Work) -> np.ndarray:
  """Returns one data set `CHECKED_DRAWS` times, so that only noise differs."""
  once = counts(np.random.default_rng(1), given, 1)
  return np.repeat(once, methods.CHECKED_DRAWS, 0)


def of_model(model: str, size: int) -> Work:
  """Returns the work of a model, for data sets of `size` records.

  Names end in 'gaussian' where the budget is rho.
  """
  family, _, noise = model.partition('_')
  budget = dict(rho=RHO) if noise else dict(epsilon=EPSILON)
  return _FAMILIES[family](size, budget | dict(
      adjacency=Adjacency.REPLACE_ONE))


def _histogram(size, public):
  estimator = histograms.Histogram.printed(num_records=size, **public)
  return Work(estimator, estimator.num_bins)


def _polygon(size, public):
  estimator = histograms.Polygon.tuned(num_records=size, lipschitz=4.0,
                                       **public)
  return Work(estimator, estimator.num_bins)


def _spectral(size, public):
  estimator = spectral_risks.tuned(
      size, smoothness=SMOOTHNESS, lipschitz=density().sobolev(SMOOTHNESS),
      **public)
  return Work(estimator, estimator.num_bins)


def _adaptive(boundary):
  def work(size, public):
    estimator = adaptive.adaptive(size, boundary=boundary, **public)
    return Work(estimator, estimator.num_bins)
  return work


def _projection(size, public):
  estimator = projection_tunings.printed_projection(
      num_records=size, smoothness=SMOOTHNESS, **public)
  return Work(estimator, _CELLS, estimator.of_counts)


def _weighted(size, public):
  estimator = projection_tunings.pinsker_projection(
      num_records=size, smoothness=SMOOTHNESS, radius=density().sobolev(
          SMOOTHNESS), **public)
  return Work(estimator, _CELLS, estimator.of_counts)


def _sums(size, public):
  estimator = weighted.adaptive(num_records=size, **public)
  return Work(estimator, _CELLS, estimator.of_counts)


def _staged(kind):
  def work(size, public):
    estimator = kind(num_records=size, **public)
    return Work(estimator, estimator.num_bins)
  return work


def _tree(size, public):
  return Work(hierarchies.TreeDensity(num_records=size, height=_HEIGHT,
                                      **public), 2**_HEIGHT)


def _haar(size, public):
  return Work(hierarchies.HaarDensity(num_records=size, height=_HEIGHT,
                                      **public), 2**_HEIGHT)


def _merged(size, public):
  estimator = merging.MergedHistogram(num_records=size, num_bins=100, **public)
  return Work(estimator, estimator.num_bins)


def _sparse(size, public):
  estimator = sparse.SparseFourier(num_records=size, num_rounds=_ROUNDS,
                                   **public)
  return Work(estimator, _CELLS, lambda counts: sparse.wave_sums(
      counts, estimator.num_frequencies))


_FAMILIES = {
    'heights': _histogram, 'polygon': _polygon, 'spectral': _spectral,
    'projection': _projection, 'weighted': _weighted,
    'sums': _sums, 'resolutions': _staged(stages.TwoResolutions),
    'stages': _staged(stages.TwoStages),
    'adaptive': _adaptive('circle'), 'default': _adaptive('interval'),
    'tree': _tree, 'haar': _haar, 'merged': _merged, 'sparse': _sparse,
}
