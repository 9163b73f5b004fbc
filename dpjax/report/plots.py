"""Figures in a common style; equal rows give byte-identical files.

matplotlib is an optional dependency and imported inside the functions. The
colours are those of Okabe and Ito, which colour-blind readers can distinguish;
each series also has its own marker.
"""

from collections.abc import Sequence
import math
import os
import pathlib
from typing import Any

COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9',
           '#000000')
MARKERS = 'osD^vP*'

_STYLE = {
    'axes.grid': True, 'axes.spines.right': False, 'axes.spines.top': False,
    'font.family': 'DejaVu Sans', 'font.size': 9., 'grid.alpha': .3,
    # A fixed salt makes the ids inside an SVG reproducible.
    'svg.hashsalt': 'dpjax', 'svg.fonttype': 'path',
}

def _matplotlib() -> Any:
  """Returns matplotlib, or raises an error that says how to install it."""
  try:
    import matplotlib

    # pyplot is not imported, because it would look for a display.
    import matplotlib.figure  # noqa: F401
  except ImportError as error:
    raise ImportError('figures need matplotlib: pip install '
                      'dpjax[plots]') from error
  return matplotlib


def new(num_rows: int = 1, num_columns: int = 1, *, width: float = 4.,
        height: float = 3.) -> tuple[Any, Any]:
  """Creates a figure in the common style, and its axes.

  Args:
    num_rows: rows of axes.
    num_columns: columns of axes.
    width: width of one axes, in inches.
    height: height of one axes, in inches.

  Returns:
    The figure, and an array of axes, [num_rows, num_columns].
  """
  matplotlib = _matplotlib()
  with matplotlib.rc_context(_STYLE):
    figure = matplotlib.figure.Figure(
        figsize=(width * num_columns, height * num_rows),
        layout='constrained')
    return figure, figure.subplots(num_rows, num_columns, squeeze=False)


def save(figure: Any, path: str | os.PathLike[str], *, digest: str,
         png: bool = False) -> None:
  """Writes an SVG file that contains the digest of its rows.

  Args:
    figure: the figure.
    path: file to write, ending in '.svg'.
    digest: digest of the rows; see `records.digest`.
    png: True to write also a PNG file next to it.

  Raises:
    ValueError: if `path` does not end in '.svg'.
  """
  path = pathlib.Path(path)
  if path.suffix != '.svg':
    raise ValueError(f'a figure must be saved as .svg, got {path}')
  with _matplotlib().rc_context(_STYLE):
    # Dates and versions would make files of equal rows differ.
    figure.savefig(path, metadata={
        'Date': None, 'Creator': 'dpjax',
        'Description': f'rows sha256: {digest}'})
    if png:
      figure.savefig(path.with_suffix('.png'), dpi=200,
                     metadata={'Software': None})


def error_bars(ax: Any, xs: Sequence[float], means: Sequence[float],
               ses: Sequence[float], label: str, *,
               series: int | None = None) -> None:
  """Draws means with bars of +- one standard error, joined by a line.

  Args:
    ax: the axes.
    xs: x coordinates [k].
    means: means [k].
    ses: standard errors [k]; no bar where NaN.
    label: name of the series in the legend.
    series: index of its colour and marker; the next unused one if None.
  """
  index = len(ax.containers) if series is None else series
  ax.errorbar(xs, means, yerr=ses, label=label, capsize=2., linewidth=1.2,
              markersize=4., color=COLOURS[index % len(COLOURS)],
              marker=MARKERS[index % len(MARKERS)])


def epsilon_axis(ax: Any, epsilons: Sequence[float]) -> None:
  """Makes x a logarithmic epsilon axis with ticks at the finite values."""
  values = sorted({float(epsilon) for epsilon in epsilons
                   if math.isfinite(epsilon)})
  ax.set_xscale('log')
  ax.set_xticks(values, [f'{value:g}' for value in values])
  ax.set_xticks([], minor=True)
  ax.set_xlabel('epsilon')
