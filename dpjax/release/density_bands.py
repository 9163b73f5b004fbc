"""A density from noisy counts of bins, with simultaneous bands.

The curve is 1 plus functions of a basis, whose coefficients are linear in the
counts. Bands are for the unweighted sum of the first K functions; K is the last
with a positive weight, or up to a tenth more. K depends on the same noise, so
the widths hold for every K at once: of R + 1 draws of noise, one of them real,
the largest standardised errors over all points and all K are exchangeable (see
`bands`). Components beyond K are not covered: no band that adapts to an unknown
smoothness could cover them (Low 1997).
"""

from collections.abc import Iterator
import math
from typing import NamedTuple

import numpy as np

from dpjax.release import bands
from dpjax.release import noise
from dpjax.stats.density_methods import bases
from dpjax.stats.density_methods import histospline
from dpjax.stats.density_methods import shrinkage
from dpjax.stats.ecdf_methods import hierarchy

POINTS = 256
"""Number of intervals of a curve, which states the mean density of each."""

# Simulations for the standardisation of errors; numbers simulated at a time.
_SCALING = 200
_AT_ONCE = 2**20


class Functions:
  """The functions of a basis on M bins, and partial sums of them as curves.

  Attributes:
    basis: the basis.
    shapes: [K, POINTS] means of each function over the intervals of the curve.
    ends: [L] numbers of summed functions: all small ones, then each a tenth
      more than the last, and K.
  """

  def __init__(self, kind: str, num_bins: int):
    self.basis = bases.basis(kind, num_bins)
    if kind == 'spline':
      self.shapes = self.basis.analysis.T @ histospline.refined(num_bins,
                                                                POINTS)
    else:
      k = np.arange(1, len(self.basis.gains) + 1)
      turns = np.multiply.outer(k, np.arange(POINTS) + .5) / POINTS
      self.shapes = 2 * np.exp(2j * np.pi * turns) * np.sinc(
          k / POINTS)[:, np.newaxis]

    size = len(self.basis.gains)
    steps = np.rint(1.1**np.arange(math.log(size, 1.1) + 1)).astype(int)
    self.ends = np.unique(np.append(steps[steps < size], size))

  def partial(self, counts: np.ndarray) -> np.ndarray:
    """Returns partial sums [..., L, POINTS] for counts [..., M]."""
    coefficients = counts @ self.basis.analysis
    parts = zip([0, *self.ends[:-1]], self.ends, strict=True)
    return np.cumsum(np.stack([
        (coefficients[..., start:end] @ self.shapes[start:end]).real
        for start, end in parts], -2), -2)


class Counted(NamedTuple):
  """The released counts, in records.

  Attributes:
    bins: [M] noisy counts.
    number: n, or its estimate, at least 1.
    guess: n, or its estimate, before the maximum with 1.
    trust: weight of the noisy n in the estimate, the rest being that of the sum
      of bins; 0 if n is public.
    unit: unit of the noise of bins, in records.
    noise: noise of bins, in units.
    noise_of_number: noise of n; None if n is public.
  """
  bins: np.ndarray
  number: float
  guess: float
  trust: float
  unit: float
  noise: noise.Noise
  noise_of_number: noise.Noise | None

  @property
  def variance(self) -> float:
    """Returns the variance of the noise of a bin, in squared records."""
    return (self.unit * self.noise.deviation)**2

  def errors(self, runs: int, generator: np.random.Generator,
             masses: np.ndarray | None, *, normal: bool = False
             ) -> tuple[np.ndarray, np.ndarray]:
    """Returns simulated errors [runs, M] of bins, and [runs, 1] of n.

    Args:
      runs: number of simulations.
      generator: source of randomness; all inputs are public.
      masses: [M] probabilities of bins to include sampling errors, or None.
      normal: whether to use normal noise, which is never 0 by chance.
    """
    def draw(distribution: noise.Noise, size: int) -> np.ndarray:
      if normal:
        return distribution.deviation * generator.standard_normal((runs, size))
      return distribution.simulated(generator, (runs, size))

    bins = self.unit * draw(self.noise, len(self.bins))
    size_errors = np.zeros((runs, 1))
    if self.noise_of_number is not None:
      size_errors = ((1 - self.trust) * bins.sum(1, keepdims=True)
                     + self.trust * draw(self.noise_of_number, 1))
    if masses is not None:
      size = max(1, round(self.number))
      bins = bins + generator.multinomial(size, masses, runs) - size * masses
    return bins, size_errors


