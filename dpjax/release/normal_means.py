"""The mean of a normal distribution of known standard deviation sigma.

A noisy histogram of bins of width sigma locates the mean; values are clamped
around its largest bin, and their integer sum gets noise. The split of the
budget, the clamp, and whether a histogram pays at all are chosen for the
shortest interval, from n and public numbers alone. Source: Karwa and Vadhan
(2018; items EXT-KV, EXT-KVCI). Here exact distributions bound all errors.

With Z_i the standardised values and bounds at least w sigma from the mean,
clamping changes the sum by at most sigma sum_i (|Z_i| - w)_+, whose exponential
moments are known. So w is near 3, not at the largest of n values, and the mean
of the unclamped values is normal.

If n is private, a small share of the budget buys a noisy count, used only to
choose the stages. The rest is for two sums that determine n and the sum of y,
where y in [-c, c] is the clamped value minus the centre:
  Pure: c + y and c - y, whose sizes sum to 2 c for every record. For any d the
    noise in sum (y - d) has the variance 4 (c^2 + d^2) / epsilon^2. Half of
    epsilon for n and half for y would give twice as much.
  Gaussian: c and 2 y, of squared norm at most 5 c^2. The noise in sum (y - d)
    has the variance (5/4 c^2 + 5 d^2) / (2 rho). The two sums above give 2 c^2
    + 2 d^2, which is more for d < c / 2; d is mostly below sigma, c above 3
    sigma.
Either way an uncertain n does not widen the interval for the mean.

The interval contains m if sum (y - d), d = m minus the centre, is not too large
for the sum of three parts: sum (x - m), normal with variance n sigma^2; its
noise; and a bound of the effect of clamping and rounding.
"""

from collections.abc import Iterable
import dataclasses
import fractions
import math
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from dpjax.release import combinations
from dpjax.release import costs
from dpjax.release import lattice as lattices
from dpjax.release import noise
from dpjax.release import query as queries
from dpjax.release.combinations import Combination
from dpjax.release.costs import Cost
from dpjax.release.meter import Meter
from dpjax.release.query import Query

Fraction = fractions.Fraction

_SHARES = (Fraction(0), Fraction(1, 40), Fraction(1, 20), Fraction(1, 10),
           Fraction(1, 5), Fraction(2, 5))
_CLAMPS = np.linspace(1.5, 6, 19)
# Share of `miss` for each of: number of records, choice of bin, clamping.
_MISS = 1 / 20
# A chosen bin is rarely farther from the mean than this, in units of sigma.
_FAR = 1.5
_MOST_BINS = 10_000
_POPULATION = ('the mean, between the bounds, of the normal distribution of '
               'deviation sigma that the records are independent draws from; '
               'sampling and noise')


