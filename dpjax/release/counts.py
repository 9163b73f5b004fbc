"""Releases numbers of records: all, in a range, or in cells of a histogram."""

import bisect
from collections.abc import Iterable, Iterator, Sequence
import dataclasses

from dpjax.release import lattice
from dpjax.release import noise
from dpjax.release import query as queries
from dpjax.release.costs import Cost
from dpjax.release.meter import Meter
from dpjax.release.query import Query

OTHER = '(other)'


def category_places(fields: Iterable[object],
                    categories: Sequence[str]) -> Iterator[int]:
  """Yields the index of the category of each field.

  Args:
    fields: texts of a column; None for a null of a Parquet file.
    categories: [k] public texts, all different.

  Returns:
    Indices in 0, ..., k - 1, and k for a field that is no category. It never
    raises, whatever the fields are.
  """
  places = {name: place for place, name in enumerate(categories)}
  # A null of a Parquet file is no category, even if one is named 'None'.
  return (len(places) if field is None else
          places.get(str(field).strip(), len(places)) for field in fields)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts(queries.Direct):
  """Counts of disjoint cells, each with independent noise.

  A record is in at most one cell. Adding or removing it changes one count by 1;
  replacing it changes two counts by 1, or one if there is only one cell.

  Attributes:
    query: public parameters of the release.
    cells: names of the cells.
    reads: fields that `measure` takes, see `query.Plan`.
  """
  query: Query
  cells: tuple[str, ...]
  reads: str

  @property
  def sensitivity(self) -> int:
    """Returns the l1 sensitivity of all counts, and the square of the l2 one.
    """
    # Each count changes by 1 at most, so both norms count the changed cells.
    return 2 if self.query.replacing and len(self.cells) > 1 else 1

  @property
  def noise(self) -> noise.Noise:
    """Returns the noise of each count."""
    return noise.calibrated(self.query.cost(), l1_sensitivity=self.sensitivity,
                            l2_sensitivity_squared=self.sensitivity)

  @property
  def cost(self) -> Cost:
    """Returns the cost of all counts together."""
    return self.noise.cost(l1_sensitivity=self.sensitivity,
                           l2_sensitivity_squared=self.sensitivity)

  def facts(self) -> dict[str, object]:
    """Returns public facts: unit, rules for values, sensitivity and noise."""
    rules: dict[str, object] = {}
    if self.query.statistic == 'histogram':
      rules = {'clamping': 'values outside the bins count in the first or last',
               'missing': self.query.missing_text}
      if self.reads == 'texts':
        rules = {'missing': f'whatever is no category counts as {OTHER}'}
    elif self.query.column:
      rules = {'missing': 'a record without a number is in no range'}
    return {'unit': '1', **rules, 'noise': {'counts': {
        'l1_sensitivity': str(self.sensitivity),
        'l2_sensitivity_squared': str(self.sensitivity),
        **self.noise.to_json()}}}

  def measure(self, fields: Iterable[object]) -> list[int]:
    """Returns the exact, private counts."""
    counts = [0] * len(self.cells)
    for cell in self._cells(fields):
      counts[cell] += 1
    return counts

  def _cells(self, fields: Iterable[object]) -> Iterable[int]:
    """Yields the index of the cell of each record that is in one."""
    query = self.query
    if self.reads == 'records':
      return (0 for _ in fields)
    if self.reads == 'texts':
      return category_places(fields, query.categories)
    if query.bins:
      values = query.numbers(fields, query.bins[0], query.bins[-1])
      inner = query.bins[1:-1]
      return (bisect.bisect_right(inner, value) for value in values)
    lower, upper = query.bounds
    return (0 for value in map(lattice.number, fields)
            if value is not None and lower <= value <= upper)

  def draw(self, measured: list[int], meter: Meter) -> dict[str, object]:
    """Returns noisy counts with simultaneous intervals."""
    count_noise, level = self.noise, self.query.confidence
    # Each of k intervals misses with at most miss / k (Bonferroni). Clipping at
    # 0 loses no coverage, because no exact count is negative.
    width = count_noise.half_width(self.query.miss / len(self.cells))
    noisy = meter.noisy(measured, count_noise, l1_sensitivity=self.sensitivity,
                        l2_sensitivity_squared=self.sensitivity)
    covers = ('the number of records' if len(noisy) == 1 else
              'the numbers of records of all cells at once')
    intervals = [queries.interval(max(0, count - width),
                                  max(0, count + width), level=level,
                                  covers=f'{covers}; noise only')
                 for count in noisy]
    if self.query.statistic == 'count':
      return {'value': noisy[0], 'interval': intervals[0]}
    return {'value': dict(zip(self.cells, noisy, strict=True)),
            'interval': dict(zip(self.cells, intervals, strict=True))}


def count(query: Query) -> Counts:
  """Returns the plan of a count of all records, or of those in a range."""
  bounds = (query.column, query.lower, query.upper)
  if None in bounds and any(bound is not None for bound in bounds):
    raise ValueError('count needs column, lower and upper, for the records '
                     'between them, or none of the three, for all')
  if query.column is None and query.replacing:
    raise ValueError('the number of records is public under replace_one: '
                     'there is nothing to release')
  return Counts(query=query, cells=('records',),
                reads='records' if query.column is None else 'numbers')


def histogram(query: Query) -> Counts:
  """Returns the plan of a histogram over public categories or public bins.

  With categories, one more cell counts all other values.
  """
  if bool(query.categories) == bool(query.bins):
    raise ValueError('histogram needs either categories or bins')
  names = query.categories
  if names:
    if len(set(names)) < len(names) or OTHER in names:
      raise ValueError('categories must differ from each other and from '
                       f'{OTHER!r}')
    if query.missing is not None:
      raise ValueError('missing is for bins: with categories, a missing value '
                       f'counts as {OTHER}')
    return Counts(query=query, cells=(*names, OTHER), reads='texts')
  edges = query.bins
  if len(edges) < 2 or any(a >= b for a, b in zip(edges, edges[1:])):
    raise ValueError('bins must be two or more increasing edges, got '
                     f'{", ".join(map(str, edges))}')
  cells = [f'[{a}, {b})' for a, b in zip(edges, edges[1:])]
  cells[-1] = cells[-1][:-1] + ']'
  return Counts(query=query, cells=tuple(cells), reads='numbers')


STATISTICS = (
    queries.Statistic(
        name='count', help='the number of records, or of those between the '
        'bounds', needs=(), takes=('column', 'lower', 'upper'), plan=count),
    queries.Statistic(
        name='histogram', help='the number of records of each public category, '
        'or between public edges', needs=('column',),
        takes=('categories', 'bins', 'missing'), plan=histogram),
)
