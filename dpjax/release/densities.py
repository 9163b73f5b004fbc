"""The density of a column, from noisy counts of equal bins.

Only the counts use the data. Their number M depends on n and on the noise. n is
public under replace-one. Under add-or-remove-one a twentieth of the budget buys
a noisy n first, and M may depend on it by adaptive composition. The rest is
post-processing (`density_methods.adaptive`): coefficients of splines, or of
Fourier series on a circle, are shrunk by their own size, and the nearest
density is taken.

Numbers often come rounded, such as ages to years. Bins that hold three years
here and four there would give a density like a comb. So a record with the
number v counts as spread evenly over the cell [v, v + granularity): each bin
gets the fraction of the cell inside it. Fractions are integers in units of
1 / D, and a record has D of them, so nothing is rounded.
"""

import collections
from collections.abc import Iterable, Mapping
import dataclasses
import decimal
import fractions
import functools
import math
from typing import Any

import numpy as np

from dpjax.release import bands
from dpjax.release import curves
from dpjax.release import density_bands
from dpjax.release import noise
from dpjax.release import query as queries
from dpjax.release.costs import Cost
from dpjax.release.meter import Meter
from dpjax.release.query import Query
from dpjax.stats.density_methods import bases

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
  """Returns M bin counts in units of 1 / D, with records spread over cells.

  Args:
    cells: number of records in each cell of equal width.
    num_cells: C, the number of cells.
    num_bins: M, the number of equal bins, at most C, so that a cell meets at
      most two bins.

  Returns:
    The M counts in units of 1 / D, and D.
  """
  # In units of 1 / D of a cell, cells and bins have whole widths.
  common = math.gcd(num_cells, num_bins)
  width, size = num_cells // common, num_bins // common  # of a bin, of a cell
  counts = [0] * num_bins
  for cell, count in cells.items():
    place, offset = divmod(cell * size, width)
    inside = min(size, width - offset)
    counts[place] += count * inside
    if inside < size:
      counts[place + 1] += count * (size - inside)
  return counts, size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Density:
  """Noisy counts of bins, and the density curve that they determine.

  Attributes:
    query: public parameters of the release.
    num_cells: C, the number of cells between the bounds.
  """
  query: Query
  num_cells: int

  reads = 'numbers'

  @property
  def asked(self) -> Query:
    """Returns the query that all confidences and boundaries share."""
    return dataclasses.replace(
        self.query, confidence=Query.confidence, boundary=None)

  @property
  def basis(self) -> str:
    """Returns the basis of the curve, one of `bases.BASES`."""
    return bases.BOUNDARIES[self.query.boundary or 'interval']

  @functools.cached_property
  def noise_of_records(self) -> noise.Noise | None:
    """Returns the noise of n, or None if n is public."""
    return None if self.query.knows_size else noise.calibrated(
        self.query.cost().part(_COUNT_SHARE), l1_sensitivity=1,
        l2_sensitivity_squared=1)

  def noise_of_bins(self, parts: int) -> noise.Noise:
    """Returns the noise of each bin in units of 1 / D; `parts` is D."""
    left = self.query.cost()
    if not self.query.knows_size:
      left = left.part(1 - _COUNT_SHARE)
    return noise.calibrated(left, **self._sensitivities(parts))

  def _sensitivities(self, parts: int) -> dict[str, int]:
    # A record has D units in one or two bins. Units are not negative, so for
    # two records |v - v'|^2 <= |v|^2 + |v'|^2 <= 2 D^2, and likewise in l1.
    changed = 1 + self.query.replacing
    return {'l1_sensitivity': changed * parts,
            'l2_sensitivity_squared': changed * parts**2}

  @property
  def cost(self) -> Cost:
    """Returns the cost of all counts; it does not depend on M."""
    # Noise scales with the units of a record, so their number D cancels.
    spent = self.noise_of_bins(1).cost(**self._sensitivities(1))
    if self.noise_of_records is None:
      return spent
    return spent + self.noise_of_records.cost(l1_sensitivity=1,
                                              l2_sensitivity_squared=1)

  def facts(self) -> dict[str, object]:
    """Returns public facts: rules for values, and their rounding."""
    return {
        'clamping': 'values outside the public bounds are clamped to them',
        'missing': self.query.missing_text,
        'rounding': f'each value down to one of {self.num_cells} cells between '
                    'the bounds; its record counts in each bin by the share of '
                    'the cell that lies there'}

  def measure(self, fields: Iterable[object]) -> collections.Counter[int]:
    """Returns the exact, private numbers of records of the cells."""
    query = self.query
    lower, upper = query.bounds
    low, high = Fraction(lower), Fraction(upper)
    rate = self.num_cells / (high - low)
    value_counts = collections.Counter(query.numbers(fields, lower, upper))
    cells: collections.Counter[int] = collections.Counter()
    for value, count in value_counts.items():
      if value >= upper:
        cells[self.num_cells - 1] += count
      elif value <= lower:
        cells[0] += count
      else:
        # For a tiny number, 10 to its exponent would not fit in memory.
        rounded = (Fraction(value) if value.adjusted() > -_DIGITS
                   else Fraction(0))
        cells[max(0, math.floor((rounded - low) * rate))] += count
    return cells

  def draw(self, measured: Mapping[int, int],
           meter: Meter) -> dict[str, object]:
    """Returns noisy counts of bins, and n: noisy, or exact if it is public."""
    number, size_facts = sum(measured.values()), {}
    if self.noise_of_records is None:
      size_facts = {'num_records': number}
    else:
      number, = meter.noisy([number], self.noise_of_records, l1_sensitivity=1,
                            l2_sensitivity_squared=1)
      size_facts = {'noisy_records': number}
    num_bins = bases.adaptive_bins(
        max(number, 1), self.noise_of_bins(1).deviation**2,
        # An odd number of bins, which the Fourier basis needs.
        most=min(_MOST_BINS, self.num_cells - 1 + self.num_cells % 2))
    shares, parts = bin_shares(measured, self.num_cells, num_bins)
    bin_noise = self.noise_of_bins(parts)
    return {'noisy_counts': meter.noisy(shares, bin_noise,
                                        **self._sensitivities(parts)),
            **size_facts, 'noise': self._noise_facts(bin_noise, parts)}

  def _noise_facts(self, bin_noise: noise.Noise,
                   parts: int) -> dict[str, object]:
    """Returns the noise of bins, and of a private n, for the release JSON."""
    sensitivity = str(1 + self.query.replacing)
    noise_facts: dict[str, object] = {'bins': {
        'unit': str(Fraction(1, parts)), 'l1_sensitivity': sensitivity,
        'l2_sensitivity_squared': sensitivity, **bin_noise.to_json()}}
    if self.noise_of_records is not None:
      noise_facts['records'] = {
          'unit': '1', 'l1_sensitivity': '1', 'l2_sensitivity_squared': '1',
          **self.noise_of_records.to_json()}
    return noise_facts

  def view(self, released: Mapping[str, Any]) -> dict[str, object]:
    """Returns the curve, with bands for the file and for the population."""
    fit = self._fit(released)
    lower, upper = self.query.bounds
    low, width = float(lower), float(Fraction(upper) - Fraction(lower))
    miss, level = self.query.miss, float(self.query.confidence)
    num_bins, points = len(fit.counted.bins), density_bands.POINTS
    heights = fit.counted.bins * (num_bins / fit.counted.number / width)

    def band(masses: np.ndarray | None, target: str,
             error_sources: str) -> dict[str, object]:
      least, most = fit.band(miss, masses)
      return {'lower': (least / width).tolist(),
              'upper': (most / width).tolist(), 'level': level, 'covers':
              f'for all thresholds at once: the first {fit.kept} components of '
              f'the density of {target}, as the {num_bins} bins have it, 0 '
              f'where they are negative; {error_sources}; not what components '
              'beyond would add'}

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

  def _fit(self, released: Mapping[str, Any]) -> density_bands.Fit:
    unit = Fraction(released['noise']['bins']['unit'])
    return density_bands.Fit(density_bands.counted(
        released['noisy_counts'], unit=float(unit),
        bin_noise=self.noise_of_bins(unit.denominator),
        num_records=released.get('num_records'),
        noisy_records=released.get('noisy_records'),
        noise_of_number=self.noise_of_records), self.basis)

  def synthetic(self, released: Mapping[str, Any],
                number: int) -> list[str]:
    """Returns numbers drawn from the curve with a fixed seed; costs nothing.

    Each number is the lower end of a cell, like rounded numbers of the file.
    """
    lower, upper = self.query.bounds
    generator = np.random.default_rng(bands.SEED)
    ends = np.append(0.0, np.cumsum(self._fit(released).value))
    places = np.interp(ends[-1] * generator.random(number), ends,
                       np.linspace(0, 1, len(ends)))
    cells = np.minimum(places * self.num_cells, self.num_cells - 1)
    with decimal.localcontext(prec=200):  # exact: bounds have few digits
      step = (upper - lower) / self.num_cells
      return [f'{(lower + int(cell) * step).normalize():f}'
              for cell in cells]


def density(query: Query) -> Density:
  """Returns the plan of the density between public bounds."""
  bands.check_confidence(query)
  lower, upper = query.bounds
  width = Fraction(upper) - Fraction(lower)
  if query.granularity is None:
    return Density(query=query, num_cells=_CELLS)
  unit = Fraction(query.granularity)
  if unit <= 0 or width % unit or width < 3 * unit:
    raise ValueError('granularity must divide upper - lower into 3 or more '
                     f'equal parts, got {query.granularity}')
  return Density(query=query, num_cells=int(width / unit))


STATISTICS = (
    queries.Statistic(
        name='density', help='density of the clamped values between the '
        'bounds, a smooth curve with bands; of whole numbers with '
        '--granularity=1',
        needs=('column', 'lower', 'upper'),
        takes=('granularity', 'boundary', 'missing'), plan=density),
)