class Stages(NamedTuple):
  """Parameters of the stages of an estimate; public.

  Attributes:
    share: share of the budget for the histogram; 0 without one.
    clamp: largest distance of clamped values from the centre, lattice units.
    noise: distribution of the noise of every sum.
    miss: probability of missing that is left after the choice of a bin.
  """
  share: Fraction
  clamp: int
  noise: noise.Noise
  miss: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormalMean(queries.Direct):
  """A noisy histogram, if it pays, and a noisy sum around its largest bin.

  Attributes:
    query: public parameters, with the bounds of the mean.
    lattice: lattice of the values, far beyond the bounds.
    low: lower bound of the mean, in lattice units.
    high: upper bound of the mean, in lattice units.
    sigma: standard deviation, in lattice units.
  """
  query: Query
  lattice: lattices.Lattice
  low: int
  high: int
  sigma: float

  reads = 'numbers'

  @property
  def num_bins(self) -> int:
    """Returns the number of bins, with one more beyond either bound."""
    return math.ceil((self.high - self.low) / self.sigma) + 2

  @property
  def cost(self) -> Cost:
    """Returns the cost of the release; all stages add up to it."""
    return self.query.cost()

  def facts(self) -> dict[str, object]:
    """Returns public facts: rules for values; stages state their noise."""
    return {'missing': self.query.missing_text,
            'clamping': 'values outside the window are clamped to it',
            'granularity': str(self.lattice.granularity),
            'rounding': 'each value to the nearest multiple of the granularity',
            'noise': 'of each stage, see stages'}

  def measure(self, fields: Iterable[object]) -> list[int]:
    """Returns all values as multiples of the granularity."""
    return [self.lattice.index(value) for value in self.query.numbers(
        fields, *self.query.bounds)]

  def counts(self, values: Iterable[int]) -> list[int]:
    """Returns the counts of the bins; values beyond them are in none."""
    counts = [0] * self.num_bins
    for value in values:
      place = math.floor((value - self.low) / self.sigma) + 1
      if 0 <= place < len(counts):
        counts[place] += 1
    return counts

  def histogram_noise(self, cost: Cost) -> noise.Noise:
    """Returns the noise of bin counts; a record is in at most one bin."""
    changed = 1 + self.query.replacing
    return noise.calibrated(cost, l1_sensitivity=changed,
                            l2_sensitivity_squared=changed)

  def sensitivity(self, clamp: int) -> dict[str, int]:
    """Returns both sensitivities of the sums of values with this clamp."""
    if self.query.knows_size:
      l1, l2_squared = 2, 4
    elif self.query.delta is None:
      # The two sums change by the same size in opposite directions.
      l1, l2_squared = (4, 8) if self.query.replacing else (2, 4)
    else:
      l1, l2_squared = (4, 16) if self.query.replacing else (3, 5)
    return {'l1_sensitivity': l1 * clamp,
            'l2_sensitivity_squared': l2_squared * clamp**2}

  def sums(self, values: Iterable[int], centre: int,
           clamp: int) -> dict[str, int]:
    """Returns the sums to be noised, by name."""
    clamped = [min(max(value - centre, -clamp), clamp) for value in values]
    size, total = clamp * len(clamped), sum(clamped)
    if self.query.knows_size:
      return {'from_centre': total}
    if self.query.delta is None:
      return {'from_lower': size + total, 'from_upper': size - total}
    return {'half_windows': size, 'twice_from_centre': 2 * total}

  def _solution(self, clamp: int) -> np.ndarray:
    """Returns [2, k] coefficients of the sums that give n and the sum of y.

    If n is public, the row of n is 0.
    """
    if self.query.knows_size:
      return np.array([[0.0], [1.0]])
    if self.query.delta is None:
      return np.array([[.5 / clamp, .5 / clamp], [.5, -.5]])
    return np.array([[1 / clamp, 0.0], [0.0, .5]])

  def error(self, stages: Stages, offset: float = 0.0) -> Combination:
    """Returns the noise in the sum of y - offset, see the module docstring."""
    size, total = self._solution(stages.clamp)
    return Combination(noise=stages.noise,
                       coefficients=tuple(total - offset * size))

  def stages(self, number: int, cost: Cost, miss: float) -> Stages:
    """Returns the stages of the shortest interval; a public choice.

    Args:
      number: n, or a number that is rarely larger than n.
      cost: cost of histogram and sums together.
      miss: probability that the interval may miss.
    """
    candidates = []
    for share in _SHARES:
      distance = (self.high - self.low) / 2
      if share:
        distance = _FAR * self.sigma
        if self.num_bins > _MOST_BINS or wrong_bin(
            number, self.num_bins, self.histogram_noise(
                cost.part(share))) > _MISS * miss:
          continue
      for clamp in _CLAMPS:
        radius = math.ceil(distance + clamp * self.sigma) + 1
        sum_noise = noise.calibrated(cost.part(1 - share),
                                     **self.sensitivity(radius))
        stages = Stages(share, radius, sum_noise,
                        miss * (1 - _MISS * bool(share)))
        clamping_error = self.sigma * clamped_sum(clamp, number, _MISS * miss)
        noisy = sum_noise.half_width(miss) * math.hypot(
            *self.error(stages).coefficients)
        candidates.append((clamping_error + noisy, stages))
    return min(candidates, key=lambda pair: pair[0])[1]

  def slack(self, stages: Stages, number: int) -> float:
    """Returns how much clamping and rounding change a sum of values."""
    # Rounding to the lattice moves each value by half a unit at most.
    distance = _FAR * self.sigma if stages.share else (self.high - self.low) / 2
    clamp = (stages.clamp - 1 - distance) / self.sigma
    return number / 2 + self.sigma * clamped_sum(clamp, number,
                                                 _MISS * stages.miss)

  def half_width(self, stages: Stages, number: int) -> float:
    """Returns the population interval's half-width, in lattice units.

    If n is private, it is an estimate: as for a known n and a central mean.
    """
    width = half_width(self.error(stages), self.sigma * math.sqrt(number),
                       (1 - _MISS) * stages.miss)
    return (width + self.slack(stages, number)) / number

  def draw(self, measured: list[int],
           meter: Meter) -> dict[str, object]:
    """Returns the release: number, histogram and sums, one after another."""
    cost, miss = self.cost, self.query.miss
    size, width, stage_facts = self._size(len(measured), meter)
    if not self.query.knows_size:
      cost, miss = cost.part(1 - costs.SIZE_SHARE), (1 - _MISS) * miss
    least = max(1, size - width)
    stages = self.stages(least, cost, miss)
    centre = (self.low + self.high) // 2
    if stages.share:
      bin_noise = self.histogram_noise(cost.part(stages.share))
      changed = 1 + self.query.replacing
      noisy = meter.noisy(self.counts(measured), bin_noise,
                          l1_sensitivity=changed,
                          l2_sensitivity_squared=changed)
      centre = round(self.low + self.sigma * (max(range(
          len(noisy)), key=noisy.__getitem__) - .5))
      stage_facts['histogram'] = {'noisy_counts': noisy, **bin_noise.to_json()}
    sums = self.sums(measured, centre, stages.clamp)
    noisy = meter.noisy(sums.values(), stages.noise,
                        **self.sensitivity(stages.clamp))
    unit = self.lattice.unit
    stage_facts['sum'] = {
        'window': [float((centre + side * stages.clamp) * unit)
                   for side in (-1, 1)],
        'noisy_sums': {name: str(value * unit) for name, value in zip(
            sums, noisy, strict=True)},
        'unit': str(unit), **stages.noise.to_json()}
    number = size if self.query.knows_size else None
    estimates = self._estimates(noisy, centre, number, stages)
    if size - width < 1:  # There may be no record: every mean is possible.
      estimates['population_interval'].update(zip(('lower', 'upper'), (
          float(end * unit) for end in (self.low, self.high))))
    known = {} if number is None else {'num_records': number}
    return {**estimates, 'stages': stage_facts, **known}

  def _size(self, number: int,
            meter: Meter) -> tuple[int, int, dict[str, object]]:
    """Returns n or a noisy n, its half-width, and the facts of a noisy n."""
    if self.query.knows_size:
      return number, 0, {}
    size_noise = noise.calibrated(self.cost.part(costs.SIZE_SHARE),
                                  l1_sensitivity=1, l2_sensitivity_squared=1)
    noisy, = meter.noisy([number], size_noise, l1_sensitivity=1,
                         l2_sensitivity_squared=1)
    return noisy, size_noise.half_width(_MISS * self.query.miss), {
        'number': {'noisy_count': noisy, **size_noise.to_json()}}

  def _estimates(self, sums: list[int], centre: int, number: int | None,
                 stages: Stages) -> dict[str, Any]:
    """Returns the released mean and its two intervals."""
    rows = self._solution(stages.clamp)
    size, total = (float(row @ np.array(sums, float)) for row in rows)
    sizes = (max(1.0, number or 1),) * 2
    miss = (1 - _MISS) * stages.miss  # The rest is for the slack.
    if number is None:
      width = Combination(noise=stages.noise, coefficients=tuple(
          rows[0])).half_width(_MISS * stages.miss)
      sizes = max(1.0, size - width), max(1.0, size + width)
      miss -= _MISS * stages.miss
    else:
      size = number
    slack = self.slack(stages, math.floor(sizes[1]))
    deviations = (self.sigma * math.sqrt(sizes[0]),
                  self.sigma * math.sqrt(sizes[1]))

    def noisy(offset: float) -> tuple[float, Combination]:
      return total - offset * size, self.error(stages, offset)

    def accepted(mean: float) -> bool:
      value, error = noisy(mean - centre)
      return error.normal_tail(abs(value) - slack, deviations) > miss / 2

    mean = min(max(centre + total / max(1, size), self.low), self.high)
    ends = [combinations.farthest(accepted, mean, end)
            for end in (self.low, self.high)]
    inner = combinations.ratio_interval(
        noisy, total / max(1, size), (-stages.clamp, stages.clamp),
        self.query.miss)
    unit, level = float(self.lattice.unit), self.query.confidence
    return {
        'value': mean * unit,
        'interval': queries.interval(
            *((centre + end) * unit for end in inner),
            level=level, covers='the mean of the values of the file, clamped '
            'to the window; noise only'),
        'population_interval': queries.interval(
            *(end * unit for end in ends), level=level,
            covers=_POPULATION + self.query.missing_assumption)}


