r"""Sum, mean and variance, from noisy integer sums.

A sum is one number, released with the whole budget. Mean and variance come from
a few sums that are released together, each with the noise of the whole budget.
With a = x - lower and b = upper - x in units of the granularity, integers of
sum W, the sums are those of a W, b W and a b, or combinations of them: they
tell n, the mean m of t = a / W and the mean of t (1 - t), and so the variance,
m (1 - m) less that. In units of W^2, sensitivities are these, each attained.

Add-or-remove-one, pure. A record adds the Bernstein polynomials t^2,
2 t (1 - t), (1 - t)^2, which are nonnegative and sum to 1: the l1 sensitivity
of all three sums is 1. The mean errs as (sum t - m n) / n does, of variance
((1 - m)^2 + (1/2 - m)^2 + m^2) 2 / (n epsilon)^2. Half the budget for a count
and half for a centred sum have (1/4 + (1/2 - m)^2) 8 / (n epsilon)^2: twice as
much at m = 1/2, 1.6 times as much at the bounds. Sums of t and 1 - t alone,
whose noise is that of the K-norm mechanism on the hull of all contributions,
have as much as the three at m = 1/2, and 0.8 times as much at the bounds.

Add-or-remove-one, Gaussian. A record adds t, 1 - t and (14 / 5) t (1 - t). With
r = t (1 - t) <= 1/4 the squared l2 norm is 1 - 2 r + 7.84 r^2 <= 1: the third
sum is free. (Sums of t and 1 - t are a rotation of a count and a centred sum.)

Replace-one. n is public, and a record adds t and w t (1 - t). One that moves
by d = |t - t'| moves the second by w d |1 - t - t'| <= w d (1 - d), with
equality from t' = 0. The l1 norm, d + w d (1 - d), is 1 at most for w = 1: the
mean has the noise of a sum that is released alone, and the second sum is free.
For the variance w = 3, and the norm is 4/3: its error is then below that of two
halves of a budget at every mean. The squared l2 norm, d^2 (1 + w^2 (1 - d)^2),
is 1 at most for w = 3, or 9 d^2 (1 - d) <= 1 + d: the left side is 4/3 at most,
which is enough from d = 1/3 on, and below 1 before. So that is free, too.

Replace-one, records with missing numbers absent. How many are left is private,
so the sums are those of add-or-remove-one. A record may become absent or take
another value: v goes to 0 or to v'. All entries of v and v' are nonnegative, so
|v - v'|_1 <= |v|_1 + |v'|_1 and |v - v'|_2^2 <= |v|_2^2 + |v'|_2^2: both
sensitivities, the second one squared, double, and t = 0 against t = 1 attains
both.
"""

from collections.abc import Iterable
import dataclasses
import fractions
import functools
from typing import NamedTuple

from dpjax.release import noise
from dpjax.release import query as queries
from dpjax.release import sample_means
from dpjax.release.costs import Cost
from dpjax.release.lattice import Lattice
from dpjax.release.meter import Meter
from dpjax.release.query import Query

Fraction = fractions.Fraction
_COVERS = 'the {} of the clamped values of the file; noise only'
_POPULATION = ('the mean of the distribution that the records are independent '
               'draws from, clamped and rounded as the values are; sampling '
               'and noise')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sum(queries.Direct):
  """A noisy sum of multiples of the granularity.

  Attributes:
    query: what is asked.
    lattice: of the column.
  """
  query: Query
  lattice: Lattice

  reads = 'numbers'

  @property
  def sensitivity(self) -> int:
    """Largest change of the sum between neighbours, an integer."""
    low, high = self.lattice.low, self.lattice.high
    if not self.query.replacing:
      return max(abs(low), abs(high))
    # A record whose number is missing may be absent, and then adds 0.
    absent = () if self.query.knows_size else (0,)
    return max((high, *absent)) - min((low, *absent))

  @functools.cached_property
  def noise(self) -> noise.Noise:
    """The noise of the sum."""
    return noise.calibrated(self.query.cost(), l1_sensitivity=self.sensitivity,
                            l2_sensitivity_squared=self.sensitivity**2)

  @property
  def cost(self) -> Cost:
    """What the noise of the sum costs."""
    return self.noise.cost(l1_sensitivity=self.sensitivity,
                           l2_sensitivity_squared=self.sensitivity**2)

  def facts(self) -> dict[str, object]:
    """What is public."""
    unit = self.lattice.unit
    return {**_rules(self.query, self.lattice), 'noise': {'sum': {
        'unit': str(unit), 'l1_sensitivity': str(self.sensitivity * unit),
        **self.noise.to_json()}}}

  def measure(self, fields: Iterable[object]) -> tuple[int, int]:
    """The number of records, and the exact sum."""
    number, total = 0, 0
    for value in self.query.numbers(fields, self.lattice.lower,
                                    self.lattice.upper):
      number, total = number + 1, total + self.lattice.index(value)
    return number, total

  def draw(self, measured: tuple[int, int], meter: Meter) -> dict[str, object]:
    """The noisy sum and its interval."""
    number, total = measured
    noisy, = meter.noisy([total], self.noise, l1_sensitivity=self.sensitivity,
                         l2_sensitivity_squared=self.sensitivity**2)
    width, unit = self.noise.half_width(self.query.miss), self.lattice.unit
    released = {'value': float(noisy * unit), 'interval': queries.interval(
        (noisy - width) * unit, (noisy + width) * unit,
        level=self.query.confidence, covers=_COVERS.format('sum')),
                'noisy_sums': {'sum': str(noisy * unit)}}
    return {**released, 'num_records': number} if self.query.knows_size else (
        released)


