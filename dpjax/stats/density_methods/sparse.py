"""Releases a few privately chosen Fourier coefficients, for spiky spectra.

In each round the exponential mechanism chooses the frequency with the worst
fit, which is then measured, as in MWEM or AIM for one attribute. It is far
better than a cut-off if the density is a single high frequency, and worse if
the coefficients decay. Sources: Hardt et al. 2012; McKenna et al. 2022 (item
DEN-B12).
"""

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
from dpjax.privacy import selection
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import noisy_counts
from dpjax.typing import Array, PRNGKey

# Each record is rounded to the middle of one of this many bins.
GRID = 2**14
# An exponential mechanism of rate 1: its scores are log-weights.
_IN_LOG_WEIGHTS = selection.ExponentialMechanism(
    sensitivity=1.0, epsilon=2.0, adjacency=Adjacency.REPLACE_ONE)


class SparseParameters(NamedTuple):
  """Public numbers that the sampler takes.

  Attributes:
    rate: log-weight per unit of a frequency's score.
    stddev: standard deviation of the noise of each part of a measured sum.
    num_records: n.
  """
  rate: ArrayLike
  stddev: ArrayLike
  num_records: ArrayLike


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseFourier(mechanism.DensityMechanism):
  """T rounds that choose and measure a frequency; other coefficients are 0.

  Guarantee: rho-zCDP under REPLACE_ONE, n public.

  Proof:
  1. A record adds one point of the unit circle to each sum S_k. So S_k changes
     by at most 2, and so do all scores |S_k - n current_k| given earlier
     rounds.
  2. An exponential mechanism of epsilon has bounded range and costs at most
     epsilon^2 / 8 of zCDP, so a part r of the budget allows epsilon = sqrt(8
     r).
  3. The measured sum has two parts and changes by at most 2 in l2; its noise
     has standard deviation 2 / sqrt(2 r).
  4. Rounds compose by addition.

  Attributes:
    num_rounds: T.
    num_frequencies: K; candidates are 1..K.
    selection_share: fraction of a round's budget for the choice; the rest is
      for the measurement.
  """
  num_rounds: int
  num_frequencies: int = 64
  selection_share: float = 0.6

  kind = 'fourier'

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_at_least('num_rounds', self.num_rounds, 1)
    errors.check_at_least('num_frequencies', self.num_frequencies, 1)
    if self.num_frequencies > GRID // 4:
      raise ValueError(f'num_frequencies must be at most {GRID // 4}, got '
                       f'{self.num_frequencies}')
    errors.check_open_unit('selection_share', self.selection_share)
    if self.rho is None or self.adjacency is not Adjacency.REPLACE_ONE:
      raise ValueError('SparseFourier needs a budget rho under replace_one, '
                       f'got epsilon={self.epsilon}, rho={self.rho}, '
                       f'{self.adjacency.value}')

  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Returns sums [2 K] of cos 2 pi k x, then -sin 2 pi k x, on a fine grid.
    """
    return wave_sums(mechanism.bin_counts(unit, GRID), self.num_frequencies)

  @property
  def _rho(self) -> float:
    """The budget, which is never None here."""
    assert self.rho is not None  # Checked when the mechanism was built.
    return self.rho

  @property
  def selection(self) -> selection.ExponentialMechanism:
    """The exponential mechanism that chooses the frequency of a round."""
    spent = self._rho * self.selection_share / self.num_rounds
    return selection.ExponentialMechanism(
        sensitivity=2.0, epsilon=math.sqrt(8 * spent),
        adjacency=self.adjacency)

  @property
  def stddev(self) -> float:
    """Standard deviation of the noise of each part of a measured sum."""
    spent = self._rho * (1 - self.selection_share) / self.num_rounds
    return 2 / math.sqrt(2 * spent)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy event of all rounds, for the 'rdp' accountant."""
    return accounting.repeated_event(accounting.composed_event([
        self.selection.zcdp_event,
        accounting.gaussian_event(noise_multiplier=self.stddev)]),
                                     self.num_rounds)

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, statistic, parameters) -> coefficients."""
    return _sampler(self.num_rounds)

  @property
  def parameters(self) -> SparseParameters:
    """Float64 NumPy arrays that `draw` takes as parameters."""
    return SparseParameters(*(np.array(value, np.float64) for value in (
        self.selection.rate, self.stddev, self.num_records)))


def wave_sums(counts: np.ndarray, num_frequencies: int) -> np.ndarray:
  """Returns the statistic [..., 2 K] of counts [..., G] of equal bins."""
  size = counts.shape[-1]
  # Records lie at middles of bins, half a bin further than the FFT assumes.
  phases = np.exp(-1j * np.pi * np.arange(1, num_frequencies + 1) / size)
  sums = np.fft.rfft(counts)[..., 1:num_frequencies + 1] * phases
  return np.concatenate([sums.real, sums.imag], -1)


def chosen(key: PRNGKey, scores: Array, rate: ArrayLike) -> Array:
  """Returns the choice of the exponential mechanism; the rate may be traced.

  Args:
    key: used for nothing else.
    scores: [m] float64; scores of -infinity are never chosen.
    rate: see `selection.ExponentialMechanism.rate`.
  """
  weights = (scores - jnp.max(scores)) * rate
  return _IN_LOG_WEIGHTS.release(key, weights.astype(jnp.float32))


@functools.cache
def _sampler(num_rounds: int) -> mechanism.Draw:
  """Returns the sampler of `SparseFourier`."""
  def draw(key: PRNGKey, statistic: Array, parameters: SparseParameters
           ) -> Array:
    sums = statistic.reshape(2, -1)  # Row 0: cosines; row 1: minus the sines.

    def one_round(state: tuple[Array, Array], key: PRNGKey
                  ) -> tuple[tuple[Array, Array], Array]:
      current, times = state
      choose, measure = jax.random.split(key)
      scores = jnp.sqrt(jnp.sum((sums - current)**2, 0))
      place = chosen(choose, scores, parameters.rate)
      noisy = noisy_counts.noisy(measure, sums[:, place], parameters.stddev,
                                 'gaussian')
      # Repeated measurements of a frequency are averaged.
      times = times.at[place].add(1)
      step = (noisy - current[:, place]) / times[place]
      return (current.at[:, place].add(step), times), place
    start = (jnp.zeros_like(sums), jnp.zeros_like(sums[0]))
    (current, _), _ = jax.lax.scan(one_round, start,
                                   jax.random.split(key, num_rounds))
    return jax.lax.complex(current[0], current[1]) / (
        jnp.asarray(parameters.num_records).astype(jnp.complex128))
  return draw