def wrong_bin(number: int, num_bins: int, bin_noise: noise.Noise) -> float:
  """Returns a bound of P(the chosen bin is more than 1.5 sigma from the mean).

  Args:
    number: n.
    num_bins: number of bins of the histogram.
    bin_noise: distribution of the noise of a count.
  """
  # The bin of the mean has probability at least Phi(1) - Phi(0), a distant
  # one at most Phi(k + 1) - Phi(k), k = 1, 2, ... on either side. The noisy
  # difference of their counts is positive with probability at most
  # E e^(rate difference), for every rate.
  near_prob = stats.norm.cdf(1) - .5
  k = np.arange(1, min(num_bins, 8) + 1)
  far_probs = stats.norm.sf(k)
  far_probs[:-1] -= far_probs[1:]
  num_far_bins = np.full(len(k), 2.0)
  num_far_bins[-1] = num_bins
  rates = np.linspace(.05, 5, 200) / max(.2, bin_noise.deviation)
  with np.errstate(over='ignore'):
    logs = number * np.log1p(far_probs[:, None] * np.expm1(rates)
                             + near_prob * np.expm1(-rates))
    logs += 2 * bin_noise.log_moment(rates)
  return float(num_far_bins @ np.exp(np.minimum(0.0, logs.min(-1))))


