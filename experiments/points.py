"""Rows grouped by setting, and the tables, curves and verdicts made of them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dpjax.report import plots
from dpjax.report import tables
from dpjax.report.curves import band as band
from dpjax.report.curves import finish as finish
from dpjax.report.curves import Point as Point
from dpjax.report.curves import select as select
from experiments import records
from experiments import verdicts


def collect(rows: Iterable[records.Row]) -> list[Point]:
  """Groups rows by setting; returns the settings sorted by their fields."""
  by_id: dict[str, Point] = {}
  for row in rows:
    if row.id not in by_id:
      pairs = row.id.split('/', 1)[1].split(',')
      cells = (pair.split('=', 1) for pair in pairs)
      by_id[row.id] = Point({name: _value(text) for name, text in cells}, {})
    by_id[row.id].values[row.metric] = row.value
  return sorted(by_id.values(), key=lambda point: [
      (isinstance(value, str), value) for value in point.fields.values()])


def _value(text: str) -> float | str:
  """Returns a number as a float, any other text as it is."""
  try:
    return float(text)
  except ValueError:
    return text


def distinct(points: Iterable[Point], *names: str) -> list[tuple]:
  """Returns the distinct combinations of these fields, sorted."""
  return sorted({tuple(point[name] for name in names) for point in points})


def table(points: Iterable[Point], fields: Sequence[str],
          metrics: Sequence[str], *, digits: int = 4) -> str:
  """Returns a Markdown table with a line per point: fields, then metrics.

  A missing metric is shown as '-'.
  """
  return tables.markdown((*fields, *metrics), [
      (*(_cell(point[name]) for name in fields),
       *(_number(point.values.get(name), digits) for name in metrics))
      for point in points])


def _cell(value: Any) -> str:
  return value if isinstance(value, str) else f'{value:g}'


def _number(value: float | None, digits: int) -> str:
  """Returns a value with this many significant digits; '-' if None or NaN."""
  return '-' if value is None or value != value else f'{value:.{digits}g}'


def curve(ax: Any, points: Iterable[Point], x: str, y: str, label: str, *,
          series: int, line: str = '-', error: str | None = None) -> None:
  """Draws one metric against one field, on axes made by `plots.new`.

  Args:
    ax: the axes.
    points: points of one curve; those without the metric are left out.
    x: name of the field.
    y: name of the metric.
    label: name of the curve in the legend.
    series: index of its colour and marker.
    line: line style; only solid lines have markers.
    error: metric of the standard error; if given, bars replace the line.
  """
  # If no metric of errors is given, '' finds none and errors are 0.
  pairs = sorted((point[x], point.values[y],
                  point.values.get(error or '', 0.0))
                 for point in points if y in point.values)
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


def slope(points: Iterable[Point], x: str, y: str) -> float:
  """Returns the least-squares slope of ln y against ln x.

  Raises:
    ValueError: if x takes fewer than two values.
  """
  pairs = np.log([(point[x], point[y]) for point in points])
  if not pairs.size or np.ptp(pairs[:, 0]) == 0:
    raise ValueError(f'{x} must take at least two values for a slope')
  return float(np.polyfit(pairs[:, 0], pairs[:, 1], 1)[0])


_TOO_FEW = (LookupError, StopIteration, TypeError, ValueError,
            ZeroDivisionError)
"""Errors that a judge raises if there are too few points."""

Judge = Callable[[list[Point]], tuple[str, bool, str]]
"""Function: points -> our number as text, whether the claim holds, reason."""


def judged(claim: str, printed: str, points: list[Point],
           judge: Judge) -> verdicts.Verdict:
  """Returns the verdict on a claim; 'not run' if there are too few points.

  When only part of a sweep has run, a judge may have nothing to compare. It
  then returns '-' for our number, or raises one of `_TOO_FEW`.

  Args:
    claim: the claim in a few words.
    printed: the printed number, as text.
    points: the points to judge by.
    judge: decides whether the claim holds.
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
