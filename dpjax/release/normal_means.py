"""The mean of a normal law of known deviation, wherever it lies.

A noisy histogram of bins one deviation wide finds where the mean is; values are
clamped around its largest bin, and their integer sum has noise. How the budget
is divided, how far values are clamped and whether a histogram pays at all is
chosen for the shortest interval, from n and public numbers alone. Source:
Karwa and Vadhan 2018 (item EXT-KV, EXT-KVCI); what may go wrong is bounded by
exact distributions here.

With Z_i the standardised values and bounds w deviations or more from the mean,
clamping moves the sum by sum_i (|Z_i| - w)_+ deviations at most, whose
exponential moments are known. So w is near 3, not at the largest of n values,
and the mean of values that nobody clamped is normal.

If n is private, a small share of the budget buys a noisy count, which chooses
the stages and nothing else. What is left is for two sums that tell n and the
sum of y together, y in [-c, c] being the clamped value less the centre:
  Pure: c + y and c - y, whose sizes sum to 2 c for every record. For any d the
    noise in sum (y - d) has the variance 4 (c^2 + d^2) / epsilon^2. A part s of
    epsilon for n and the rest for y have 2 (c^2 / (1 - s)^2 + (d / s)^2) /
    epsilon^2: twice as much for s = 1/2, and less only for an s that suits d,
    which nobody knows.
  Gaussian: c and 2 y, of squared norm 5 c^2 at most. The noise in sum (y - d)
    has the variance (5/4 c^2 + 5 d^2) / (2 rho). The two sums above have 2 c^2
    + 2 d^2, which is more for d < c / 2; d is mostly below sigma, c above 3
    sigma.
Either way the noise in sum (y - d) is a known combination for every d, so that
the interval of the mean is not widened by a range of n.

An interval holds m if sum (y - d), d = m less the centre, is not too large for
the sum of three parts: sum (x - m), normal of variance n sigma^2; the noise in
it; and what clamping and rounding move at most.
"""

from collections.abc import Iterable
import dataclasses
import fractions
import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from dpjax import errors
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
# Of what may go wrong: the number of records, the bin, and the clamped sum.
_MISS = 1 / 20
# A chosen bin is nearly never farther from the mean, in deviations.
_FAR = 1.5
_MOST_BINS = 10_000
_POPULATION = ('the mean of the normal law of deviation sigma, between the '
               'bounds, that the records are independent draws from; sampling '
               'and noise')


