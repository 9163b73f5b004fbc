"""Public grids of thresholds, and the bins between them.

A grid has to be public: one whose ends are the extremes of the records gives
them away, whatever noise is added to the curve (item EC-02, correction C4).
"""

import dataclasses
import functools

import numpy as np

from dpjax import errors

KINDS = ('uniform', 'geometric')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grid:
  """Thresholds t_1 < ... < t_N = upper, evenly spaced, or their logarithms.

  Bin j holds (t_(j-1), t_j]. What lies beyond the bounds counts as they do: the
  first bin starts below `lower`, the last one has no end.

  Attributes:
    lower: public; of a geometric grid positive. It is no threshold itself.
    upper: public; the last threshold.
    num_thresholds: N.
    kind: one of `KINDS`.
  """
  lower: float
  upper: float
  num_thresholds: int
  kind: str = 'uniform'

  def __post_init__(self):
    errors.check_choice('kind', self.kind, KINDS)
    errors.check_range(self.lower, self.upper)
    errors.check_at_least('num_thresholds', self.num_thresholds, 1)
    if self.kind == 'geometric':
      errors.check_positive('lower', self.lower)
    if np.any(np.diff(self.thresholds) <= 0):
      raise ValueError(f'{self.num_thresholds} thresholds between {self.lower} '
                       f'and {self.upper} are closer than floats are')

  @functools.cached_property
  def thresholds(self) -> np.ndarray:
    """[N] float64, increasing."""
    shares = np.arange(1, self.num_thresholds + 1) / self.num_thresholds
    if self.kind == 'geometric':
      inner = self.lower * (self.upper / self.lower)**shares
    else:
      inner = self.lower + (self.upper - self.lower) * shares
    return np.append(inner[:-1], self.upper)

  def bins(self, values: np.ndarray) -> np.ndarray:
    """Bins of values [n], int32 from 0 to N - 1.

    Raises:
      ValueError: for values that are NaN; what they count as is to be decided
        by a public rule before.
    """
    values = np.asarray(values, np.float64)
    if np.isnan(values).any():
      raise ValueError('values must be numbers, got NaN')
    return np.minimum(np.searchsorted(self.thresholds, values),
                      self.num_thresholds - 1).astype(np.int32)

  def counts(self, values: np.ndarray) -> np.ndarray:
    """Records in each bin, [N] int64; errors as `bins`."""
    return np.bincount(self.bins(values), minlength=self.num_thresholds)

  def ranks(self, values: np.ndarray) -> np.ndarray:
    """How many x <= t_j, [N] int64; above `upper` is at it, as for `bins`."""
    return np.cumsum(self.counts(values))


def of_records(values: np.ndarray, num_thresholds: int, *,
               allow_unsound: bool = False) -> Grid:
  """The grid between the extremes of the records: NOT private.

  Printed so in thesis 003, section 6.2.2: who replaces the largest record
  changes where the curve ends. Kept to show that.

  Raises:
    ValueError: unless `allow_unsound`.
  """
  if not allow_unsound:
    raise ValueError('a grid between the extremes of the records is not '
                     'private: name public bounds')
  return Grid(lower=float(np.min(values)), upper=float(np.max(values)),
              num_thresholds=num_thresholds)
