"""Points of a study, and curves through them on axes of `plots`."""

from collections.abc import Iterable, Mapping
import dataclasses
from typing import Any

import numpy as np

from dpjax.report import plots


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


def select(points: Iterable[Point], **fields: Any) -> list[Point]:
  """Returns the points whose fields equal these values.

  A tuple stands for a choice of allowed values.
  """
  def fits(point: Point, name: str, wanted: Any) -> bool:
    return point.fields[name] in (wanted if isinstance(wanted, tuple)
                                  else (wanted,))
  return [point for point in points
          if all(fits(point, *item) for item in fields.items())]


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
  xs, means, half_widths = np.array(triples).T
  colour = plots.COLOURS[series % len(plots.COLOURS)]
  marker = plots.MARKERS[series % len(plots.MARKERS)] if line != ':' else None
  ax.plot(xs, means, line, label=label, color=colour, marker=marker,
          markersize=3, linewidth=1.2)
  # A logarithmic axis cannot show ends below 0.
  ax.fill_between(xs, np.maximum(means - half_widths, means / 10),
                  means + half_widths, color=colour, alpha=0.15, linewidth=0)


def finish(ax: Any, xlabel: str, ylabel: str, title: str = '', *,
           scales: str = 'log log', legend: bool = True) -> None:
  """Labels axes; `scales` names the scale of x and that of y."""
  x_scale, y_scale = scales.split()
  ax.set_xscale(x_scale)
  ax.set_yscale(y_scale)
  ax.set_xlabel(xlabel)
  ax.set_ylabel(ylabel)
  ax.set_title(title)
  if legend and ax.get_legend_handles_labels()[0]:
    ax.legend(fontsize=7, frameon=False)