class Stages(NamedTuple):
  """How a mean will be found.

  Attributes:
    share: of the budget, for the histogram; 0 if there is none.
    clamp: how far from the centre values may be, in units of the lattice.
    law: noise of every sum.
    miss: what may still go wrong after the choice of a bin.
  """
  share: Fraction
  clamp: int
  law: noise.Noise
  miss: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormalMean(queries.Direct):
  """A noisy histogram, if it pays, and a noisy sum around its largest bin.

  Attributes:
    query: what is asked; its bounds are those of the mean.
    lattice: of the values, far beyond the bounds.
    low: lower bound of the mean, in units of the lattice.
    high: upper bound.
    sigma: in units of the lattice.
  """
  query: Query
  lattice: lattices.Lattice
  low: int
  high: int
  sigma: float

  reads = 'numbers'

  @property
  def num_bins(self) -> int:
    """Bins from one below the lower bound to one above the upper one."""
    return math.ceil((self.high - self.low) / self.sigma) + 2

  @property
  def cost(self) -> Cost:
    """Of all that is released: shares of it add up to it."""
    return self.query.cost()

  def facts(self) -> dict[str, object]:
    """What is public."""
    return {'missing': self.query.missing_text,
            'clamping': 'values outside the window are clamped to it',
            'granularity': str(self.lattice.granularity),
            'rounding': 'each value to the nearest multiple of the granularity',
            'noise': 'of each stage, see stages'}

  def measure(self, fields: Iterable[object]) -> list[int]:
    """All values as multiples of the granularity."""
    return [self.lattice.index(value) for value in self.query.numbers(
        fields, self.query.lower, self.query.upper)]

  def counts(self, values: Iterable[int]) -> list[int]:
    """Of bins; values beyond the first and the last are in none."""
    found = [0] * self.num_bins
    for value in values:
      place = math.floor((value - self.low) / self.sigma) + 1
      if 0 <= place < len(found):
        found[place] += 1
    return found

  def histogram_law(self, cost: Cost) -> noise.Noise:
    """Noise of counts of bins: a record is in one at most."""
    moved = 1 + self.query.replacing
    return noise.calibrated(cost, l1_sensitivity=moved,
                            l2_sensitivity_squared=moved)

  def sensitivity(self, clamp: int) -> dict[str, int]:
    """That of the sums of values clamped so far from the centre."""
    if self.query.knows_size:
      moved, squared = 2, 4
    elif self.query.delta is None:
      # The two sums move by as much in opposite directions.
      moved, squared = (4, 8) if self.query.replacing else (2, 4)
    else:
      moved, squared = (4, 16) if self.query.replacing else (3, 5)
    return {'l1_sensitivity': moved * clamp,
            'l2_sensitivity_squared': squared * clamp**2}

  def sums(self, values: Iterable[int], centre: int,
           clamp: int) -> dict[str, int]:
    """The sums that noise is added to, by name."""
    clamped = [min(max(value - centre, -clamp), clamp) for value in values]
    size, total = clamp * len(clamped), sum(clamped)
    if self.query.knows_size:
      return {'from_centre': total}
    if self.query.delta is None:
      return {'from_lower': size + total, 'from_upper': size - total}
    return {'half_windows': size, 'twice_from_centre': 2 * total}

  def _solution(self, clamp: int) -> np.ndarray:
    """[2, k]: coefficients of the sums that give n and the sum of y.

    If n is public, that row is 0.
    """
    if self.query.knows_size:
      return np.array([[0.0], [1.0]])
    if self.query.delta is None:
      return np.array([[.5 / clamp, .5 / clamp], [.5, -.5]])
    return np.array([[1 / clamp, 0.0], [0.0, .5]])

  def error(self, stages: Stages, offset: float = 0.0) -> Combination:
    """The noise in the sum of y less an offset, see above."""
    size, total = self._solution(stages.clamp)
    return Combination(law=stages.law,
                       coefficients=tuple(total - offset * size))

  def stages(self, number: int, cost: Cost, miss: float) -> Stages:
    """The best for so many records; public.

    Args:
      number: n, or a number that it hardly ever is below.
      cost: of histogram and sums.
      miss: of the interval.
    """
    found = []
    for share in _SHARES:
      far = (self.high - self.low) / 2
      if share:
        far = _FAR * self.sigma
        if self.num_bins > _MOST_BINS or wrong_bin(
            number, self.num_bins, self.histogram_law(
                cost.part(share))) > _MISS * miss:
          continue
      for clamp in _CLAMPS:
        reach = math.ceil(far + clamp * self.sigma) + 1
        law = noise.calibrated(cost.part(1 - share), **self.sensitivity(reach))
        stages = Stages(share, reach, law, miss * (1 - _MISS * bool(share)))
        off = self.sigma * clamped_sum(clamp, number, _MISS * miss)
        noisy = law.half_width(miss) * math.hypot(
            *self.error(stages).coefficients)
        found.append((off + noisy, stages))
    return min(found, key=lambda pair: pair[0])[1]

  def slack(self, stages: Stages, number: int) -> float:
    """What clamping and rounding move a sum of so many values, at most."""
    far = _FAR * self.sigma if stages.share else (self.high - self.low) / 2
    clamp = (stages.clamp - 1 - far) / self.sigma
    return number / 2 + self.sigma * clamped_sum(clamp, number,
                                                 _MISS * stages.miss)

  def half_width(self, stages: Stages, number: int) -> float:
    """That of the population's interval, in units of the lattice.

    Exact where n is public; else for a mean at the centre and a known n.
    """
    found = half_width(self.error(stages), self.sigma * math.sqrt(number),
                       (1 - _MISS) * stages.miss)
    return (found + self.slack(stages, number)) / number

  def draw(self, measured: list[int],
           meter: Meter) -> dict[str, object]:
    """Number, place and sums, one after the other."""
    cost, miss = self.cost, self.query.miss
    size, width, told = self._size(len(measured), meter)
    if not self.query.knows_size:
      cost, miss = cost.part(1 - costs.SIZE_SHARE), (1 - _MISS) * miss
    least = max(1, size - width)
    stages = self.stages(least, cost, miss)
    centre = (self.low + self.high) // 2
    if stages.share:
      law = self.histogram_law(cost.part(stages.share))
      moved = 1 + self.query.replacing
      noisy = meter.noisy(self.counts(measured), law, l1_sensitivity=moved,
                          l2_sensitivity_squared=moved)
      centre = round(self.low + self.sigma * (max(range(
          len(noisy)), key=noisy.__getitem__) - .5))
      told['histogram'] = {'noisy_counts': noisy, **law.to_json()}
    sums = self.sums(measured, centre, stages.clamp)
    noisy = meter.noisy(sums.values(), stages.law,
                        **self.sensitivity(stages.clamp))
    unit = self.lattice.unit
    told['sum'] = {
        'window': [float((centre + side * stages.clamp) * unit)
                   for side in (-1, 1)],
        'noisy_sums': {name: str(value * unit) for name, value in zip(
            sums, noisy, strict=True)},
        'unit': str(unit), **stages.law.to_json()}
    number = size if self.query.knows_size else None
    answer = {**self._told(noisy, centre, number, stages), 'stages': told}
    if size - width < 1:  # of no record nothing follows for the population
      answer['population_interval'].update(zip(('lower', 'upper'), (
          float(end * unit) for end in (self.low, self.high))))
    return answer if number is None else {**answer, 'num_records': number}

  def _size(self, number: int,
            meter: Meter) -> tuple[int, int, dict[str, object]]:
    """The number of records, how far it may be off, and what is told of it."""
    if self.query.knows_size:
      return number, 0, {}
    law = noise.calibrated(self.cost.part(costs.SIZE_SHARE), l1_sensitivity=1,
                           l2_sensitivity_squared=1)
    noisy, = meter.noisy([number], law, l1_sensitivity=1,
                         l2_sensitivity_squared=1)
    return noisy, law.half_width(_MISS * self.query.miss), {
        'number': {'noisy_count': noisy, **law.to_json()}}

  def _told(self, sums: list[int], centre: int, number: int | None,
            stages: Stages) -> dict[str, object]:
    """Returns the released mean and its two intervals."""
    rows = self._solution(stages.clamp)
    size, total = (float(row @ np.array(sums, float)) for row in rows)
    sizes = (max(1, number or 1),) * 2
    miss = (1 - _MISS) * stages.miss  # less that of the slack
    if number is None:
      width = Combination(law=stages.law, coefficients=tuple(
          rows[0])).half_width(_MISS * stages.miss)
      sizes = max(1.0, size - width), max(1.0, size + width)
      miss -= _MISS * stages.miss
    else:
      size = number
    slack = self.slack(stages, math.floor(sizes[1]))
    deviations = tuple(self.sigma * math.sqrt(size) for size in sizes)

    def noisy(offset):
      return total - offset * size, self.error(stages, offset)

    def accepted(mean):
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


