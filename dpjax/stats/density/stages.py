"""Two histograms instead of one: for smooth densities and large n epsilon.

One fine histogram leaves an adaptive estimator a factor of m / (2 K + 1) of
noise on a density of few frequencies K. `TwoResolutions` releases two nested
ones, `TwoStages` lets the first choose the bins of the second, which has the
optimal rate for all beta up to constants. Budgets add up. Item DEN-B6 (A2',
A3). On a circle.
"""

import abc
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import draws
from dpjax.stats.density import bases
from dpjax.stats.density import mechanism
from dpjax.stats.density import noisy_counts
from dpjax.stats.density import pooling
from dpjax.stats.density import shrinkage
from dpjax.typing import Array, PRNGKey

# Odd, and with many odd divisors.
_FINE = 3465
_DIVISORS = tuple(m for m in range(5, _FINE) if _FINE % m == 0)
# Beyond this share of its bins a coarse histogram takes too much off.
_REACH = 0.34
_NESTED = 5
_LEAST_VARIANCE = 1e-9


class Parameters(NamedTuple):
  """Numbers of a release.

  Attributes:
    scales: of the noise of both histograms, [2].
    variances: of the same, [2].
    num_records: n.
    penalty: of the shrinkage.
  """
  scales: np.ndarray
  variances: np.ndarray
  num_records: np.ndarray
  penalty: np.ndarray


def _combined(first: Array, first_precisions: Array, second: Array,
              second_precisions: Array) -> tuple[Array, Array]:
  """The mean by precisions, and its variance; 0 and 1 where both are 0."""
  whole = first_precisions + second_precisions
  known = jnp.where(whole > 0, whole, 1.0)
  found = (first_precisions.astype(first.dtype) * first
           + second_precisions.astype(first.dtype) * second)
  return found / known.astype(first.dtype), 1 / known


