"""Scores that show on which grid the outputs of a release lie.

Floating-point noise is rounded to multiples of a power of two that depends on
what it is added to; discrete noise lies on a grid whose spacing or offset may
depend on the data. Either reveals the data to who looks at remainders.
"""

from collections.abc import Callable, Iterator
import functools

import numpy as np
from scipy import special

# Grids of multiples of a unit are divided by these numbers.
_UNITS, _DIVISORS = (1.0, 0.1, 0.01, 0.001), (2, 3, 4, 5, 7, 9, 10, 11, 13)
# Allowance for the rounding of decimal fractions, in units.
_OFF = 1e-4
# A grid is at least this fine, and its spacing this much more than rounding.
_FINEST, _ROUNDING = 1e-6, 2.0**-20
_PARTS = 16
# Remainders are kept if the learnt samples differ at this p-value.
_LEVEL = 1e-3

Score = Callable[[np.ndarray], np.ndarray]


def lowest_bits(values: np.ndarray) -> np.ndarray:
  """Returns exponents [n] of the largest powers of two that divide values [n].

  Floating-point noise added to a number is rounded to a multiple of a power of
  two that depends on the number, so the possible sums reveal the number. The
  exponents are those of float64: all 53 bits of a released double count.
  """
  mantissa, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
  # A float64 has 53 significant bits, so this product is an integer.
  whole = np.abs(mantissa * 2.0**53).astype(np.int64)
  # x & -x keeps only the lowest bit of an integer in two's complement.
  lowest = np.log2(np.maximum(whole & -whole, 1).astype(np.float64))
  # Every power divides 0: its score is above all exponents of a float64.
  return np.where(whole == 0, 1100.0, exponent - 53 + lowest)


def remainders(ours: np.ndarray,
               theirs: np.ndarray) -> Iterator[tuple[float, Score]]:
  """Yields (p-value, score) of remainders in which two samples [n] differ.

  A score maps values [n] to numbers [n]. The p-value is of a chi-square test on
  the samples that were searched: it ranks remainders, and refutes nothing.
  """
  ours, theirs = (x[np.isfinite(x)] for x in (ours, theirs))
  if min(ours.size, theirs.size) < 2 * _PARTS:
    return
  for spacing, offset in _grids(ours, theirs):
    score = functools.partial(_phase, spacing, offset)
    value = _p_value(score(ours), score(theirs))
    if value <= _LEVEL:
      yield value, score


def _grids(ours: np.ndarray,
           theirs: np.ndarray) -> Iterator[tuple[float, float]]:
  """Yields (spacing, offset) of grids that may tell the samples apart."""
  both = np.concatenate([ours, theirs])
  # Sums of large floats are whole numbers: that says nothing of the release.
  least = float(np.quantile(np.abs(both), 0.8)) * (
      2.0**-23 if np.all(np.float32(both) == both) else 2.0**-52)
  for unit in _UNITS:
    if unit > least and np.all(
        np.abs(both / unit - np.round(both / unit)) <= _OFF):
      yield from ((divisor * unit, 0.0) for divisor in _DIVISORS)
      break
  for values in (ours, theirs):
    spacing = _spacing(values)
    if spacing:
      offset = float(values.min())
      yield from ((factor * spacing, offset) for factor in (1, 2, 3, 5))


def _spacing(values: np.ndarray) -> float:
  """Returns the spacing of the grid on which values [n] lie, or 0."""
  scale = float(np.subtract(*np.quantile(values, [0.9, 0.1])))
  least = max(_FINEST * scale, _ROUNDING * float(np.abs(values).max()))
  offsets = np.sort(values - values.min())
  gaps = np.diff(offsets)
  # Decimal grids are off by rounding, so nearly equal values count as equal.
  gaps = gaps[gaps > least]
  if not gaps.size or not 4 * least < gaps.min() < np.inf:
    return 0.0
  spacing, span = float(gaps.min()), 8.0 * float(gaps.min())
  # The error of one gap grows with distance, so it is fitted to longer spans.
  while span < 64 * offsets[-1]:
    longest = float(offsets[np.searchsorted(offsets, span) - 1])
    spacing = longest / max(1.0, np.round(longest / spacing)) or spacing
    span *= 8
  turns = offsets / spacing
  on_grid = np.abs(turns - np.round(turns)).max() < 0.01
  return spacing if on_grid else 0.0


def _phase(spacing: float, offset: float, values: np.ndarray) -> np.ndarray:
  """Returns remainders of values [n] in 16 parts; NaN where not finite."""
  with np.errstate(invalid='ignore', over='ignore'):
    # A quarter more keeps rounding of the grid's own points from wrapping.
    turns = (values - offset) / spacing + 0.25 / _PARTS
    return np.floor(_PARTS * (turns - np.floor(turns)))


def _p_value(ours: np.ndarray, theirs: np.ndarray) -> float:
  """Returns the chi-square p-value of two samples of 0..15 being alike."""
  table = np.stack([np.bincount(x.astype(int), minlength=_PARTS + 1)
                    for x in (ours, theirs)])
  table = table[:, table.sum(0) > 0]
  if table.shape[1] < 2:
    return 1.0
  expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
  statistic = np.sum((table - expected)**2 / expected)
  return float(special.chdtrc(table.shape[1] - 1, statistic))
