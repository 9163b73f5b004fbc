"""The mean of a normal law of known deviation, wherever it lies.

A noisy histogram of bins one deviation wide finds where the mean is; values are
clamped around its largest bin, and their integer sum has noise. How the budget
is divided, how far values are clamped and whether a histogram pays at all is
chosen for the shortest interval, from n and public numbers alone. Source:
Karwa and Vadhan 2018 (item EXT-KV, EXT-KVCI); what may go wrong is bounded by
exact laws here.

With Z_i the standardised values and bounds w deviations or more from the mean,
clamping moves the sum by sum_i (|Z_i| - w)_+ deviations at most, whose
exponential moments are known. So w is near 3, not at the largest of n values,
and the mean of values that nobody clamped is normal.
"""

from collections.abc import Iterable
import dataclasses
import fractions
import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from dpjax import errors
from dpjax.release import costs
from dpjax.release import lattice as lattices
from dpjax.release import noise
from dpjax.release import query as queries
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
    law: noise of the sum.
    half_width: of the interval of the population, in units of the lattice.
  """
  share: Fraction
  clamp: int
  law: noise.Noise
  half_width: float


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

  def sum_law(self, cost: Cost, clamp: int) -> noise.Noise:
    """Noise of the sum of values clamped so far from the centre."""
    moved = (1 + self.query.replacing) * clamp
    return noise.calibrated(cost, l1_sensitivity=moved,
                            l2_sensitivity_squared=moved**2)

  def stages(self, number: int, cost: Cost, miss: float) -> Stages:
    """The best for so many records, and what it promises; public.

    Args:
      number: n, or a number that it hardly ever is below.
      cost: of histogram and sum.
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
        law = self.sum_law(cost.part(1 - share), reach)
        off = self.sigma * clamped_sum(clamp, number, _MISS * miss)
        found.append((off + law.half_width(miss), share, reach, law, off))
    _, share, reach, law, off = min(found, key=lambda stage: stage[0])
    left = miss * (1 - (1 + bool(share)) * _MISS)
    return Stages(share, reach, law, .5 + off / number + half_width(
        law, number, self.sigma, left))

  def draw(self, measured: list[int],
           meter: Meter) -> dict[str, object]:
    """Number, place and sum, one after the other."""
    cost, miss = self.cost, self.query.miss
    size, width, told = self._size(len(measured), meter)
    if not self.query.knows_size:
      cost, miss = cost.part(1 - costs.SIZE_SHARE), (1 - _MISS) * miss
    number = max(1, size)
    least = max(1, number - width)
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
    total = sum(min(max(value - centre, -stages.clamp), stages.clamp)
                for value in measured)
    moved = (1 + self.query.replacing) * stages.clamp
    total, = meter.noisy([total], stages.law, l1_sensitivity=moved,
                         l2_sensitivity_squared=moved**2)
    unit = self.lattice.unit
    told['sum'] = {
        'window': [float((centre + side * stages.clamp) * unit)
                   for side in (-1, 1)],
        'noisy_sum': str(total * unit), 'unit': str(unit),
        **stages.law.to_json()}
    answer = {**self._told(total, centre, number, least, width, stages),
              'stages': told}
    if size - width < 1:  # of no record nothing follows for the population
      answer['population_interval'].update(zip(('lower', 'upper'), (
          float(end * unit) for end in (self.low, self.high))))
    if self.query.knows_size:
      answer['num_records'] = size
    return answer

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

  def _told(self, total: int, centre: int, number: int, least: int, width: int,
            stages: Stages) -> dict[str, object]:
    """Value and intervals: what an unknown number does to them is added."""
    value, unit = centre + total / number, self.lattice.unit
    spread = abs(total) / number * width / least
    far = stages.half_width + spread
    inside = lambda x: min(max(x, self.low), self.high)
    near = stages.law.half_width(self.query.miss * (
        1 if not width else 1 - _MISS)) / least + spread
    level = self.query.confidence
    return {
        'value': float(Fraction(inside(value)) * unit),
        'interval': queries.interval(
            *(float(Fraction(centre + min(max(
                value + side * near - centre, -stages.clamp), stages.clamp))
                    * unit) for side in (-1, 1)),
            level=level, covers='the mean of the values of the file, clamped '
            'to the window; noise only'),
        'population_interval': queries.interval(
            *(float(Fraction(inside(value + side * far)) * unit)
              for side in (-1, 1)), level=level,
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


def half_width(law: noise.Noise, number: int, deviation: float,
               miss: float) -> float:
  """Of the mean of n normal values and the noise of their sum, both sides.

  Args:
    law: of the noise.
    number: n.
    deviation: of a value, in units of the noise.
    miss: in (0, 1).
  """
  one = deviation / math.sqrt(number)
  low, high = 0.0, law.half_width(miss / 2) / number + one * stats.norm.isf(
      miss / 4)
  for _ in range(40):
    middle = (low + high) / 2
    beyond = noise.mean_above(law, lambda z, far=middle: stats.norm.sf(
        (far - z / number) / one))
    low, high = (middle, high) if beyond > miss / 2 else (low, middle)
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
