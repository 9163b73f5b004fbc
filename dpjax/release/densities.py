"""The density of a column, from noisy counts of equal bins.

Private are the counts alone; their number M follows from n and the noise, both
public: n is under replace-one, and under add-or-remove-one a twentieth of the
budget buys a noisy n first, for which M may be chosen (composition, whatever
the answer). All else is post-processing, that of `stats.density.adaptive`:
coefficients of splines, or of waves on a circle, shrunk by their own size, and
the nearest density.

Numbers often come rounded, ages to years, and bins that hold three years here
and four there would make a comb of them. So a record counts as spread evenly
over the cell [v, v + granularity) of its number v: by the share of the cell
that a bin has. Shares are whole numbers of 1 / D, of which a record has D: one
that is replaced moves 2 D of them, and nothing is rounded.
"""

import collections
from collections.abc import Iterable, Mapping
import dataclasses
import decimal
import fractions
import functools
import math

import numpy as np

from dpjax import errors
from dpjax.release import bands
from dpjax.release import curves
from dpjax.release import density_bands
from dpjax.release import noise
from dpjax.release import query as queries
from dpjax.release.costs import Cost
from dpjax.release.meter import Meter
from dpjax.release.query import Query
from dpjax.stats.density import bases

Fraction = fractions.Fraction

_CELLS = 10**6
_BASES = {
    'spline': 'vectors of heights of bins, orthogonal, of sums of squared '
              'second differences that rise: 1, a line, ...; between bins the '
              'derivative of the cubic spline through sums of heights',
    'fourier': '1, and exp(2 pi i k u) and its conjugate, k = 1, 2, ..., u '
               'from 0 to 1 between the bounds, which are one point'}
_VALUES = ('mean densities between one threshold and the next; they integrate '
           'to 1')
_DIGITS = 200
_MOST_BINS = 1023
_COUNT_SHARE = Fraction(1, 20)


