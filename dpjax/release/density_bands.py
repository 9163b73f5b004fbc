"""A density from noisy counts of bins, and bands for all of its curve at once.

The curve is 1 and functions of a basis, whose coefficients are linear in the
counts. Bands are for the sum of the first K, unweighted, up to the last of any
weight, or a tenth further. K is chosen by the same noise, so widths hold for
every K at once: of R + 1 draws of noise, one of them real, the largest
standardised error over all points and all K is exchangeable (see `bands`). What
lies beyond K functions is not covered: no band that adapts to an unknown
smoothness could (Low 1997).
"""

from collections.abc import Iterator
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

_SCALING = 200
_AT_ONCE = 2**20


class Functions:
  """The functions of a basis on M bins, and their sums as curves.

  Attributes:
    found: the basis.
    shapes: [K, POINTS] means of each function over the intervals of the curve.
    ends: [L] numbers of functions that are summed: all small ones, then each a
      tenth more than the last, and K.
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

    size = len(self.found.gains)
    steps = np.rint(1.1**np.arange(math.log(size, 1.1) + 1)).astype(int)
    self.ends = np.unique(np.append(steps[steps < size], size))

  def partial(self, counts: np.ndarray) -> np.ndarray:
    """Sums [..., L, POINTS] of the first of `ends`, of counts [..., M]."""
    found = counts @ self.found.analysis
    parts = zip([0, *self.ends[:-1]], self.ends, strict=True)
    return np.cumsum(np.stack([
        (found[..., start:end] @ self.shapes[start:end]).real
        for start, end in parts], -2), -2)


class Counted(NamedTuple):
  """What was released, in records.

  Attributes:
    bins: [M] noisy.
    number: n, or the best guess of it; 1 or more.
    guess: the same before it was made 1 or more.
    trust: in a noisy n, and the rest in the sum of bins; 0 if n is known.
    unit: of the noise of bins.
    noise: of bins.
    noise_of_number: of a noisy n; None if n is known.
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
    """Of the noise of a bin."""
    return (self.unit * self.noise.deviation)**2

  def errors(self, runs: int, generator: np.random.Generator,
             masses: np.ndarray | None, *, normal: bool = False
             ) -> tuple[np.ndarray, np.ndarray]:
    """Errors [runs, M] of bins, and [runs, 1] of the number, drawn anew.

    Args:
      runs: how many.
      generator: of what is public.
      masses: [M] of the law that records are drawn from, or None for the file.
      normal: as if noise were, so that none is 0 by chance.
    """
    def draw(law, size):
      if normal:
        return law.deviation * generator.standard_normal((runs, size))
      return law.simulated(generator, (runs, size))

    bins = self.unit * draw(self.noise, len(self.bins))
    far = np.zeros((runs, 1))
    if self.noise_of_number is not None:
      far = (1 - self.trust) * bins.sum(1, keepdims=True) + self.trust * draw(
          self.noise_of_number, 1)
    if masses is not None:
      size = max(1, round(self.number))
      bins = bins + generator.multinomial(size, masses, runs) - size * masses
    return bins, far


def counted(noisy: list[int], *, unit: float, law: noise.Noise,
            num_records: int | None, noisy_records: int | None,
            noise_of_number: noise.Noise | None) -> Counted:
  """A release as it is used; n is known, or noisy."""
  bins = unit * np.array(noisy, np.float64)
  if num_records is not None:
    # Of no record there is no density: noise is then as if of one.
    return Counted(bins, max(1, num_records), num_records, 0.0, unit, law, None)
  spread = len(bins) * (unit * law.deviation)**2
  trust = spread / max(spread + noise_of_number.deviation**2, 1e-300)
  guess = float(trust * noisy_records + (1 - trust) * bins.sum())
  return Counted(bins, max(1.0, guess), guess, trust, unit, law,
                 noise_of_number)


class Fit:
  """The curve of a release.

  Attributes:
    counted: the release.
    functions: of its bins.
    weights: [K] in [0, 1], that never rise.
    place: in `functions.ends`, of the first that is not below the number of
      functions with any weight.
    kept: that one.
    value: [POINTS] the density, of mean 1.
  """

  def __init__(self, released: Counted, kind: str):
    self.counted = released
    self.functions = Functions(kind, len(released.bins))
    number, (analysis, gains) = released.number, self.functions.found
    found = released.bins @ analysis / number
    self.weights = shrinkage.factors(
        found, released.variance * gains / number**2 + 1 / number)
    self.place = int(np.searchsorted(self.functions.ends,
                                     np.sum(self.weights > 0)))
    self.kept = int(self.functions.ends[self.place])
    curve = 1 + (self.weights * found @ self.functions.shapes).real
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
    if masses is not None and self.counted.guess - far < 1:
      # There may be no record: all mass may be anywhere, or nowhere here.
      return np.zeros(POINTS), np.full(POINTS, float(POINTS))
    least, most = max(1.0, number - far), number + far
    middle = self.functions.partial(self.counted.bins)[self.place]
    low, high = middle - width[self.place], middle + width[self.place]
    low = 1 + low / np.where(low > 0, most, least)
    high = 1 + high / np.where(high > 0, least, most)
    # The curve that is released is in its band, if it had to leave it or not.
    return (np.minimum(np.maximum(low, 0), self.value),
            np.maximum(high, self.value))

  def _widths(self, miss: float, masses: np.ndarray | None
              ) -> tuple[np.ndarray, float]:
    """Of sums of functions [L, POINTS], and of the number."""
    deviations = np.sqrt(sum(
        np.sum(part**2, 0) for part in self._errors(_SCALING, masses,
                                                    normal=True)) / _SCALING)
    scales = np.where(deviations > 0, deviations, math.inf)
    runs = bands.num_runs(miss)
    largest = np.sort(np.concatenate([
        np.max(np.abs(part) / scales, 1)
        for part in self._errors(runs, masses)]))
    found = deviations * largest[math.ceil((1 - miss) * (runs + 1) - 1e-9) - 1]
    return found[:-1].reshape(-1, POINTS), found[-1]

  def _errors(self, runs: int, masses: np.ndarray | None, *,
              normal: bool = False) -> Iterator[np.ndarray]:
    """Errors [., L POINTS + 1] of all sums and of the number, in parts."""
    generator = np.random.default_rng([bands.SEED, normal])
    most = max(1, _AT_ONCE // (len(self.functions.ends) * POINTS))
    for start in range(0, runs, most):
      bins, far = self.counted.errors(min(most, runs - start), generator,
                                      masses, normal=normal)
      yield np.append(self.functions.partial(bins).reshape(len(far), -1), far,
                      1)
