"""Sum, mean and variance, from noisy sums of powers of integers.

Under add-or-remove-one the number of records is private, and under replace-one
where records with missing numbers are absent: mean and variance then need a
noisy count too, and the budget is divided evenly among the sums.
"""

from collections.abc import Iterable
import dataclasses
import fractions
import functools
import math

import numpy as np
from scipy import special

from dpjax.release import noise
from dpjax.release import query as queries
from dpjax.release.costs import Cost
from dpjax.release.lattice import Lattice
from dpjax.release.meter import Meter
from dpjax.release.query import Query

Fraction = fractions.Fraction
Span = tuple[Fraction, Fraction]
_NAMES = ('count', 'sum', 'squares')
_COVERS = 'the {} of the clamped values of the file; noise only'
_POPULATION = ('the mean of the clamped distribution that the records are '
               'independent draws from; sampling and noise')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moments(queries.Direct):
  """Noisy sums of (index - centre)^k over the records, k in `powers`.

  Attributes:
    query: what is asked.
    lattice: of the column.
    powers: those that are released.
    centre: public; 0 for a sum, the middle otherwise, which halves what one
      record can add.
  """
  query: Query
  lattice: Lattice
  powers: tuple[int, ...]
  centre: int

  reads = 'numbers'

  def sensitivity(self, power: int) -> int:
    """Largest change of one sum between neighbours, an integer."""
    low, high = (end - self.centre for end in (self.lattice.low,
                                               self.lattice.high))
    ends = [low**power, high**power]
    if not self.query.replacing:
      return max(map(abs, ends))
    # A record that is absent adds 0, and one whose value is the centre.
    if not self.query.knows_size or (low <= 0 <= high and power):
      ends.append(0)
    return max(ends) - min(ends)

  @functools.cached_property
  def noises(self) -> dict[int, noise.Noise]:
    """The noise of each sum."""
    share = self.query.cost().divided(len(self.powers))
    return {power: noise.calibrated(
        share, l1_sensitivity=self.sensitivity(power),
        l2_sensitivity_squared=self.sensitivity(power)**2)
            for power in self.powers}

  @property
  def cost(self) -> Cost:
    """Of all sums: costs of one notion add."""
    parts = [self.noises[power].cost(
        l1_sensitivity=self.sensitivity(power),
        l2_sensitivity_squared=self.sensitivity(power)**2)
             for power in self.powers]
    if self.query.delta is None:
      return Cost(epsilon=sum(part.epsilon for part in parts))
    return Cost(rho=sum(part.rho for part in parts))

  def facts(self) -> dict[str, object]:
    """What is public."""
    unit = self.lattice.unit
    return {
        'clamping': 'values outside the public bounds are clamped to them',
        'missing': self.query.missing_text,
        'granularity': str(self.lattice.granularity),
        'rounding': 'each value to the nearest multiple of the granularity',
        'centre': str(self.centre * unit),
        'noise': {_NAMES[power]: {
            'unit': str(unit**power),
            'l1_sensitivity': str(self.sensitivity(power) * unit**power),
            **self.noises[power].to_json()} for power in self.powers}}

  def measure(self, fields: Iterable[object]) -> tuple[int, dict[int, int]]:
    """The number of records, and the exact sums."""
    number, sums = 0, dict.fromkeys(self.powers, 0)
    for value in self.query.numbers(fields, self.lattice.lower,
                                    self.lattice.upper):
      offset = self.lattice.index(value) - self.centre
      number += 1
      for power in self.powers:
        sums[power] += offset**power
    return number, sums

  def draw(self, measured: tuple[int, dict[int, int]],
           meter: Meter) -> dict[str, object]:
    """The statistic and its intervals, from noisy sums alone."""
    number, sums = measured
    noisy = {}
    for power in self.powers:
      moved = self.sensitivity(power)
      noisy[power], = meter.noisy([sums[power]], self.noises[power],
                                  l1_sensitivity=moved,
                                  l2_sensitivity_squared=moved**2)
    if not self.query.knows_size:
      number = None  # private from here on
    spans = functools.partial(self._spans, noisy, number)
    released = {'noisy_sums': {
        _NAMES[power]: str(noisy[power] * self.lattice.unit**power)
        for power in self.powers}}
    if self.query.knows_size:
      released['num_records'] = number
    size = number or max(1, noisy.get(0, 1))
    return {**getattr(self, f'_{self.query.statistic}')(noisy, size, spans),
            **released}

  def _spans(self, noisy: dict[int, int], number: int | None,
             miss: float) -> dict[int, Span]:
    """Ranges that hold all exact sums at once, but for `miss`."""
    spans = {}
    for power, value in noisy.items():
      width = self.noises[power].half_width(miss / len(noisy))
      spans[power] = Fraction(value - width), Fraction(value + width)
    low, high = spans.get(0, (number or 0, number or 0))
    return {**spans, 0: (Fraction(max(0, low)), Fraction(max(1, high)))}

  def _sum(self, noisy, size, spans) -> dict[str, object]:
    del size
    unit = self.lattice.unit
    low, high = spans(self.query.miss)[1]
    return {'value': float(noisy[1] * unit), 'interval': queries.interval(
        low * unit, high * unit, level=self.query.confidence,
        covers=_COVERS.format('sum'))}

  def _mean(self, noisy, size, spans) -> dict[str, object]:
    miss, level = self.query.miss, self.query.confidence
    low, high = self._mean_span(spans(miss))
    value = self._clamped(self.centre + Fraction(noisy[1], size))
    return {
        'value': self._value(value),
        'interval': queries.interval(
            self._value(low), self._value(high), level=level,
            covers=_COVERS.format('mean')),
        'population_interval': queries.interval(
            *self._population(noisy, spans), level=level,
            covers=_POPULATION + self.query.missing_assumption)}

  def _variance(self, noisy, size, spans) -> dict[str, object]:
    unit, most = self.lattice.unit**2, Fraction(
        self.lattice.high - self.lattice.low, 2)**2
    value = Fraction(noisy[2], size) - Fraction(noisy[1], size)**2
    found = spans(self.query.miss)
    ends = _divided(found[1], found[0])
    squares = [end**2 for end in ends]
    least = 0 if ends[0] <= 0 <= ends[1] else min(squares)
    low, high = _divided(found[2], found[0])
    low, high, value = (min(max(x, Fraction(0)), most) * unit for x in (
        low - max(squares), high - least, value))
    return {'value': float(value), 'divisor': 'number of records',
            'interval': queries.interval(
                low, high, level=self.query.confidence,
                covers=_COVERS.format('variance'))}

  def _clamped(self, index: Fraction) -> Fraction:
    return min(max(index, Fraction(self.lattice.low)),
               Fraction(self.lattice.high))

  def _value(self, index: Fraction) -> float:
    return float(index * self.lattice.unit)

  def _mean_span(self, spans: dict[int, Span]) -> Span:
    low, high = _divided(spans[1], spans[0])
    return self._clamped(self.centre + low), self._clamped(self.centre + high)

  def _population(self, noisy: dict[int, int], spans) -> tuple[float, float]:
    """Means of a distribution on the bounds that the noisy sums go with."""
    bottom, width = self.lattice.low, self.lattice.high - self.lattice.low
    miss = self.query.miss
    size = int(spans(miss)[0][0])
    if size < 1:  # of no record, which it may be, nothing follows
      return tuple(float(end * self.lattice.unit) for end in (
          bottom, self.lattice.high))
    if self.query.knows_size:
      total = noisy[1] + size * (self.centre - bottom)
      ends = _ends(float(total), size, float(width), self.noises[1], miss)
    else:
      # Half of what may go wrong is noise, half the sample.
      inner = spans(miss / 2)
      low, high = self._mean_span(inner)
      rate = math.log(4 / miss) / max(1, int(inner[0][0]))
      ends = (_chernoff(float((low - bottom) / width), rate, 0.0),
              _chernoff(float((high - bottom) / width), rate, 1.0))
    return tuple(float((bottom + Fraction(end) * width) * self.lattice.unit)
                 for end in ends)


