"""Two histograms instead of one: for smooth densities and large n epsilon.

One fine histogram leaves an adaptive estimator a factor of m / (2 K + 1) of
noise on a density of few frequencies K. `TwoResolutions` releases two nested
ones, `TwoStages` lets the first choose the bins of the second, which has the
optimal rate for all beta up to constants. Budgets add up. Spec DEN-B6 (A2',
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
from dpjax.stats.density import shrinkage
from dpjax.typing import Array, PRNGKey

# Odd, and with many odd divisors.
_FINE = 3465
_DIVISORS = tuple(m for m in range(5, _FINE) if _FINE % m == 0)
# Beyond this share of its bins a coarse histogram takes too much off.
_REACH = 0.34
_NESTED = 5


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


def _combined(first: Array, first_variances: Array, second: Array,
              second_variances: Array) -> tuple[Array, Array]:
  """The mean of two estimates by their precisions; infinite variances count 0.
  """
  weights = 1 / first_variances, 1 / second_variances
  whole = weights[0] + weights[1]
  return (weights[0] * first + weights[1] * second) / whole, 1 / whole


def _shrunk(found: Array, noise: Array, parameters: Parameters) -> Array:
  return found * shrinkage.factors(found, noise + 1 / parameters.num_records,
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
    return Parameters(
        np.array(scales), np.array([
            draws.discrete_laplace_variance(scale) for scale in scales]),
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


def _gain(parameters: Parameters, stage: int) -> Array:
  """Variance of the noise of a share."""
  return parameters.variances[stage] / jnp.square(parameters.num_records)


@functools.cache
def _draw_two_resolutions(num_bins: int) -> mechanism.Draw:
  coarse_bins = num_bins // _NESTED
  fine = bases.basis('fourier', num_bins)
  reach = max(1, int(_REACH * coarse_bins))
  coarse = bases.basis('fourier', coarse_bins, reach)
  gains = np.full(fine.gains.shape, np.inf)
  gains[:reach] = coarse.gains

  def draw(key: PRNGKey, counts: Array, parameters: Parameters) -> Array:
    keys = jax.random.split(key)
    sums = jnp.sum(counts.reshape(coarse_bins, _NESTED), 1)
    first = _noisy(keys[0], counts, parameters, 0) @ jnp.asarray(fine.analysis)
    second = jnp.zeros_like(first).at[:reach].set(
        _noisy(keys[1], sums, parameters, 1) @ jnp.asarray(coarse.analysis))
    found, noise = _combined(
        first, jnp.asarray(fine.gains) * _gain(parameters, 0),
        second, jnp.asarray(gains) * _gain(parameters, 1))
    return _shrunk(found / parameters.num_records, noise, parameters)
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
  padding = size - fine.gains.size
  gains = np.pad(fine.gains, (0, padding), constant_values=np.inf)
  k = np.arange(1, size + 1)

  def draw(key: PRNGKey, counts: Array, parameters: Parameters) -> Array:
    keys = jax.random.split(key)
    first = _noisy(keys[0], jnp.sum(counts.reshape(first_bins, -1), 1),
                   parameters, 0) @ jnp.asarray(fine.analysis)
    noise = jnp.asarray(gains) * _gain(parameters, 0)
    bins = _chosen(first / parameters.num_records, noise[:fine.gains.size],
                   parameters, choices)
    # Bins are as many as noise chose, in arrays of the largest number.
    sums = jax.ops.segment_sum(counts, jnp.arange(_FINE) * bins // _FINE, most)
    noisy = jnp.where(jnp.arange(most) < bins,
                      _noisy(keys[1], sums, parameters, 1), 0.0)
    width = bins.astype(counts.dtype)
    turns = jnp.multiply.outer(jnp.arange(most) + 0.5, jnp.asarray(k)) / width
    taken = jnp.sinc(k / width)
    reached = 2 * k < bins
    second = jnp.where(reached, noisy @ jnp.exp(-2j * jnp.pi * turns)
                       / jnp.where(reached, taken, 1.0), 0.0)
    found, left = _combined(
        jnp.pad(first, (0, padding)), noise, second, jnp.where(
            reached, width / jnp.square(taken) * _gain(parameters, 1),
            jnp.inf))
    alive = jnp.isfinite(left)
    found = jnp.where(alive, found, 0.0) / parameters.num_records
    return _shrunk(found, jnp.where(alive, left, 1.0), parameters)
  return draw


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
  def draw(self) -> mechanism.Draw:
    """The law of coefficients [K]."""
    first, most = (next(m for m in _DIVISORS if m >= min(
        self._bins(share), _DIVISORS[-1])) for share in (self.share, 1.0))
    return _draw_two_stages(first, most)
