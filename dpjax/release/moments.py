r"""Sum, mean and variance, from noisy integer sums.

A sum is one number, released with the whole budget. Mean and variance come from
two or three sums that are released together; their joint sensitivity is such
that each has the noise of a release with the whole budget, or nearly so.

With a = x - lower and b = upper - x in units of the granularity, integers with
a + b = W, the sums are those of a W, b W and a b, or linear combinations of
them. They determine n, the mean m of t = a / W and the mean q of t (1 - t),
and so the variance of t, m (1 - m) - q. The following sensitivities are in
units of W^2; each is attained.

Add-or-remove-one, pure. A record adds the Bernstein polynomials t^2,
2 t (1 - t), (1 - t)^2, which are nonnegative and sum to 1: the l1 sensitivity
of all three sums is 1. The error of the mean is that of (sum t - m n) / n, with
variance ((1 - m)^2 + (1/2 - m)^2 + m^2) 2 / (n epsilon)^2. Half of the budget
for a count and half for a centred sum give twice as much at m = 1/2.

Add-or-remove-one, Gaussian. A record adds t, 1 - t and (14 / 5) t (1 - t). With
r = t (1 - t) <= 1/4 the squared l2 norm is 1 - 2 r + 7.84 r^2 <= 1: the third
sum costs nothing.

Replace-one. n is public, and a record adds t and w t (1 - t). A change of t by
d = |t - t'| changes the second by w d |1 - t - t'| <= w d (1 - d); equality
holds for t' = 0. The l1 norm, d + w d (1 - d), is at most 1 for w = 1: the mean
has the noise of a sum that is released alone, and the second sum costs nothing.
For the variance w = 3, with l1 norm 4/3: its error is then below that of two
halves of the budget at every mean. The squared l2 norm, d^2 (1 + w^2 (1 -
d)^2), is at most 1 for w = 3, which for d < 1 is 9 d^2 (1 - d) <= 1 + d: the
left side is at most 4/3, which is enough for d >= 1/3, and below 1 for smaller
d. So the second sum costs nothing here, too.

Replace-one, records with missing numbers absent. The number of remaining
records is private, so the sums are those of add-or-remove-one. A record may
become absent or change its value: its contribution v becomes 0 or v'. All
entries of v and v' are nonnegative, so |v - v'|_1 <= |v|_1 + |v'|_1 and
|v - v'|_2^2 <= |v|_2^2 + |v'|_2^2: the l1 and the squared l2 sensitivity
double, and t = 0 against t = 1 attains both.
"""

