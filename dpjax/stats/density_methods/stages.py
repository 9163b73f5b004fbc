"""Estimates a density on a circle from two noisy histograms instead of one.

With one fine histogram of m bins, an adaptive estimator has m / (2 K + 1) times
the necessary noise on a density of few frequencies K. `TwoResolutions` releases
two nested histograms. In `TwoStages` the first one determines the bins of the
second, which has the optimal rate for all beta up to constants. Both pay if the
density is smooth and n epsilon is large. Item DEN-B6 (A2', A3).
"""

import abc
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import draws
from dpjax.stats.density_methods import bases
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import noisy_counts
from dpjax.stats.density_methods import pooling
from dpjax.stats.density_methods import shrinkage
from dpjax.typing import Array, PRNGKey

# Cells of `TwoStages`: an odd number with many odd divisors.
_FINE = 3465
_DIVISORS = tuple(m for m in range(5, _FINE) if _FINE % m == 0)
# Highest frequency used of a coarse histogram over its number of bins; bins
# damp higher ones too much.
_TOP = 0.34
# Fine bins in a coarse bin of `TwoResolutions`.
_NESTED = 5
_LEAST_VARIANCE = 1e-9


class StagedParameters(NamedTuple):
  """Public numbers that the sampler takes.

  Attributes:
    scales: [2], noise scales of the counts of both histograms.
    variances: [2], noise variances of the counts of both histograms.
    num_records: n.
    penalty: c of `shrinkage`.
  """
  scales: np.ndarray
  variances: np.ndarray
  num_records: ArrayLike
  penalty: ArrayLike


def _combined(first: Array, first_precisions: Array, second: Array,
              second_precisions: Array) -> tuple[Array, Array]:
  """Returns the precision-weighted mean and its variance; 0, 1 if both are 0.
  """
  total = first_precisions + second_precisions
  safe = jnp.where(total > 0, total, 1.0)
  weighted_sum = (first_precisions.astype(first.dtype) * first
                  + second_precisions.astype(first.dtype) * second)
  return weighted_sum / safe.astype(first.dtype), 1 / safe


def _shrunk(sums: Array, noise: Array, parameters: StagedParameters) -> Array:
  """Returns shrunk coefficients from sums with this noise variance."""
  coefficients = _share(sums, parameters)
  return pooling.shrunk(coefficients, noise + 1 / parameters.num_records,
                        parameters.penalty)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Staged(mechanism.DensityMechanism):
  """Base class: two noisy histograms of the same records, for a public n.

  Attributes:
    share: fraction of epsilon for the first histogram.
    penalty: c of `shrinkage`.
  """
  share: float
  penalty: float = shrinkage.PENALTY

  kind = 'fourier'

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_open_unit('share', self.share)
    errors.check_positive('penalty', self.penalty)
    if not (self.pure and self.knows_total):
      raise ValueError(f'{type(self).__name__} takes epsilon (not rho), under '
                       'replace_one')

  @property
  @abc.abstractmethod
  def num_bins(self) -> int:
    """Number of bins of the statistic."""

  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Returns counts [m] of records [n] in [0, 1]."""
    return mechanism.bin_counts(unit, self.num_bins)

  @property
  def epsilons(self) -> tuple[float, float]:
    """Budgets of both histograms; they add up to epsilon."""
    return self.share * self.budget, (1 - self.share) * self.budget

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy event: a histogram, and one that may depend on its release."""
    return accounting.composed_event([
        accounting.pure_event(epsilon=part, adjacency=self.adjacency)
        for part in self.epsilons])

  @property
  def parameters(self) -> StagedParameters:
    """Float64 NumPy arrays that `draw` takes as parameters."""
    scales = [2 / part for part in self.epsilons]
    # Precisions divide by the variances, so these must stay above 0.
    return StagedParameters(
        np.array(scales), np.array([
            max(draws.discrete_laplace_variance(scale), _LEAST_VARIANCE)
            for scale in scales]),
        np.float64(self.num_records), np.float64(self.penalty))

  def _bins(self, share: float) -> int:
    """Returns the bins of a single histogram with this share of epsilon."""
    return bases.adaptive_bins(
        self.num_records,
        draws.discrete_laplace_variance(2 / (share * self.budget)))


def _noisy(key: PRNGKey, counts: Array, parameters: StagedParameters,
           stage: int) -> Array:
  """Returns noisy counts of stage 0 or 1."""
  return noisy_counts.noisy(key, counts, parameters.scales[stage],
                            'discrete_laplace')


def _analysed(counts: Array, basis: bases.Basis) -> Array:
  """Returns coefficients of counts, not yet divided by n."""
  analysis = jnp.asarray(basis.analysis)
  return counts.astype(analysis.dtype) @ analysis


def _share(sums: Array, parameters: StagedParameters) -> Array:
  """Divides sums of records by n."""
  return sums / jnp.asarray(parameters.num_records).astype(sums.dtype)


def _noise_of_share(parameters: StagedParameters, stage: int) -> Array:
  """Returns the noise variance of a share of records."""
  return parameters.variances[stage] / jnp.square(parameters.num_records)