def _divided(span: Span, sizes: Span) -> Span:
  """The range of a quotient by a size of 1 or more."""
  return (min(span[0] / max(1, size) for size in sizes),
          max(span[1] / max(1, size) for size in sizes))


def _ends(total: float, size: int, width: float, law: noise.Noise,
          miss: float) -> tuple[float, float]:
  """Means m in [0, 1] that a noisy sum of n draws, times a width, goes with.

  Those with which it is as large, and as small, with probability miss / 2 or
  more, as far as e^(-n KL(share, m)) tells, averaged over the noise: noise and
  sample need not both go wrong, as they seldom do.
  """
  def least(total):
    refused, found = 0.0, 1.0
    for _ in range(50):
      middle = (refused + found) / 2
      beyond = noise.mean_above(law, lambda z, m=middle: _as_large(
          (total - z) / (size * width), m, size))
      refused, found = ((middle, found) if beyond <= miss / 2 else
                        (refused, middle))
    return refused
  return least(total), 1 - least(size * width - total)


def _as_large(share: np.ndarray, mean: float, size: int) -> np.ndarray:
  """P(mean of n draws from [0, 1] >= share), at most; Hoeffding 1963."""
  inside = np.clip(share, mean, 1)
  entropy = special.rel_entr(inside, mean) + special.rel_entr(1 - inside,
                                                              1 - mean)
  return np.where(share > 1, 0.0, np.exp(-size * entropy))


def _chernoff(mean: float, rate: float, end: float) -> float:
  """The mean nearest to `end` in [0, 1] of relative entropy at most `rate`.

  For independent draws from [0, 1] with mean m the sample mean has relative
  entropy to m above ln(2/miss) / n, on either side, with probability `miss` at
  most. Source: Hoeffding 1963, Theorem 1.
  """
  def entropy(m):
    return sum(a * math.log(a / b) if a else 0.0 for a, b in (
        (mean, m), (1 - mean, 1 - m)))

  inner, outer = mean, end
  for _ in range(60):
    middle = (inner + outer) / 2
    inside = 0 < middle < 1 and entropy(middle) <= rate
    inner, outer = (middle, outer) if inside else (inner, middle)
  return outer


def _plan(query: Query, powers: tuple[int, ...], *,
          centred: bool = True) -> Moments:
  points = query.lattice()
  return Moments(
      query=query, lattice=points, powers=powers,
      centre=(points.low + points.high) // 2 if centred else 0)


def sums(query: Query) -> Moments:
  """The sum of the column."""
  return _plan(query, (1,), centred=False)


def mean(query: Query) -> Moments:
  """The mean: the number of records is public, or a noisy count."""
  return _plan(query, (1,) if query.knows_size else (0, 1))


def variance(query: Query) -> Moments:
  """The mean squared distance from the mean."""
  return _plan(query, (1, 2) if query.knows_size else (0, 1, 2))


STATISTICS = tuple(
    queries.Statistic(name=name, help=text,
                      needs=('column', 'lower', 'upper'),
                      takes=('granularity', 'missing'), plan=plan)
    for name, text, plan in (
        ('sum', 'sum of the clamped values', sums),
        ('mean', 'mean of the clamped values', mean),
        ('variance', 'variance of the clamped values, divided by n', variance)))
