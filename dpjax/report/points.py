"""Rows grouped by setting, and the tables, curves and verdicts made of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
from typing import Any

import numpy as np

from dpjax.report import plots
from dpjax.report import records
from dpjax.report import tables
from dpjax.report import verdicts


@dataclasses.dataclass(frozen=True)
class Point:
  """One setting of an experiment and its results.

  Attributes:
    fields: fields of the setting by name; numbers are floats.
    values: value of each metric.
  """
  fields: Mapping[str, Any]
  values: dict[str, float]

  def __getitem__(self, name: str) -> Any:
    """Returns a field or else a metric; raises a KeyError if it is neither."""
    return self.fields[name] if name in self.fields else self.values[name]


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


def select(points: Iterable[Point], **fields: Any) -> list[Point]:
  """Returns the points whose fields equal these values.

  A tuple contains the allowed values.
  """
  def fits(point, name, wanted):
    return point.fields[name] in (wanted if isinstance(wanted, tuple)
                                  else (wanted,))
  return [point for point in points
          if all(fits(point, *item) for item in fields.items())]


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
  # Without a metric of errors, '' is the name of none.
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


def band(ax: Any, points: Iterable[Point], x: str, y: str, label: str, *,
         series: int, line: str, error: str) -> None:
  """Draws means with a band of +- 1.96 standard errors.

  Args:
    ax: the axes.
    points: points of one curve; those without the metric are left out.
    x: name of the field.
    y: name of the metric.
    label: name of the curve in the legend.
    series: index of its colour and marker.
    line: line style; dotted lines have no markers.
    error: metric of the standard error.
  """
  triples = sorted((point[x], point[y], 1.96 * point[error]) for point in points
                   if y in point.values)
  if not triples:
    return
  xs, means, halves = np.array(triples).T
  colour = plots.COLOURS[series % len(plots.COLOURS)]
  marker = plots.MARKERS[series % len(plots.MARKERS)] if line != ':' else None
  ax.plot(xs, means, line, label=label, color=colour, marker=marker,
          markersize=3, linewidth=1.2)
  # A logarithmic axis cannot show ends below 0.
  ax.fill_between(xs, np.maximum(means - halves, means / 10), means + halves,
                  color=colour, alpha=0.15, linewidth=0)


def finish(ax: Any, xlabel: str, ylabel: str, title: str = '', *,
           scales: str = 'log log', legend: bool = True) -> None:
  """Labels axes; `scales` names the scale of x and that of y."""
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
