"""Parts of figures that reports of experiments share."""

from collections.abc import Callable, Sequence
import os
import pathlib
import re
from typing import Any

import numpy as np

from dpjax.report import plots

_DIGEST = re.compile(r'rows sha256: ([0-9a-f]{64})')


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
          color=plots.COLOURS[series % len(plots.COLOURS)])


def roc_ceiling(ax: Any, ceiling: Callable[[np.ndarray], np.ndarray],
                label: str, *, series: int) -> None:
  """Draws an upper bound on the true positive rate as a dashed curve.

  `ceiling` maps false positive rates to the bound.
  """
  grid = np.geomspace(ax.get_xlim()[0], 1., 200)
  ax.plot(grid, ceiling(grid), label=label, linestyle='--', linewidth=1.,
          color=plots.COLOURS[series % len(plots.COLOURS)])


def read_digest(path: str | os.PathLike) -> str | None:
  """Returns the digest of the rows an SVG was drawn from; None if unknown."""
  match = _DIGEST.search(pathlib.Path(path).read_text(encoding='utf-8'))
  return match and match.group(1)