def counted(noisy: list[int], *, unit: float, bin_noise: noise.Noise,
            num_records: int | None, noisy_records: int | None,
            noise_of_number: noise.Noise | None) -> Counted:
  """Returns the released counts; n is public, or estimated from noisy ones."""
  bins = unit * np.array(noisy, np.float64)
  if num_records is not None:
    # Without records there is no density: all numbers are as for n = 1.
    return Counted(bins, max(1, num_records), num_records, 0.0, unit, bin_noise,
                   None)
  if noise_of_number is None or noisy_records is None:
    raise ValueError('noisy_records must be given if n is private')
  sum_variance = len(bins) * (unit * bin_noise.deviation)**2
  trust = sum_variance / max(
      sum_variance + noise_of_number.deviation**2, 1e-300)
  guess = float(trust * noisy_records + (1 - trust) * bins.sum())
  return Counted(bins, max(1.0, guess), guess, trust, unit, bin_noise,
                 noise_of_number)


class Fit:
  """The density curve of a release.

  Attributes:
    counted: the released counts.
    functions: basis functions on the bins.
    weights: [K] weights in [0, 1], nonincreasing.
    place: index in `functions.ends` of the first entry that is at least the
      number of functions with a positive weight.
    kept: that entry.
    value: [POINTS] density with mean 1.
  """

  def __init__(self, released: Counted, kind: str):
    self.counted = released
    self.functions = Functions(kind, len(released.bins))
    number, (analysis, gains) = released.number, self.functions.basis
    coefficients = released.bins @ analysis / number
    self.weights = shrinkage.factors(
        coefficients, released.variance * gains / number**2 + 1 / number)
    self.place = int(np.searchsorted(self.functions.ends,
                                     np.sum(self.weights > 0)))
    self.kept = int(self.functions.ends[self.place])
    curve = 1 + (self.weights * coefficients @ self.functions.shapes).real
    self.value = hierarchy.nonnegative(
        [curve], (POINTS,), (1.0,), np.ones(POINTS), float(POINTS))

  def masses(self) -> np.ndarray:
    """Returns the probabilities [M] of the bins under the curve."""
    cumulative = np.append(0.0, np.cumsum(self.value)) / POINTS
    size = len(self.counted.bins)
    masses = np.diff(np.interp(np.arange(size + 1) / size,
                              np.arange(POINTS + 1) / POINTS, cumulative))
    return masses / masses.sum()

  def band(self, miss: float,
           masses: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns both ends [POINTS] of a simultaneous band for the partial sum.

    Args:
      miss: probability that the band misses anywhere.
      masses: None for the file, else bin probabilities for the population.
    """
    width, size_width = self._widths(miss, masses)
    number = self.counted.number
    if masses is not None and self.counted.guess - size_width < 1:
      # There may be no record, and then any density is possible.
      return np.zeros(POINTS), np.full(POINTS, float(POINTS))
    least, most = max(1.0, number - size_width), number + size_width
    middle = self.functions.partial(self.counted.bins)[self.place]
    low, high = middle - width[self.place], middle + width[self.place]
    # Of all n between `least` and `most` the one that gives the outer end.
    low = 1 + low / np.where(low > 0, most, least)
    high = 1 + high / np.where(high > 0, least, most)
    # Widened, if need be, to hold the released curve.
    return (np.minimum(np.maximum(low, 0), self.value),
            np.maximum(high, self.value))

  def _widths(self, miss: float, masses: np.ndarray | None
              ) -> tuple[np.ndarray, float]:
    """Returns half-widths of partial sums [L, POINTS] and of n."""
    deviations = np.sqrt(sum(
        np.sum(part**2, 0) for part in self._errors(_SCALING, masses,
                                                    normal=True)) / _SCALING)
    scales = np.where(deviations > 0, deviations, math.inf)
    runs = bands.num_runs(miss)
    largest = np.sort(np.concatenate([
        np.max(np.abs(part) / scales, 1)
        for part in self._errors(runs, masses)]))
    # Of runs + 1 exchangeable numbers the real one is among the k smallest with
    # probability k / (runs + 1); 1e-9 is for the rounding of 1 - miss.
    widths = deviations * largest[math.ceil((1 - miss) * (runs + 1) - 1e-9) - 1]
    return widths[:-1].reshape(-1, POINTS), widths[-1]

  def _errors(self, runs: int, masses: np.ndarray | None, *,
              normal: bool = False) -> Iterator[np.ndarray]:
    """Yields errors [., L POINTS + 1] of partial sums and n, in batches."""
    # Scales and errors come from different seeds, so that they are independent.
    generator = np.random.default_rng([bands.SEED, normal])
    most = max(1, _AT_ONCE // (len(self.functions.ends) * POINTS))
    for start in range(0, runs, most):
      bins, size_errors = self.counted.errors(
          min(most, runs - start), generator, masses, normal=normal)
      yield np.append(self.functions.partial(bins).reshape(
          len(size_errors), -1), size_errors, 1)
