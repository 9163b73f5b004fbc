"""A density from noisy counts of bins, and bands for all of its curve at once.

The curve is 1 and functions of a basis, whose coefficients are linear in the
counts. Bands are for the sum of the first K, unweighted, up to the last that is
kept. K is chosen by the same noise, so widths hold for every K at once: of
R + 1 draws of noise, one of them real, the largest standardised error over all
points and all K is exchangeable (see `bands`). What lies beyond K functions is
not covered: no band that adapts to an unknown smoothness could (Low 1997).
"""

import math
from typing import NamedTuple

import numpy as np

from dpjax.release import bands
from dpjax.release import noise
from dpjax.stats.density import bases
from dpjax.stats.density import histospline
from dpjax.stats.density import shrinkage
from dpjax.stats.ecdf import hierarchy

POINTS = 256
"""Intervals of a curve, of which it says the mean density."""


class Functions:
  """The functions of a basis on M bins, and their sums as curves.

  Attributes:
    found: the basis.
    shapes: [K, POINTS] means of each function over the intervals of the curve.
  """

  def __init__(self, kind: str, num_bins: int):
    self.found = bases.basis(kind, num_bins)
    if kind == 'spline':
      self.shapes = self.found.analysis.T @ histospline.refined(num_bins,
                                                                POINTS)
    else:
      k = np.arange(1, len(self.found.gains) + 1)
      turns = np.multiply.outer(k, np.arange(POINTS) + .5) / POINTS
      self.shapes = 2 * np.exp(2j * np.pi * turns) * np.sinc(
          k / POINTS)[:, np.newaxis]

  def partial(self, counts: np.ndarray) -> np.ndarray:
    """Sums [K, POINTS] of the first 1, ..., K functions, of counts [M]."""
    return np.cumsum(self.terms(counts @ self.found.analysis), 0)

  def terms(self, coefficients: np.ndarray) -> np.ndarray:
    """Each function [K, POINTS] times its coefficient [K]."""
    return (coefficients[:, np.newaxis] * self.shapes).real


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
    functions: of its bins.
    weights: [K] in [0, 1], that never rise.
    kept: how many functions have any weight, at least 1.
    value: [POINTS] the density, of mean 1.
  """

  def __init__(self, released: Counted, kind: str):
    self.counted = released
    self.functions = Functions(kind, len(released.bins))
    number, (analysis, gains) = released.number, self.functions.found
    found = released.bins @ analysis / number
    self.weights = shrinkage.factors(
        found, released.variance * gains / number**2 + 1 / number)
    self.kept = max(1, int(np.sum(self.weights > 0)))
    curve = 1 + self.functions.terms(self.weights * found).sum(0)
    self.value = hierarchy.nonnegative(
        [curve], (POINTS,), (1.0,), np.ones(POINTS), float(POINTS))

  def masses(self) -> np.ndarray:
    """[M] of bins, by the curve."""
    ends = np.append(0.0, np.cumsum(self.value)) / POINTS
    size = len(self.counted.bins)
    found = np.diff(np.interp(np.arange(size + 1) / size,
                              np.arange(POINTS + 1) / POINTS, ends))
    return found / found.sum()

  def band(self, miss: float,
           masses: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Ends [POINTS] of what the first functions sum to, all at once.

    Args:
      miss: probability that any is missed.
      masses: None for the file, else of the population.
    """
    width, far = self._widths(miss, masses)
    number = self.counted.number
    least, most = max(1.0, number - far), number + far
    middle = self.functions.partial(self.counted.bins)[self.kept - 1]
    low, high = middle - width[self.kept - 1], middle + width[self.kept - 1]
    low = 1 + low / np.where(low > 0, most, least)
    high = 1 + high / np.where(high > 0, least, most)
    # The curve that is released is in its band, if it had to leave it or not.
    return (np.minimum(np.maximum(low, 0), self.value),
            np.maximum(high, self.value))

  def _widths(self, miss: float, masses: np.ndarray | None
              ) -> tuple[np.ndarray, float]:
    """Of sums of the first k [K, POINTS], and of the number."""
    generator = np.random.default_rng(bands.SEED)

    def draw(**how):
      bins, far = self.counted.errors(generator, masses, **how)
      return np.append(self.functions.partial(bins), far)

    deviations = np.sqrt(np.mean([draw(normal=True)**2 for _ in range(200)],
                                 0))
    scales = np.where(deviations > 0, deviations, math.inf)
    runs = bands.num_runs(miss)
    largest = np.sort([np.max(np.abs(draw()) / scales) for _ in range(runs)])
    found = deviations * largest[math.ceil((1 - miss) * (runs + 1) - 1e-9) - 1]
    return found[:-1].reshape(-1, POINTS), found[-1]