def wrong_bin(number: int, num_bins: int, law: noise.Noise) -> float:
  """P(a bin farther than 1.5 deviations is chosen), at most.

  A bin next to the mean has more than Phi(1) - Phi(0) of the law, those that
  far less than Phi(k + 1) - Phi(k), k = 1, 2, ... on either side. For each, the
  noisy difference of two counts is positive with a probability below each of
  its exponential moments.

  Args:
    number: n.
    num_bins: of the histogram.
    law: of the noise of a count.
  """
  near = stats.norm.cdf(1) - .5
  k = np.arange(1, min(num_bins, 8) + 1)
  far = stats.norm.sf(k)
  far[:-1] -= far[1:]
  how_many = np.full(len(k), 2.0)
  how_many[-1] = num_bins
  rates = np.linspace(.05, 5, 200) / max(.2, law.deviation)
  with np.errstate(over='ignore'):
    logs = number * np.log1p(far[:, None] * np.expm1(rates)
                             + near * np.expm1(-rates))
    logs += 2 * law.log_moment(rates)
  return float(how_many @ np.exp(np.minimum(0.0, logs.min(-1))))


def clamped_sum(clamp: float, number: int, miss: float) -> float:
  """A bound of sum_i (|Z_i| - w)_+ that is missed so often at most.

  Of the exponential moments, E e^(s (|Z| - w)_+) = 1 + 2 (e^(s^2 / 2 - s w)
  Phi(s - w) - Phi(-w)).

  Args:
    clamp: w > 0.
    number: n.
    miss: in (0, 1).
  """
  s = np.geomspace(.05, 20, 200)
  grown = np.exp(s * s / 2 - s * clamp + stats.norm.logcdf(s - clamp))
  logs = np.log1p(2 * (grown - stats.norm.sf(clamp)))
  return float(np.min((number * logs - math.log(miss)) / s))


def half_width(error: Combination, deviation: float, miss: float) -> float:
  """A width that N(0, deviation^2) + error hardly exceeds on either side.

  Args:
    error: noise, symmetric.
    deviation: of the normal part, > 0.
    miss: of both sides, in (0, 1).
  """
  low, high = 0.0, error.half_width(miss / 2) + deviation * stats.norm.isf(
      miss / 4)
  for _ in range(40):
    middle = (low + high) / 2
    low, high = (middle, high) if error.normal_tail(
        middle, (deviation, deviation)) > miss / 2 else (low, middle)
  return high


def normal_mean(query: Query) -> NormalMean:
  """The mean, of values whose deviation is public."""
  if query.sigma <= 0:
    raise ValueError(f'sigma must be positive, got {query.sigma}')
  errors.check_range(query.lower, query.upper)
  beyond = query.sigma * (_MOST_BINS + 10)
  granularity = query.spacing(0 * query.sigma, query.sigma)
  if granularity > query.sigma / 100:
    raise ValueError('granularity must be a hundredth of sigma at most, got '
                     f'{granularity}')
  points = lattices.Lattice(lower=query.lower - beyond,
                            upper=query.upper + beyond,
                            granularity=granularity)
  ends = (round(Fraction(end) / points.unit) for end in (query.lower,
                                                         query.upper))
  low, high = ends
  return NormalMean(query=query, lattice=points, low=low, high=high,
                    sigma=float(Fraction(query.sigma) / points.unit))


STATISTICS = (
    queries.Statistic(
        name='normal_mean', help='mean of a normal law of deviation sigma, its '
        'mean between the bounds', needs=('column', 'lower', 'upper', 'sigma'),
        takes=('granularity', 'missing'), plan=normal_mean),
)