def bin_shares(cells: Mapping[int, int], num_cells: int, num_bins: int
               ) -> tuple[list[int], int]:
  """Records of cells spread over bins: M numbers, in units of 1 / D, and D.

  Args:
    cells: how many records are in a cell, of equal ones.
    num_cells: C, of all.
    num_bins: M, equal too, at most C: a cell is in two bins at most.
  """
  common = math.gcd(num_cells, num_bins)
  width, size = num_cells // common, num_bins // common  # of a bin, of a cell
  found = [0] * num_bins
  for cell, count in cells.items():
    place, offset = divmod(cell * size, width)
    inside = min(size, width - offset)
    found[place] += count * inside
    if inside < size:
      found[place + 1] += count * (size - inside)
  return found, size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Density:
  """Noisy counts of bins, and the curve that they tell of.

  Attributes:
    query: what is asked.
    num_cells: C, of the lattice between the bounds.
  """
  query: Query
  num_cells: int

  reads = 'numbers'

  @property
  def asked(self) -> Query:
    """Of any confidence and boundary: the counts are the same."""
    return dataclasses.replace(
        self.query, confidence=Query.confidence, boundary=None)

  @property
  def basis(self) -> str:
    """Of the curve, one of `bases.BASES`."""
    return bases.BOUNDARIES[self.query.boundary or 'interval']

  @functools.cached_property
  def noise_of_records(self) -> noise.Noise | None:
    """Of n, where it is private."""
    return None if self.query.knows_size else noise.calibrated(
        _share(self.query.cost(), _COUNT_SHARE), l1_sensitivity=1,
        l2_sensitivity_squared=1)

  def noise_of_bins(self, parts: int) -> noise.Noise:
    """Of each bin, in units of 1 / D; `parts` is D."""
    left = self.query.cost()
    if not self.query.knows_size:
      left = _share(left, 1 - _COUNT_SHARE)
    return noise.calibrated(left, **self._sensitivities(parts))

  def _sensitivities(self, parts: int) -> dict[str, int]:
    moved = 1 + self.query.replacing
    return {'l1_sensitivity': moved * parts,
            'l2_sensitivity_squared': moved * parts**2}

  @property
  def cost(self) -> Cost:
    """Of all counts; the same for any number of bins."""
    spent = self.noise_of_bins(1).cost(**self._sensitivities(1))
    if self.query.knows_size:
      return spent
    first = self.noise_of_records.cost(l1_sensitivity=1,
                                       l2_sensitivity_squared=1)
    return Cost(**{name: getattr(spent, name) + getattr(first, name)
                   for name in spent.to_json()})

  def facts(self) -> dict[str, object]:
    """What is public."""
    return {
        'clamping': 'values outside the public bounds are clamped to them',
        'missing': self.query.missing_text,
        'rounding': f'each value down to one of {self.num_cells} cells between '
                    'the bounds; its record counts in each bin by the share of '
                    'the cell that lies there'}

  def measure(self, fields: Iterable[object]) -> collections.Counter[int]:
    """The exact numbers of records of cells."""
    query = self.query
    low, high = Fraction(query.lower), Fraction(query.upper)
    rate = self.num_cells / (high - low)
    found = collections.Counter(query.numbers(fields, query.lower,
                                              query.upper))
    cells = collections.Counter()
    for value, count in found.items():
      if value >= query.upper:
        cells[self.num_cells - 1] += count
      elif value <= query.lower:
        cells[0] += count
      else:
        # Tiny numbers may have exponents whose power of ten fits nowhere.
        near = Fraction(value) if value.adjusted() > -_DIGITS else Fraction(0)
        cells[max(0, math.floor((near - low) * rate))] += count
    return cells

  def draw(self, measured: Mapping[int, int],
           meter: Meter) -> dict[str, object]:
    """Noisy counts of bins, and n: noisy, or exact where it is public."""
    number, known = sum(measured.values()), {}
    if self.query.knows_size:
      known = {'num_records': number}
    else:
      number, = meter.noisy([number], self.noise_of_records, l1_sensitivity=1,
                            l2_sensitivity_squared=1)
      known = {'noisy_records': number}
    num_bins = bases.adaptive_bins(
        max(number, 1), self.noise_of_bins(1).deviation**2,
        # Odd, for a circle.
        most=min(_MOST_BINS, self.num_cells - 1 + self.num_cells % 2))
    shares, parts = bin_shares(measured, self.num_cells, num_bins)
    law = self.noise_of_bins(parts)
    return {'noisy_counts': meter.noisy(shares, law,
                                        **self._sensitivities(parts)),
            **known, 'noise': self._told(law, parts)}

  def _told(self, law: noise.Noise, parts: int) -> dict[str, object]:
    moved = str(1 + self.query.replacing)
    told = {'bins': {'unit': str(Fraction(1, parts)), 'l1_sensitivity': moved,
                     'l2_sensitivity_squared': moved, **law.to_json()}}
    if not self.query.knows_size:
      told['records'] = {'unit': '1', 'l1_sensitivity': '1',
                         'l2_sensitivity_squared': '1',
                         **self.noise_of_records.to_json()}
    return told

  def view(self, released: Mapping[str, object]) -> dict[str, object]:
    """The curve, with bands for the file and for the population."""
    fit = self._fit(released)
    low, width = float(self.query.lower), float(
        Fraction(self.query.upper) - Fraction(self.query.lower))
    miss, level = self.query.miss, float(self.query.confidence)
    num_bins, points = len(fit.counted.bins), density_bands.POINTS
    heights = fit.counted.bins * (num_bins / fit.counted.number / width)

    def band(masses, whose, what):
      lower, upper = fit.band(miss, masses)
      return {'lower': (lower / width).tolist(),
              'upper': (upper / width).tolist(), 'level': level, 'covers':
              f'for all thresholds at once: the first {fit.kept} components of '
              f'the density of {whose}, as the {num_bins} bins have it, 0 '
              f'where they are negative; {what}; not what components beyond '
              'would add'}

    return {
        'thresholds': [low + width * k / points for k in range(points + 1)],
        'value': (fit.value / width).tolist(), 'values_are': _VALUES,
        'interval': band(None, 'the clamped values of the file', 'noise only'),
        'population_interval': band(
            fit.masses(), 'what the records are independent draws from, '
            f'clamped{self.query.missing_assumption}',
            'sampling, by a bootstrap from the curve, and noise'),
        'histogram': {'num_bins': num_bins, 'heights': heights.tolist(),
                      'of': 'noisy counts, as densities'},
        'components': {'basis': _BASES[self.basis], 'kept': fit.kept,
                       'weights': fit.weights[:fit.kept].tolist()},
        'simulations': curves.simulations(miss)}

  def _fit(self, released: Mapping[str, object]) -> density_bands.Fit:
    unit = Fraction(released['noise']['bins']['unit'])
    return density_bands.Fit(density_bands.counted(
        released['noisy_counts'], unit=float(unit),
        law=self.noise_of_bins(unit.denominator),
        num_records=released.get('num_records'),
        noisy_records=released.get('noisy_records'),
        noise_of_number=self.noise_of_records), self.basis)

  def synthetic(self, released: Mapping[str, object],
                number: int) -> list[str]:
    """Numbers drawn from the curve, by a fixed seed; as private as it is.

    Each is the lower end of its cell, as are numbers that were rounded.
    """
    generator = np.random.default_rng(bands.SEED)
    ends = np.append(0.0, np.cumsum(self._fit(released).value))
    places = np.interp(ends[-1] * generator.random(number), ends,
                       np.linspace(0, 1, len(ends)))
    cells = np.minimum(places * self.num_cells, self.num_cells - 1)
    with decimal.localcontext(prec=200):  # exact: public and of few digits
      step = (self.query.upper - self.query.lower) / self.num_cells
      return [f'{(self.query.lower + int(cell) * step).normalize():f}'
              for cell in cells]


def density(query: Query) -> Density:
  """The density between public bounds."""
  bands.check_confidence(query)
  if query.boundary is not None:
    errors.check_choice('boundary', query.boundary, tuple(bases.BOUNDARIES))
  width = Fraction(query.upper) - Fraction(query.lower)
  if query.granularity is None:
    return Density(query=query, num_cells=_CELLS)
  unit = Fraction(query.granularity)
  if unit <= 0 or width % unit or width < 3 * unit:
    raise ValueError('granularity must go into upper - lower a whole number of '
                     f'times, 3 or more, got {query.granularity}')
  return Density(query=query, num_cells=int(width / unit))


def _share(cost: Cost, part: Fraction) -> Cost:
  return Cost(**{name: part * getattr(cost, name) for name in cost.to_json()})


STATISTICS = (
    queries.Statistic(
        name='density', help='of the clamped values between the bounds, a '
        'smooth curve with bands; of whole numbers with --granularity=1',
        needs=('column', 'lower', 'upper'),
        takes=('granularity', 'boundary', 'missing'), plan=density),
)