from collections.abc import Iterable, Sequence
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
    query: public parameters of the release.
    lattice: lattice of the column.
  """
  query: Query
  lattice: Lattice

  reads = 'numbers'

  @property
  def sensitivity(self) -> int:
    """Returns the largest change of the sum between neighbours, in units."""
    # A new record adds its value; the bounds need not lie around 0.
    low, high = self.lattice.low, self.lattice.high
    if not self.query.replacing:
      return max(abs(low), abs(high))
    # A record without a number may be absent; it then adds 0.
    absent = () if self.query.knows_size else (0,)
    return max((high, *absent)) - min((low, *absent))

  @functools.cached_property
  def noise(self) -> noise.Noise:
    """Returns the noise of the sum, in units of the granularity."""
    return noise.calibrated(self.query.cost(), l1_sensitivity=self.sensitivity,
                            l2_sensitivity_squared=self.sensitivity**2)

  @property
  def cost(self) -> Cost:
    """Returns the cost of the noise of the sum."""
    return self.noise.cost(l1_sensitivity=self.sensitivity,
                           l2_sensitivity_squared=self.sensitivity**2)

  def facts(self) -> dict[str, object]:
    """Returns public facts: rules for values, unit, sensitivity and noise."""
    unit = self.lattice.unit
    return {**_rules(self.query, self.lattice), 'noise': {'sum': {
        'unit': str(unit), 'l1_sensitivity': str(self.sensitivity * unit),
        **self.noise.to_json()}}}

  def measure(self, fields: Iterable[object]) -> tuple[int, int]:
    """Returns the number of records and the exact, private sum."""
    number, total = 0, 0
    for value in self.query.numbers(fields, self.lattice.lower,
                                    self.lattice.upper):
      number, total = number + 1, total + self.lattice.index(value)
    return number, total

  def draw(self, measured: tuple[int, int], meter: Meter) -> dict[str, object]:
    """Returns the noisy sum and its confidence interval."""
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
  """One of the sums that are released for mean and variance.

  A record adds a polynomial of a = x - lower and b = upper - x.

  Attributes:
    text: the polynomial, for the release JSON.
    factors: integers (f, g, h) of f a W + g b W + h a b, where W = a + b.
  """
  text: str
  factors: tuple[int, int, int]


class Design(NamedTuple):
  """The sums that are released together.

  Attributes:
    parts: the sums by name.
    solution: three rows of coefficients of the parts, which give the sums of
      a W, b W and a b. If n is public, n W^2 is to be added to the second.
  """
  parts: dict[str, Part]
  solution: tuple[tuple[Fraction, ...], ...]


def _design(*, knows_size: bool, pure: bool, ratio: int) -> Design:
  """Returns the sums that the module docstring derives; `ratio` is its w."""
  if knows_size:
    parts = {'from_lower': Part('a (upper - lower)', (1, 0, 0)),
             'products': Part(f'{ratio} a b', (0, 0, ratio))}
    rows: tuple[tuple[int | Fraction, ...], ...] = (
        (1, 0), (-1, 0), (0, Fraction(1, ratio)))
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
  """Noisy sums that determine the mean and the variance.

  Attributes:
    query: public parameters of the release.
    lattice: lattice of the column.
    design: the sums that are released.
  """
  query: Query
  lattice: Lattice
  design: Design

  reads = 'numbers'

  @property
  def width(self) -> int:
    """Returns W, the range of the values in units of the granularity."""
    return self.lattice.high - self.lattice.low

  def _norm(self, power: int) -> int:
    """Returns the largest change of all sums, an integer.

    Args:
      power: 1 for the l1 norm, 2 for the squared l2 norm.
    """
    width, middle = self.width, self.width // 2
    factors = [part.factors for part in self.design.parts.values()]
    factor = 1
    if not self.query.knows_size:
      factor += self.query.replacing  # doubles where a record is replaced

      def change(a: int) -> Sequence[int]:
        return [f * a * width + g * (width - a) * width + h * a * (width - a)
                for f, g, h in factors]
      # Convex in a (W - a), so largest at an end or in the middle.
      places = {0, width, middle}
    else:
      # For l1 a parabola, a W + w a (W - a): the vertex is W (w + 1) / (2 w).
      # For l2 the end a = W is largest, see the module docstring.
      ratio = factors[1][2]
      vertex = width * (ratio + 1) // (2 * ratio)

      def change(a: int) -> Sequence[int]:
        return a * width, ratio * a * (width - a)
      places = {width, min(vertex, width), min(vertex + 1, width)}
    return factor * max(sum(abs(x)**power for x in change(a)) for a in places)

  @functools.cached_property
  def sensitivity(self) -> dict[str, int]:
    """Returns both sensitivities of the vector of all sums, for the meter."""
    return {'l1_sensitivity': self._norm(1),
            'l2_sensitivity_squared': self._norm(2)}

  @functools.cached_property
  def noise(self) -> noise.Noise:
    """Returns the noise of every sum."""
    return noise.calibrated(self.query.cost(), **self.sensitivity)

  @property
  def cost(self) -> Cost:
    """Returns the cost of the noise of all sums together."""
    return self.noise.cost(**self.sensitivity)

  def facts(self) -> dict[str, object]:
    """Returns public facts: rules for values, sums, sensitivity and noise."""
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
    """Returns the number of records and the exact sums of all parts."""
    low, width = self.lattice.low, self.width
    # Integers: float sums would depend on the order of the records.
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
    """Returns the statistic and its intervals, from noisy sums alone."""
    number, sums = measured
    noisy = meter.noisy(sums, self.noise, **self.sensitivity)
    public_number = number if self.query.knows_size else None
    moments = self.moments(noisy, public_number)
    unit = self.lattice.unit**2
    released: dict[str, object] = {'noisy_sums': {
        name: str(value * unit) for name, value in zip(
            self.design.parts, noisy, strict=True)}}
    if self.query.knows_size:
      released['num_records'] = number
    return {**getattr(self, f'_{self.query.statistic}')(moments), **released}

  def moments(self, noisy: list[int],
              number: int | None) -> sample_means.NoisyMoments:
    """Returns noisy sums of t, 1 - t and t (1 - t), and their noise.

    Args:
      noisy: noisy sums of the design's parts.
      number: n if it is public, else None.
    """
    square = self.width**2
    values = [sum(map(Fraction.__mul__, row, map(Fraction, noisy))) / square
              for row in self.design.solution]
    if number is not None:
      values[1] += number
    from_lower, from_upper, products = map(float, values)
    return sample_means.NoisyMoments(
        values=(from_lower, from_upper, products), noise=self.noise,
        weights=tuple(tuple(float(weight / square) for weight in row)
                      for row in self.design.solution))

  def _mean(self, moments: sample_means.NoisyMoments) -> dict[str, object]:
    """Returns the mean in units of the column, with its two intervals."""
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
    """Returns the variance in squared units of the column, with interval."""
    unit = float(self.width * self.lattice.unit)**2
    low, high = sample_means.file_variance(moments, self.query.miss)
    return {'value': unit * moments.variance, 'divisor': 'number of records',
            'interval': queries.interval(
                unit * low, unit * high, level=self.query.confidence,
                covers=_COVERS.format('variance'))}

  def _value(self, mean: float) -> float:
    """Converts a mean of t to the unit of the column."""
    return float((self.lattice.low + Fraction(mean) * self.width)
                 * self.lattice.unit)


def _rules(query: Query, points: Lattice) -> dict[str, str]:
  """Returns the public rules by which values are clamped and rounded."""
  return {
      'clamping': 'values outside the public bounds are clamped to them',
      'missing': query.missing_text,
      'granularity': str(points.granularity),
      'rounding': 'each value to the nearest multiple of the granularity'}


def sums(query: Query) -> Sum:
  """Returns the plan of the sum of a column."""
  return Sum(query=query, lattice=query.lattice())


def mean(query: Query) -> Moments:
  """Returns the plan of the mean; n is public, or a noisy sum estimates it."""
  return _plan(query, ratio=1 if query.delta is None else 3)


def variance(query: Query) -> Moments:
  """Returns the plan of the variance, the mean squared distance to the mean."""
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