class Part(NamedTuple):
  """One of the sums of a release of moments.

  A record adds a polynomial of a = x - lower and b = upper - x.

  Attributes:
    text: the polynomial, for the reader of the release.
    factors: integers (f, g, h) of f a W + g b W + h a b, where W = a + b.
  """
  text: str
  factors: tuple[int, int, int]


class Design(NamedTuple):
  """The sums that are released together.

  Attributes:
    parts: by name.
    solution: rows of coefficients of the parts, that give the sums of a W, b W
      and a b; if n is public that of b W is n W^2 less the
      first.
  """
  parts: dict[str, Part]
  solution: tuple[tuple[Fraction, ...], ...]


def _design(*, knows_size: bool, pure: bool, ratio: int) -> Design:
  """The sums of a release, see above; `ratio` is w, where n is public."""
  if knows_size:
    parts = {'from_lower': Part('a (upper - lower)', (1, 0, 0)),
             'products': Part(f'{ratio} a b', (0, 0, ratio))}
    rows = (1, 0), (-1, 0), (0, Fraction(1, ratio))
  elif pure:
    parts = {'from_lower': Part('a^2', (1, 0, -1)),
             'from_upper': Part('b^2', (0, 1, -1)),
             'products': Part('2 a b', (0, 0, 2))}
    half = Fraction(1, 2)
    rows = (1, 0, half), (0, 1, half), (0, 0, half)
  else:
    parts = {'from_lower': Part('5 a (upper - lower)', (5, 0, 0)),
             'from_upper': Part('5 b (upper - lower)', (0, 5, 0)),
             'products': Part('14 a b', (0, 0, 14))}
    rows = (Fraction(1, 5), 0, 0), (0, Fraction(1, 5), 0), (
        0, 0, Fraction(1, 14))
  return Design(parts, tuple(tuple(map(Fraction, row)) for row in rows))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moments(queries.Direct):
  """Noisy sums that tell the mean and the variance.

  Attributes:
    query: what is asked.
    lattice: of the column.
    design: the sums.
  """
  query: Query
  lattice: Lattice
  design: Design

  reads = 'numbers'

  @property
  def width(self) -> int:
    """W, the range of the values in units of the granularity."""
    return self.lattice.high - self.lattice.low

  def _norm(self, power: int) -> int:
    """The largest change of all sums, in l1 or in squared l2, an integer.

    A polynomial of one integer: an end of its range is the worst or, in l1, one
    of the two integers beside the vertex of a parabola.
    """
    width, middle = self.width, self.width // 2
    factors = [part.factors for part in self.design.parts.values()]
    factor = 1
    if not self.query.knows_size:
      factor += self.query.replacing

      def change(a):
        return [f * a * width + g * (width - a) * width + h * a * (width - a)
                for f, g, h in factors]
      places = {0, width, middle}
    else:
      ratio = factors[1][2]
      vertex = width * (ratio + 1) // (2 * ratio)

      def change(a):
        return a * width, ratio * a * (width - a)
      places = {width, min(vertex, width), min(vertex + 1, width)}
    return factor * max(sum(abs(x)**power for x in change(a)) for a in places)

  @functools.cached_property
  def sensitivity(self) -> dict[str, int]:
    """Both sensitivities of the vector of all sums, as the meter takes them."""
    return {'l1_sensitivity': self._norm(1),
            'l2_sensitivity_squared': self._norm(2)}

  @functools.cached_property
  def noise(self) -> noise.Noise:
    """The noise of every sum."""
    return noise.calibrated(self.query.cost(), **self.sensitivity)

  @property
  def cost(self) -> Cost:
    """What the noise of all sums costs together."""
    return self.noise.cost(**self.sensitivity)

  def facts(self) -> dict[str, object]:
    """What is public."""
    unit = self.lattice.unit**2
    return {**_rules(self.query, self.lattice), 'noise': {'sums': {
        'a_record_adds': {name: part.text
                          for name, part in self.design.parts.items()},
        'where': 'a = x - lower and b = upper - x, for the rounded value x and '
                 'bounds',
        'unit': str(unit),
        'l1_sensitivity': str(self.sensitivity['l1_sensitivity'] * unit),
        'l2_sensitivity_squared': str(
            self.sensitivity['l2_sensitivity_squared'] * unit**2),
        **self.noise.to_json()}}}

  def measure(self, fields: Iterable[object]) -> tuple[int, list[int]]:
    """The number of records, and the exact sums of all parts."""
    low, width = self.lattice.low, self.width
    number, total, products = 0, 0, 0
    for value in self.query.numbers(fields, self.lattice.lower,
                                    self.lattice.upper):
      a = self.lattice.index(value) - low
      number, total, products = (number + 1, total + a,
                                 products + a * (width - a))
    return number, [
        f * total * width + g * (number * width - total) * width + h * products
        for _, (f, g, h) in self.design.parts.values()]

  def draw(self, measured: tuple[int, list[int]],
           meter: Meter) -> dict[str, object]:
    """The statistic and its intervals, from noisy sums alone."""
    number, sums = measured
    noisy = meter.noisy(sums, self.noise, **self.sensitivity)
    known = number if self.query.knows_size else None
    moments = self.moments(noisy, known)
    unit = self.lattice.unit**2
    released = {'noisy_sums': {name: str(value * unit) for name, value in zip(
        self.design.parts, noisy, strict=True)}}
    if self.query.knows_size:
      released['num_records'] = number
    return {**getattr(self, f'_{self.query.statistic}')(moments), **released}

  def moments(self, noisy: list[int],
              number: int | None) -> sample_means.NoisyMoments:
    """Noisy sums of t, 1 - t and t (1 - t), in units of records.

    Args:
      noisy: the sums.
      number: n, if it is public.
    """
    square = self.width**2
    values = [sum(map(Fraction.__mul__, row, map(Fraction, noisy))) / square
              for row in self.design.solution]
    if number is not None:
      values[1] += number
    return sample_means.NoisyMoments(
        values=tuple(map(float, values)), law=self.noise,
        weights=tuple(tuple(float(weight / square) for weight in row)
                      for row in self.design.solution))

  def _mean(self, moments: sample_means.NoisyMoments) -> dict[str, object]:
    level, miss = self.query.confidence, self.query.miss
    return {
        'value': self._value(moments.mean),
        'interval': queries.interval(
            *map(self._value, sample_means.file_mean(moments, miss)),
            level=level, covers=_COVERS.format('mean')),
        'population_interval': queries.interval(
            *map(self._value, sample_means.population_mean(moments, miss)),
            level=level,
            covers=_POPULATION + self.query.missing_assumption)}

  def _variance(self, moments: sample_means.NoisyMoments) -> dict[str, object]:
    unit = float(self.width * self.lattice.unit)**2
    low, high = sample_means.file_variance(moments, self.query.miss)
    return {'value': unit * moments.variance, 'divisor': 'number of records',
            'interval': queries.interval(
                unit * low, unit * high, level=self.query.confidence,
                covers=_COVERS.format('variance'))}

  def _value(self, mean: float) -> float:
    """A mean of t as one of the column."""
    return float((self.lattice.low + Fraction(mean) * self.width)
                 * self.lattice.unit)


def _rules(query: Query, points: Lattice) -> dict[str, str]:
  return {
      'clamping': 'values outside the public bounds are clamped to them',
      'missing': query.missing_text,
      'granularity': str(points.granularity),
      'rounding': 'each value to the nearest multiple of the granularity'}


def sums(query: Query) -> Sum:
  """The sum of the column."""
  return Sum(query=query, lattice=query.lattice())


def mean(query: Query) -> Moments:
  """The mean; n is public, or a noisy sum tells it, too."""
  return _plan(query, ratio=1 if query.delta is None else 3)


def variance(query: Query) -> Moments:
  """The mean squared distance from the mean."""
  return _plan(query, ratio=3)


def _plan(query: Query, *, ratio: int) -> Moments:
  return Moments(query=query, lattice=query.lattice(), design=_design(
      knows_size=query.knows_size, pure=query.delta is None, ratio=ratio))


STATISTICS = tuple(
    queries.Statistic(name=name, help=text,
                      needs=('column', 'lower', 'upper'),
                      takes=('granularity', 'missing'), plan=plan)
    for name, text, plan in (
        ('sum', 'sum of the clamped values', sums),
        ('mean', 'mean of the clamped values', mean),
        ('variance', 'variance of the clamped values, divided by n', variance)))