@functools.cache
def _draw_two_resolutions(num_bins: int) -> mechanism.Draw:
  """Returns the sampler of `TwoResolutions`."""
  coarse_bins = num_bins // _NESTED
  fine = bases.basis('fourier', num_bins)
  top = max(1, int(_TOP * coarse_bins))
  coarse = bases.basis('fourier', coarse_bins, top)
  missing = fine.gains.size - top
  # The coarse histogram is not used for frequencies above `top`: precision 0.
  precise = np.pad(1 / coarse.gains, (0, missing))

  def draw(key: PRNGKey, counts: Array, parameters: StagedParameters) -> Array:
    keys = jax.random.split(key)
    # A coarse bin is the sum of the five fine bins that lie in it.
    sums = jnp.sum(counts.reshape(coarse_bins, _NESTED), 1)
    first = _analysed(_noisy(keys[0], counts, parameters, 0), fine)
    second = _analysed(_noisy(keys[1], sums, parameters, 1), coarse)
    sums_by_frequency, noise = _combined(
        first, 1 / (jnp.asarray(fine.gains) * _noise_of_share(parameters, 0)),
        jnp.pad(second, (0, missing)),
        jnp.asarray(precise) / _noise_of_share(parameters, 1))
    return _shrunk(sums_by_frequency, noise, parameters)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoResolutions(_Staged):
  """Noisy counts of fine bins and of coarse bins of five fine ones.

  Guarantee: epsilon-DP under REPLACE_ONE, by composition.
  """
  share: float = 0.3

  @property
  def num_bins(self) -> int:
    """Number of fine bins: an odd multiple of five."""
    coarse = max(3, math.ceil(self._bins(1.0) / _NESTED))
    return _NESTED * (coarse + 1 - coarse % 2)

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler of coefficients [K]."""
    return _draw_two_resolutions(self.num_bins)


@functools.cache
def _draw_two_stages(first_bins: int, most: int) -> mechanism.Draw:
  """Returns the sampler of `TwoStages`."""
  fine = bases.basis('fourier', first_bins)
  choices = np.array([m for m in _DIVISORS if m <= most])
  size = max(fine.gains.size, most // 2)
  padding = (0, size - fine.gains.size)
  precise = np.pad(1 / fine.gains, padding)

  def draw(key: PRNGKey, counts: Array, parameters: StagedParameters) -> Array:
    keys = jax.random.split(key)
    first = _analysed(_noisy(keys[0], jnp.sum(
        counts.reshape(first_bins, -1), 1), parameters, 0), fine)
    bins = _chosen(_share(first, parameters), jnp.asarray(fine.gains)
                   * _noise_of_share(parameters, 0), parameters, choices)
    second, gains = _waves(keys[1], counts, bins, parameters, most, size)
    sums_by_frequency, noise = _combined(
        jnp.pad(first, padding),
        jnp.asarray(precise) / _noise_of_share(parameters, 0), second,
        jnp.where(gains > 0, 1 / jnp.where(gains > 0, gains, 1.0), 0.0)
        / _noise_of_share(parameters, 1))
    return _shrunk(sums_by_frequency, noise, parameters)
  return draw


def _waves(key: PRNGKey, counts: Array, bins: Array,
           parameters: StagedParameters, most: int, size: int
           ) -> tuple[Array, Array]:
  """Returns coefficients [K] of a histogram with a traced number of bins.

  Noisy counts are spread over the cells, whose number is static, so one Fourier
  transform serves all numbers of bins. Gains are those of `bases.basis`; gains
  and coefficients are 0 at frequencies that the bins do not determine.
  """
  bin_of_cell = jnp.arange(_FINE) * bins // _FINE
  # Segments beyond the chosen number of bins get noise but are never read.
  noisy = _noisy(key, jax.ops.segment_sum(counts, bin_of_cell, most),
                 parameters, 1)
  width = bins.astype(counts.dtype)
  waves = jnp.fft.rfft(noisy[bin_of_cell] * (width / _FINE))[1:size + 1]
  k = np.arange(1, size + 1)
  reached = 2 * k < bins
  taken = jnp.where(reached, jnp.sinc(jnp.asarray(k * 1.0) / width), 1.0)
  # Undo the damping by the bin itself and by the cells within it.
  factors = jnp.where(reached, np.sinc(k / _FINE) / jnp.square(taken), 0.0)
  middles = jnp.asarray(np.exp(-1j * np.pi * k / _FINE))
  return (waves * middles * factors.astype(waves.dtype),
          jnp.where(reached, width / jnp.square(taken), 0.0))


def _chosen(coefficients: Array, noise: Array, parameters: StagedParameters,
            choices: np.ndarray) -> Array:
  """Returns the number of bins [], twice what significant frequencies need."""
  # Gain: signal minus c times the expected noise and sampling error, summed up
  # to a frequency. Frequencies up to the largest gain are significant.
  variances = noise + 1 / parameters.num_records
  gain = jnp.cumsum(jnp.square(jnp.abs(coefficients))
                    - parameters.penalty * variances)
  needed = jnp.where(jnp.max(gain) > 0, jnp.argmax(gain) + 1, 0)
  place = jnp.searchsorted(jnp.asarray(choices), 2 * (2 * needed + 1))
  return jnp.asarray(choices)[jnp.minimum(place, choices.size - 1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoStages(_Staged):
  """A histogram that determines how many bins the next one has.

  Guarantee: epsilon-DP under REPLACE_ONE, by adaptive composition: the number
  of bins is computed from the first release. Numbers of bins are divisors of
  3465, so counts of 3465 bins are a sufficient statistic.
  """
  share: float = 0.25

  @property
  def num_bins(self) -> int:
    """Number of cells, 3465; the bins of both histograms are unions of cells.
    """
    return _FINE

  @property
  def stage_bins(self) -> tuple[int, int]:
    """Bins of the first histogram, and the most that the second may have."""
    def divisor(share: float) -> int:
      least = min(self._bins(share), _DIVISORS[-1])
      return next(m for m in _DIVISORS if m >= least)
    return divisor(self.share), divisor(1.0)

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler of coefficients [K]."""
    return _draw_two_stages(*self.stage_bins)
