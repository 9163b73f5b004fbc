"""Public thresholds of a curve, and the bin that a number falls into.

Thresholds are decimal numbers, and records are compared with them exactly.
"""

import bisect
import dataclasses
import functools

from dpjax import errors
from dpjax.release import lattice
from dpjax.release.query import Query
from dpjax.release.query import THRESHOLDS
from dpjax.stats.ecdf_methods import grids

Decimal = lattice.Decimal

_MOST = 2**14


@dataclasses.dataclass(frozen=True, kw_only=True)
class Thresholds:
  """Thresholds t_1 < ... < t_N; bin j holds the interval (t_(j-1), t_j].

  Values beyond the bounds are clamped: the first bin has no lower end, and the
  last bin no upper end.

  Attributes:
    lower: public lower bound of the first bin.
    points: [N] public thresholds.
  """
  lower: Decimal
  points: tuple[Decimal, ...]

  def __post_init__(self) -> None:
    if not 2 <= len(self.points) <= _MOST:
      raise ValueError(f'there must be 2 to {_MOST} thresholds, got '
                       f'{len(self.points)}')
    if any(a >= b for a, b in zip(self.points, self.points[1:])):
      raise ValueError('thresholds must increase after rounding to 15 digits')

  @property
  def upper(self) -> Decimal:
    """Returns the last threshold."""
    return self.points[-1]

  def bin(self, value: Decimal) -> int:
    """Returns the bin of a number, from 0 to N - 1."""
    # Decimals compare exactly; a float could put a value beside its threshold.
    return min(bisect.bisect_left(self.points, value), len(self.points) - 1)

  @functools.cached_property
  def floats(self) -> list[float]:
    """Returns the [N] thresholds as floats, for JSON."""
    return [float(point) for point in self.points]


def of_query(query: Query) -> Thresholds:
  """Returns the thresholds given as bins, or a grid between the bounds.

  Raises:
    ValueError: if both or neither are given, or if the grid is too fine.
  """
  given = (query.lower, query.upper, query.thresholds, query.grid)
  if query.bins:
    if any(value is not None for value in given):
      raise ValueError(f'{query.statistic} takes bins, or lower, upper, '
                       'thresholds and grid')
    return Thresholds(lower=query.bins[0], points=query.bins)
  if query.lower is None or query.upper is None:
    raise ValueError(f'{query.statistic} needs lower and upper, or bins')
  number = THRESHOLDS if query.thresholds is None else query.thresholds
  if not 2 <= number <= _MOST:
    raise ValueError(f'thresholds must be 2 to {_MOST}, got {number}')
  kind = query.grid or grids.KINDS[0]
  errors.check_choice('grid', kind, grids.KINDS)
  grid = grids.Grid(lower=float(query.lower), upper=float(query.upper),
                     num_thresholds=number, kind=kind)
  # 15 digits: 0.3, not 0.30000000000000004. The last is the bound itself.
  points = [Decimal(f'{point:.15g}') for point in grid.thresholds[:-1]]
  return Thresholds(lower=query.lower, points=(*points, query.upper))
