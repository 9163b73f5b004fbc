"""Makes public grids of thresholds, and counts records between them.

A grid must be public: if its ends are the extremes of the records, it reveals
them, whatever noise the curve gets (item EC-02, correction C4).
"""

import dataclasses
import functools

import numpy as np

from dpjax import errors

KINDS = ('uniform', 'geometric')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grid:
  """Thresholds t_1 < ... < t_N = upper, spaced evenly or geometrically.

  Bin j is (t_(j-1), t_j]. Values outside the bounds are clipped to them: the
  first bin has no lower end, the last one no upper end.

  Attributes:
    lower: public lower bound, positive for a geometric grid. It is not a
      threshold itself.
    upper: public upper bound, the last threshold.
    num_thresholds: N.
    kind: one of `KINDS`.
  """
  lower: float
  upper: float
  num_thresholds: int
  kind: str = 'uniform'

  def __post_init__(self) -> None:
    errors.check_choice('kind', self.kind, KINDS)
    errors.check_range(self.lower, self.upper)
    errors.check_at_least('num_thresholds', self.num_thresholds, 1)
    if self.kind == 'geometric':
      errors.check_positive('lower', self.lower)
    if np.any(np.diff(self.thresholds) <= 0):
      raise ValueError(f'{self.num_thresholds} thresholds between {self.lower} '
                       f'and {self.upper} are too close for floats; use fewer '
                       'or a wider range')

  @functools.cached_property
  def thresholds(self) -> np.ndarray:
    """Thresholds t_1 < ... < t_N, [N] float64."""
    shares = np.arange(1, self.num_thresholds + 1) / self.num_thresholds
    if self.kind == 'geometric':
      inner = self.lower * (self.upper / self.lower)**shares
    else:
      inner = self.lower + (self.upper - self.lower) * shares
    return np.append(inner[:-1], self.upper)

  def bins(self, values: np.ndarray) -> np.ndarray:
    """Returns the bins of values [n], int32 from 0 to N - 1.

    Raises:
      ValueError: if a value is NaN; a public rule has to replace NaN
        beforehand.
    """
    values = np.asarray(values, np.float64)
    if np.isnan(values).any():
      raise ValueError('values must be numbers, got NaN')
    return np.minimum(np.searchsorted(self.thresholds, values),
                      self.num_thresholds - 1).astype(np.int32)

  def counts(self, values: np.ndarray) -> np.ndarray:
    """Returns the number of records in each bin, [N] int64; raises as `bins`.
    """
    return np.bincount(self.bins(values), minlength=self.num_thresholds)

  def ranks(self, values: np.ndarray) -> np.ndarray:
    """Returns ranks #{x <= t_j}, [N] int64; records above `upper` count at it.
    """
    return np.cumsum(self.counts(values))


def of_records(values: np.ndarray, num_thresholds: int, *,
               allow_unsound: bool = False) -> Grid:
  """Returns the grid between the extremes of the records, which is NOT private.

  Barczewski (2025, section 6.2.2) uses this grid, but replacing the largest
  record changes where the curve ends. It is kept to demonstrate that.

  Raises:
    ValueError: unless `allow_unsound`.
  """
  if not allow_unsound:
    raise ValueError('a grid between the extremes of the records is not '
                     'private: use Grid with public bounds')
  return Grid(lower=float(np.min(values)), upper=float(np.max(values)),
              num_thresholds=num_thresholds)


def check_grid(grid: Grid) -> Grid:
  """Returns `grid` if it is a `Grid`; arrays of thresholds are rejected."""
  if not isinstance(grid, Grid):
    raise TypeError('grid must be a stats.Grid(lower=, upper=, '
                    f'num_thresholds=), got {type(grid).__name__}')
  return grid
