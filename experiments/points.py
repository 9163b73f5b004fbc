"""Rows by setting: what the reports of closed forms and simulations share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpjax.report import plots
from dpjax.report import records
from dpjax.report import tables
from dpjax.report import verdicts


class Point(NamedTuple):
  """One setting and what was found of it.

  Attributes:
    fields: of the setting; numbers as floats.
    values: metric -> value.
  """
  fields: Mapping[str, Any]
  values: dict[str, float]

  def __getitem__(self, name: str) -> Any:
    """A field, or else a metric; KeyError if it is neither."""
    return self.fields[name] if name in self.fields else self.values[name]


def collect(rows: Iterable[records.Row]) -> list[Point]:
  """Returns the settings that have rows, sorted by their fields."""
  found: dict[str, Point] = {}
  for row in rows:
    if row.id not in found:
      pairs = row.id.split('/', 1)[1].split(',')
      cells = (pair.split('=', 1) for pair in pairs)
      found[row.id] = Point({name: _value(text) for name, text in cells}, {})
    found[row.id].values[row.metric] = row.value
  return sorted(found.values(), key=lambda point: [
      (isinstance(value, str), value) for value in point.fields.values()])


def _value(text: str) -> float | str:
  try:
    return float(text)
  except ValueError:
    return text


def select(points: Iterable[Point], **fields: Any) -> list[Point]:
  """Returns the points of these fields; a tuple of values: of one of them."""
  def fits(point, name, wanted):
    return point.fields[name] in (wanted if isinstance(wanted, tuple)
                                  else (wanted,))
  return [point for point in points
          if all(fits(point, *item) for item in fields.items())]


def distinct(points: Iterable[Point], *names: str) -> list[tuple]:
  """Returns the combinations of these fields that are there, sorted."""
  return sorted({tuple(point[name] for name in names) for point in points})


def table(points: Iterable[Point], fields: Sequence[str],
          metrics: Sequence[str], *, digits: int = 4) -> str:
  """Returns a line for each point: fields, then metrics, '-' where none."""
  return tables.markdown((*fields, *metrics), [
      (*(_cell(point[name]) for name in fields),
       *(_number(point.values.get(name), digits) for name in metrics))
      for point in points])


def _cell(value: Any) -> str:
  return value if isinstance(value, str) else f'{value:g}'


def _number(value: float | None, digits: int) -> str:
  """So many significant digits; never an exponent between 1e-3 and 1e6."""
  return '-' if value is None or value != value else f'{value:.{digits}g}'


def curve(ax: Any, points: Iterable[Point], x: str, y: str, label: str, *,
          series: int, line: str = '-', error: str | None = None) -> None:
  """Draws one metric against one field, on axes made by `plots.new`.

  Args:
    ax: the axes.
    points: of one curve; those without the metric are left out.
    x: field.
    y: metric.
    label: in the legend.
    series: colour and marker.
    line: style; without a marker unless solid.
    error: metric of the standard error.
  """
  pairs = sorted(((point[x], point.values[y], point.values.get(error, 0.0))
                  for point in points if y in point.values))
  if not pairs:
    return
  xs, ys, errors = zip(*pairs)
  colour = plots.COLOURS[series % len(plots.COLOURS)]
  if error is not None:
    ax.errorbar(xs, ys, yerr=errors, label=label, color=colour, capsize=2,
                linestyle='none', markersize=4,
                marker=plots.MARKERS[series % len(plots.MARKERS)])
    return
  marker = plots.MARKERS[series % len(plots.MARKERS)] if line == '-' else None
  ax.plot(xs, ys, line, label=label, color=colour, marker=marker,
          markersize=4, linewidth=1.2)


def band(ax: Any, points: Iterable[Point], x: str, y: str, label: str, *,
         series: int, line: str, error: str) -> None:
  """Draws means and what is within 1.96 standard errors of them.

  Args:
    ax: the axes.
    points: of one curve; those without the metric are left out.
    x: field.
    y: metric.
    label: in the legend.
    series: colour and marker.
    line: style; without a marker where dotted.
    error: metric of the standard error.
  """
  found = sorted((point[x], point[y], 1.96 * point[error]) for point in points
                 if y in point.values)
  if not found:
    return
  xs, means, halves = np.array(found).T
  colour = plots.COLOURS[series % len(plots.COLOURS)]
  marker = plots.MARKERS[series % len(plots.MARKERS)] if line != ':' else None
  ax.plot(xs, means, line, label=label, color=colour, marker=marker,
          markersize=3, linewidth=1.2)
  # On a logarithmic axis there is no place for ends below 0.
  ax.fill_between(xs, np.maximum(means - halves, means / 10), means + halves,
                  color=colour, alpha=0.15, linewidth=0)


def finish(ax: Any, xlabel: str, ylabel: str, title: str = '', *,
           scales: str = 'log log', legend: bool = True) -> None:
  """Labels axes; `scales` are those of x and y."""
  across, up = scales.split()
  ax.set_xscale(across)
  ax.set_yscale(up)
  ax.set_xlabel(xlabel)
  ax.set_ylabel(ylabel)
  ax.set_title(title)
  if legend and ax.get_legend_handles_labels()[0]:
    ax.legend(fontsize=7, frameon=False)


def slope(points: Iterable[Point], x: str, y: str) -> float:
  """Returns the least-squares slope of ln y against ln x.

  Raises:
    ValueError: x does not vary.
  """
  pairs = np.log([(point[x], point[y]) for point in points])
  if not pairs.size or np.ptp(pairs[:, 0]) == 0:
    raise ValueError(f'{x} must take two values or more for a slope')
  return float(np.polyfit(pairs[:, 0], pairs[:, 1], 1)[0])


_TOO_FEW = (LookupError, StopIteration, TypeError, ValueError,
            ZeroDivisionError)
"""What a look at the first of none, or at a slope of one point, raises."""

Judge = Callable[[list[Point]], tuple[str, bool, str]]
"""Points -> our number as text, whether the claim stands, and the reason."""


def judged(claim: str, printed: str, points: list[Point],
           judge: Judge) -> verdicts.Verdict:
  """Returns the verdict on a claim; not run where points do not suffice.

  Of part of a sweep a judge may find nothing to look at or to compare: it then
  says '-', or fails over an empty list.
  """
  if not points:
    return verdicts.Verdict(claim, printed, '-', verdicts.NOT_RUN, 'no rows')
  try:
    ours, stands, reason = judge(points)
  except _TOO_FEW:
    ours, stands, reason = '-', False, 'too few rows'
  if ours == '-' and not stands:
    return verdicts.Verdict(claim, printed, ours, verdicts.NOT_RUN, reason)
  return verdicts.Verdict(
      claim, printed, ours,
      verdicts.AGREES if stands else verdicts.DIFFERS, reason)
