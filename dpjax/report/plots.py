"""Figures in a common style; equal rows give byte-identical files.

matplotlib is an optional dependency and imported inside the functions. The
colours are those of Okabe and Ito, which colour-blind readers can distinguish;
each series also has its own marker.
"""

from collections.abc import Callable, Sequence
import math
import os
import pathlib
import re
from typing import Any

import numpy as np

COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9',
           '#000000')
MARKERS = 'osD^vP*'

_STYLE = {
    'axes.grid': True, 'axes.spines.right': False, 'axes.spines.top': False,
    'font.family': 'DejaVu Sans', 'font.size': 9., 'grid.alpha': .3,
    # A fixed salt makes the ids inside an SVG reproducible.
    'svg.hashsalt': 'dpjax', 'svg.fonttype': 'path',
}
_DIGEST = re.compile(r'rows sha256: ([0-9a-f]{64})')


def _matplotlib() -> Any:
  """Imports matplotlib, or says how to install it."""
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


def roc_axes(ax: Any, *, least: float) -> None:
  """Sets up logarithmic axes of rates from `least` to 1, with the diagonal."""
  ax.set_xscale('log')
  ax.set_yscale('log')
  ax.set_xlim(least, 1.)
  ax.set_ylim(least, 1.)
  ax.plot([least, 1.], [least, 1.], color='.6', linewidth=.8, zorder=1)
  ax.set_xlabel('false positive rate')
  ax.set_ylabel('true positive rate')


def roc(ax: Any, fpr: Sequence[float], tpr: Sequence[float], label: str, *,
        series: int) -> None:
  """Draws an empirical ROC curve as a step function.

  The curve shows the true positive rate attained within each false positive
  rate, at 200 rates evenly spaced on the axis, so that files stay small.
  Nothing is drawn where the true positive rate is 0.

  Args:
    ax: axes prepared by `roc_axes`.
    fpr: false positive rates [k], increasing from 0, for falling thresholds.
    tpr: true positive rates [k] at the same thresholds.
    label: name of the attack in the legend.
    series: index of its colour.
  """
  grid = np.geomspace(ax.get_xlim()[0], 1., 200)
  attained = np.asarray(tpr)[np.searchsorted(fpr, grid, side='right') - 1]
  ax.plot(grid, np.where(attained > 0, attained, np.nan), label=label,
          drawstyle='steps-post', linewidth=1.2,
          color=COLOURS[series % len(COLOURS)])


def roc_ceiling(ax: Any, ceiling: Callable[[np.ndarray], np.ndarray],
                label: str, *, series: int) -> None:
  """Draws, dashed, a bound on the true positive rate at each false one."""
  grid = np.geomspace(ax.get_xlim()[0], 1., 200)
  ax.plot(grid, ceiling(grid), label=label, linestyle='--', linewidth=1.,
          color=COLOURS[series % len(COLOURS)])


def save(figure: Any, path: str | os.PathLike, *, digest: str,
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
    figure.savefig(path, metadata={
        'Date': None, 'Creator': 'dpjax',
        'Description': f'rows sha256: {digest}'})
    if png:
      figure.savefig(path.with_suffix('.png'), dpi=200,
                     metadata={'Software': None})


def read_digest(path: str | os.PathLike) -> str | None:
  """Returns the digest of the rows an SVG was drawn from; None if unknown."""
  match = _DIGEST.search(pathlib.Path(path).read_text(encoding='utf-8'))
  return match and match.group(1)