def _shrunk(sums: Array, noise: Array, parameters: Parameters) -> Array:
  found = _share(sums, parameters)
  return pooling.shrunk(found, noise + 1 / parameters.num_records,
                        parameters.penalty)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Staged(mechanism.DensityMechanism):
  """Base: two noisy histograms of the same records, for a known n and epsilon.

  Attributes:
    share: of epsilon, for the first histogram.
    penalty: c of `shrinkage`.
  """
  share: float
  penalty: float = shrinkage.PENALTY

  kind = 'fourier'

  def __post_init__(self):
    super().__post_init__()
    errors.check_open_unit('share', self.share)
    errors.check_positive('penalty', self.penalty)
    if not (self.pure and self.knows_total):
      raise ValueError(f'{type(self).__name__} takes epsilon, under '
                       'replace_one')

  @property
  @abc.abstractmethod
  def num_bins(self) -> int:
    """Of the statistic."""

  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Counts [m] of records [n] in [0, 1]."""
    return mechanism.bin_counts(unit, self.num_bins)

  @property
  def epsilons(self) -> tuple[float, float]:
    """Of both histograms; they add up to epsilon."""
    return self.share * self.epsilon, (1 - self.share) * self.epsilon

  @property
  def event(self) -> accounting.DpEvent:
    """One histogram, and another that may depend on what the first told."""
    return accounting.composed_event([
        accounting.pure_event(epsilon=part, adjacency=self.adjacency)
        for part in self.epsilons])

  @property
  def parameters(self) -> Parameters:
    """Numbers that the law takes."""
    scales = [2 / part for part in self.epsilons]
    # A variance of 0 has no precision.
    return Parameters(
        np.array(scales), np.array([
            max(draws.discrete_laplace_variance(scale), _LEAST_VARIANCE)
            for scale in scales]),
        np.float64(self.num_records), np.float64(self.penalty))

  def _bins(self, share: float) -> int:
    """What one histogram with this share of epsilon would take."""
    return bases.adaptive_bins(
        self.num_records,
        draws.discrete_laplace_variance(2 / (share * self.epsilon)))


def _noisy(key: PRNGKey, counts: Array, parameters: Parameters,
           stage: int) -> Array:
  return noisy_counts.noisy(key, counts, parameters.scales[stage],
                            'discrete_laplace')


def _analysed(counts: Array, basis: bases.Basis) -> Array:
  analysis = jnp.asarray(basis.analysis)
  return counts.astype(analysis.dtype) @ analysis


def _share(sums: Array, parameters: Parameters) -> Array:
  return sums / parameters.num_records.astype(sums.dtype)


def _noise_of_share(parameters: Parameters, stage: int) -> Array:
  """Its variance."""
  return parameters.variances[stage] / jnp.square(parameters.num_records)


@functools.cache
def _draw_two_resolutions(num_bins: int) -> mechanism.Draw:
  coarse_bins = num_bins // _NESTED
  fine = bases.basis('fourier', num_bins)
  reach = max(1, int(_REACH * coarse_bins))
  coarse = bases.basis('fourier', coarse_bins, reach)
  missing = fine.gains.size - reach
  precise = np.pad(1 / coarse.gains, (0, missing))

  def draw(key: PRNGKey, counts: Array, parameters: Parameters) -> Array:
    keys = jax.random.split(key)
    sums = jnp.sum(counts.reshape(coarse_bins, _NESTED), 1)
    first = _analysed(_noisy(keys[0], counts, parameters, 0), fine)
    second = _analysed(_noisy(keys[1], sums, parameters, 1), coarse)
    found, noise = _combined(
        first, 1 / (jnp.asarray(fine.gains) * _noise_of_share(parameters, 0)),
        jnp.pad(second, (0, missing)),
        jnp.asarray(precise) / _noise_of_share(parameters, 1))
    return _shrunk(found, noise, parameters)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoResolutions(_Staged):
  """Fine bins, and bins of five of them, with a share of epsilon each.

  Guarantee: epsilon-DP under REPLACE_ONE, by composition.
  """
  share: float = 0.3

  @property
  def num_bins(self) -> int:
    """An odd multiple of five."""
    coarse = max(3, math.ceil(self._bins(1.0) / _NESTED))
    return _NESTED * (coarse + 1 - coarse % 2)

  @property
  def draw(self) -> mechanism.Draw:
    """The law of coefficients [K]."""
    return _draw_two_resolutions(self.num_bins)


@functools.cache
def _draw_two_stages(first_bins: int, most: int) -> mechanism.Draw:
  fine = bases.basis('fourier', first_bins)
  choices = np.array([m for m in _DIVISORS if m <= most])
  size = max(fine.gains.size, most // 2)
  padding = (0, size - fine.gains.size)
  precise = np.pad(1 / fine.gains, padding)

  def draw(key: PRNGKey, counts: Array, parameters: Parameters) -> Array:
    keys = jax.random.split(key)
    first = _analysed(_noisy(keys[0], jnp.sum(
        counts.reshape(first_bins, -1), 1), parameters, 0), fine)
    bins = _chosen(_share(first, parameters), jnp.asarray(fine.gains)
                   * _noise_of_share(parameters, 0), parameters, choices)
    second, gains = _waves(keys[1], counts, bins, parameters, most, size)
    found, noise = _combined(
        jnp.pad(first, padding),
        jnp.asarray(precise) / _noise_of_share(parameters, 0), second,
        jnp.where(gains > 0, 1 / jnp.where(gains > 0, gains, 1.0), 0.0)
        / _noise_of_share(parameters, 1))
    return _shrunk(found, noise, parameters)
  return draw


def _waves(key: PRNGKey, counts: Array, bins: Array, parameters: Parameters,
           most: int, size: int) -> tuple[Array, Array]:
  """Coefficients [K] of a second release, of as many bins as an array says.

  Noisy counts are spread over their cells, whose number is known to programs:
  one Fourier transform for all numbers of bins. Gains are as of `bases.basis`,
  and 0, as coefficients, where bins tell no more.
  """
  bin_of_cell = jnp.arange(_FINE) * bins // _FINE
  # Of bins that are not there nobody asks.
  noisy = _noisy(key, jax.ops.segment_sum(counts, bin_of_cell, most),
                 parameters, 1)
  width = bins.astype(counts.dtype)
  waves = jnp.fft.rfft(noisy[bin_of_cell] * (width / _FINE))[1:size + 1]
  k = np.arange(1, size + 1)
  reached = 2 * k < bins
  taken = jnp.where(reached, jnp.sinc(jnp.asarray(k * 1.0) / width), 1.0)
  # Of a bin itself, and of cells within it.
  factors = jnp.where(reached, np.sinc(k / _FINE) / jnp.square(taken), 0.0)
  middles = jnp.asarray(np.exp(-1j * np.pi * k / _FINE))
  return (waves * middles * factors.astype(waves.dtype),
          jnp.where(reached, width / jnp.square(taken), 0.0))


def _chosen(found: Array, noise: Array, parameters: Parameters,
            choices: np.ndarray) -> Array:
  """Bins [] for the frequencies that stand out, twice as many as they need."""
  variances = noise + 1 / parameters.num_records
  gain = jnp.cumsum(jnp.square(jnp.abs(found))
                    - parameters.penalty * variances)
  needed = jnp.where(jnp.max(gain) > 0, jnp.argmax(gain) + 1, 0)
  place = jnp.searchsorted(jnp.asarray(choices), 2 * (2 * needed + 1))
  return jnp.asarray(choices)[jnp.minimum(place, choices.size - 1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoStages(_Staged):
  """A histogram that tells how many bins the next should have.

  Guarantee: epsilon-DP under REPLACE_ONE, by adaptive composition: the number
  of bins is of what was released. Numbers of bins are divisors of 3465, so that
  counts of that many bins are all that is needed.
  """
  share: float = 0.25

  @property
  def num_bins(self) -> int:
    """3465, of which all histograms are sums."""
    return _FINE

  @property
  def stage_bins(self) -> tuple[int, int]:
    """Of the first histogram, and the most that the second may have."""
    return tuple(next(m for m in _DIVISORS if m >= min(
        self._bins(share), _DIVISORS[-1])) for share in (self.share, 1.0))

  @property
  def draw(self) -> mechanism.Draw:
    """The law of coefficients [K]."""
    return _draw_two_stages(*self.stage_bins)