def clamped_sum(clamp: float, number: int, miss: float) -> float:
  """Returns a bound of sum_i (|Z_i| - w)_+ that holds except with `miss`.

  Args:
    clamp: w > 0.
    number: n.
    miss: probability, in (0, 1).
  """
  # Markov's inequality for each s, with E e^(s (|Z| - w)_+) = 1 + 2 (
  # e^(s^2 / 2 - s w) Phi(s - w) - Phi(-w)).
  s = np.geomspace(.05, 20, 200)
  tilted = np.exp(s * s / 2 - s * clamp + stats.norm.logcdf(s - clamp))
  logs = np.log1p(2 * (tilted - stats.norm.sf(clamp)))
  return float(np.min((number * logs - math.log(miss)) / s))


def half_width(error: Combination, deviation: float, miss: float) -> float:
  """Returns w with P(|N(0, deviation^2) + error| > w) <= miss.

  Args:
    error: noise with a symmetric distribution.
    deviation: standard deviation of the normal part, > 0.
    miss: probability of both tails together, in (0, 1).
  """
  low, high = 0.0, error.half_width(miss / 2) + deviation * stats.norm.isf(
      miss / 4)
  for _ in range(40):
    middle = (low + high) / 2
    low, high = (middle, high) if error.normal_tail(
        middle, (deviation, deviation)) > miss / 2 else (low, middle)
  return high


def normal_mean(query: Query) -> NormalMean:
  """Returns the plan of a normal mean with a public standard deviation."""
  (lower, upper), sigma = query.bounds, queries.needed('sigma', query.sigma)
  margin = sigma * (_MOST_BINS + 10)
  granularity = query.spacing(0 * sigma, sigma)
  if granularity > sigma / 100:
    raise ValueError('granularity must be at most a hundredth of sigma, got '
                     f'{granularity}')
  points = lattices.Lattice(lower=lower - margin, upper=upper + margin,
                            granularity=granularity)
  low, high = (round(Fraction(end) / points.unit) for end in (lower, upper))
  return NormalMean(query=query, lattice=points, low=low, high=high,
                    sigma=float(Fraction(sigma) / points.unit))


STATISTICS = (
    queries.Statistic(
        name='normal_mean', help='mean of a normal distribution, between '
        'the bounds; sigma known', needs=('column', 'lower', 'upper', 'sigma'),
        takes=('granularity', 'missing'), plan=normal_mean),
)
