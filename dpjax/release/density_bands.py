"""A density from noisy counts of bins, and bands for all of its curve at once.

The curve is 1 and waves, whose coefficients are linear in the counts. Bands are
for the sum S_K of its first K waves, unweighted, K the last one that was kept.
K is chosen by the same noise, so widths hold for every K at once: of R + 1
draws of noise, one of them real, the largest standardised error over points
and numbers of waves is exchangeable (see `bands`). What lies beyond K waves is
not covered: no band that adapts to smoothness could (Low 1997).
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import fft
from scipy import optimize

from dpjax.release import bands
from dpjax.release import noise
from dpjax.stats.ecdf import hierarchy

POINTS = 256
"""Intervals of a curve, of which it says the mean density."""

_SQRT2 = math.sqrt(2)


def num_bins(num_records: int, variance: float) -> int:
  """M, by n and the variance of the noise of a bin (spec DEN-B6)."""
  near = math.sqrt(num_records * math.sqrt(8 / max(variance, 1e-12)))
  size = 1.5 * min(near, 3 * num_records**(1 / 3))
  return 2 * (math.ceil(max(5, size)) // 2) + 1


class Waves:
  """Frequencies 1, 2, ... of a circle or an interval, on M bins.

  Attributes:
    factors: [K] of what bins take off each.
    shapes: [K, POINTS] each wave, its mean on every interval of the curve.
  """

  def __init__(self, kind: str, num_bins: int):
    self.kind, self.num_bins = kind, num_bins
    circle = kind == 'circle'
    k = np.arange(1, (num_bins - 1) // 2 + 1 if circle else num_bins)
    period = 1 if circle else 2
    self.factors = np.sinc(k / (period * num_bins))
    middle = (np.arange(POINTS) + .5) / POINTS
    turns = np.multiply.outer(k, middle) * (2 * np.pi / period)
    self.shapes = (2 * np.exp(1j * turns) if circle
                   else _SQRT2 * np.cos(turns)) * np.sinc(
                       k / (period * POINTS))[:, np.newaxis]

  def sums(self, counts: np.ndarray) -> np.ndarray:
    """Sums [..., K] over records of conjugate waves, by counts [..., M]."""
    if self.kind != 'circle':
      found = fft.dct(counts, axis=-1)[..., 1:] / _SQRT2
    else:
      size = len(self.factors)
      turn = np.exp(-1j * np.pi * np.arange(1, size + 1) / self.num_bins)
      found = fft.rfft(counts, axis=-1)[..., 1:size + 1] * turn
    return found / self.factors

  def partial(self, sums: np.ndarray) -> np.ndarray:
    """Sums [K, POINTS] of the first waves, with these coefficients [K]."""
    return np.cumsum((sums[:, np.newaxis] * self.shapes).real, 0)


class Counted(NamedTuple):
  """What was released, in records.

  Attributes:
    bins: [M] noisy.
    number: n, or the best guess of it.
    trust: in a noisy n, and the rest in the sum of bins; 0 if n is known.
    unit: of the noise of bins.
    noise: of bins.
    noise_of_number: of a noisy n; None if n is known.
  """
  bins: np.ndarray
  number: float
  trust: float
  unit: float
  noise: noise.Noise
  noise_of_number: noise.Noise | None

  @property
  def variance(self) -> float:
    """Of the noise of a bin."""
    return (self.unit * self.noise.deviation)**2

  def errors(self, generator: np.random.Generator, masses: np.ndarray | None,
             *, normal: bool = False) -> tuple[np.ndarray, float]:
    """Errors [M] of bins, and of the number, drawn anew.

    Args:
      generator: of what is public.
      masses: [M] of the law that records are drawn from, or None for the file.
      normal: as if noise were, so that none is 0 by chance.
    """
    if normal:
      bins = self.noise.deviation * generator.standard_normal(len(self.bins))
    else:
      bins = self.noise.simulated(generator, self.bins.shape)
    bins, far = self.unit * bins, 0.0
    if self.noise_of_number is not None:
      far = (1 - self.trust) * bins.sum() + self.trust * float(
          self.noise_of_number.simulated(generator, ()))
    if masses is not None:
      size = max(1, round(self.number))
      bins = bins + generator.multinomial(size, masses) - size * masses
    return bins, far


def counted(noisy: list[int], *, unit: float, law: noise.Noise,
            num_records: int | None, noisy_records: int | None,
            noise_of_number: noise.Noise | None) -> Counted:
  """A release as it is used; n is known, or noisy."""
  bins = unit * np.array(noisy, np.float64)
  if num_records is not None:
    return Counted(bins, num_records, 0.0, unit, law, None)
  spread = len(bins) * (unit * law.deviation)**2
  trust = spread / max(spread + noise_of_number.deviation**2, 1e-300)
  return Counted(bins, max(1.0, trust * noisy_records + (
      1 - trust) * bins.sum()), trust, unit, law, noise_of_number)


class Fit:
  """The curve of a release.

  Attributes:
    counted: the release.
    waves: of its bins.
    sums: [K] coefficients of waves, times the number of records.
    weights: [K] in [0, 1], that never rise.
    kept: how many waves have any weight, at least 1.
    value: [POINTS] the density, of mean 1.
  """

  def __init__(self, released: Counted, kind: str):
    self.counted = released
    self.waves = Waves(kind, len(released.bins))
    self.sums = self.waves.sums(released.bins)
    squares = np.abs(self.sums / released.number)**2
    spread = 1 / released.number + (
        len(released.bins) * released.variance
        / (released.number * self.waves.factors)**2)
    self.weights = monotone_weights(squares, spread)
    self.kept = max(1, int(np.sum(self.weights > 0)))
    curve = 1 + self.waves.partial(
        self.weights * self.sums / released.number)[-1]
    self.value = hierarchy.nonnegative(
        [curve], (POINTS,), (1.0,), np.ones(POINTS), float(POINTS))

  def masses(self) -> np.ndarray:
    """[M] of bins, by the curve."""
    ends = np.append(0.0, np.cumsum(self.value)) / POINTS
    size = self.waves.num_bins
    found = np.diff(np.interp(np.arange(size + 1) / size,
                              np.arange(POINTS + 1) / POINTS, ends))
    return found / found.sum()

  def band(self, miss: float,
           masses: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Ends [POINTS] of what the first waves sum to, all at once.

    Args:
      miss: probability that any is missed.
      masses: None for the file, else of the population.
    """
    width, far = self._widths(miss, masses)
    number = self.counted.number
    least, most = max(1.0, number - far), number + far
    middle = self.waves.partial(self.sums)[self.kept - 1]
    low, high = middle - width[self.kept - 1], middle + width[self.kept - 1]
    low = 1 + low / np.where(low > 0, most, least)
    high = 1 + high / np.where(high > 0, least, most)
    # The curve that is released is in its band, if it had to leave it or not.
    return (np.minimum(np.maximum(low, 0), self.value),
            np.maximum(high, self.value))

  def _widths(self, miss: float, masses: np.ndarray | None
              ) -> tuple[np.ndarray, float]:
    """Of sums of the first k waves [K, POINTS], and of the number."""
    generator = np.random.default_rng(bands.SEED)

    def draw(**how):
      bins, far = self.counted.errors(generator, masses, **how)
      return np.append(self.waves.partial(self.waves.sums(bins)), far)

    deviations = np.sqrt(np.mean([draw(normal=True)**2 for _ in range(200)],
                                 0))
    scales = np.where(deviations > 0, deviations, math.inf)
    runs = bands.num_runs(miss)
    largest = np.sort([np.max(np.abs(draw()) / scales) for _ in range(runs)])
    found = deviations * largest[math.ceil((1 - miss) * (runs + 1) - 1e-9) - 1]
    return found[:-1].reshape(-1, POINTS), found[-1]


def monotone_weights(squares: np.ndarray, variances: np.ndarray) -> np.ndarray:
  """Weights [K] of coefficients, in [0, 1], that never rise (spec DEN-B5).

  1 - 2 v / |y|^2 by least squares with weights |y|^2: estimated gains, those of
  noise charged twice.

  Args:
    squares: [K] |y|^2.
    variances: [K] v, of noise and sampling.
  """
  weights = np.maximum(squares, 1e-300)
  found = optimize.isotonic_regression(
      1 - 2 * variances / weights, weights=weights, increasing=False).x
  return np.clip(found, 0, 1)
