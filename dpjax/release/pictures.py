"""Figures of released curves with their bands."""

from collections.abc import Mapping
import hashlib
import importlib.util
import json
import pathlib
from typing import Any

from dpjax import errors
from dpjax.report import plots

DRAWN = ('ecdf', 'density', 'roc', 'hosmer_lemeshow', 'classifier')


def check(statistic: str, path: str) -> None:
  """Raises if a statistic has no figure, or if it could not be saved."""
  errors.check_choice('statistic of --plot', statistic, DRAWN)
  if pathlib.Path(path).suffix != '.svg':
    raise ValueError(f'--plot must end in .svg, got {path}')
  if importlib.util.find_spec('matplotlib') is None:
    raise ImportError('figures need matplotlib: pip install dpjax[plots]')


def draw(answer: Mapping[str, Any], path: str) -> None:
  """Writes the figure of a released answer to an SVG file."""
  name = answer['statistic']
  views = {view: answer[view] for view in ('roc', 'hosmer_lemeshow')
           if view in answer} or {name: answer}
  figure, axes = plots.new(1, len(views), height=3.4)
  for ax, (view, view_data) in zip(axes[0], views.items(), strict=True):
    {'ecdf': _ecdf, 'density': _density, 'roc': _roc,
     'hosmer_lemeshow': _calibration}[view](ax, view_data)
  axes[0][0].set_title(f'{_plain(answer["parameters"]["column"])}, epsilon '
                       f'{answer["guarantee"]["epsilon"]}')
  plots.save(figure, path, digest=hashlib.sha256(
      json.dumps(answer, sort_keys=True).encode()).hexdigest())


def _plain(name: str) -> str:
  """Escapes a column name for matplotlib, where dollars start a formula."""
  return name.replace('$', r'\$')


def _ecdf(ax: Any, released: Mapping[str, Any]) -> None:
  """Draws a distribution function with its band."""
  points, band = released['thresholds'], released['interval']
  ax.fill_between(points, band['lower'], band['upper'], step='post', alpha=.3,
                  linewidth=0, color=plots.COLOURS[0],
                  label=f'file, {band["level"]:g} at once')
  ax.step(points, released['value'], where='post', color=plots.COLOURS[0])
  if released['parameters'].get('grid') == 'geometric':
    ax.set_xscale('log')
  ax.set_xlabel('threshold')
  ax.set_ylabel('share at or below')
  ax.legend()


def _density(ax: Any, released: Mapping[str, Any]) -> None:
  """Draws a density with its band and the histogram."""
  edges, band = released['thresholds'], released['population_interval']
  heights = released['histogram']['heights']
  ax.bar([edges[0] + (edges[-1] - edges[0]) * (k + .5) / len(heights)
          for k in range(len(heights))], heights,
         (edges[-1] - edges[0]) / len(heights), color=plots.COLOURS[-1],
         alpha=.15, linewidth=0, label='noisy counts')
  middles = [(a + b) / 2 for a, b in zip(edges, edges[1:])]
  ax.fill_between(middles, band['lower'], band['upper'], alpha=.3, linewidth=0,
                  color=plots.COLOURS[0],
                  label=f'population, {band["level"]:g} at once')
  ax.plot(middles, released['value'], color=plots.COLOURS[0], label='density')
  ax.axhline(0, color=plots.COLOURS[-1], linewidth=.6)
  ax.set_xlabel(_plain(released['parameters']['column']))
  ax.set_ylabel('density')
  ax.legend()


def _roc(ax: Any, released: Mapping[str, Any]) -> None:
  """Draws a ROC curve with the region that its bands allow."""
  value, band = released['value'], released['interval']
  fpr, tpr = band['fpr'], band['tpr']
  # The outline of all boxes, as both coordinates have bands.
  ax.fill_between(*_outline(fpr, tpr), alpha=.3, linewidth=0,
                  color=plots.COLOURS[0],
                  label=f'file, {band["level"]:g} at once')
  ax.plot(value['fpr'], value['tpr'], color=plots.COLOURS[0])
  ax.plot([0, 1], [0, 1], color=plots.COLOURS[-1], linewidth=.6)
  ax.set_xlabel('false positive rate')
  ax.set_ylabel('true positive rate')
  ax.legend()


def _outline(fpr: Mapping[str, list[float]], tpr: Mapping[str, list[float]]
             ) -> tuple[list[float], list[float], list[float]]:
  """Returns false positive rates, and the range of true ones at each."""
  places = sorted({*fpr['lower'], *fpr['upper']})
  low, high = [], []
  for place in places:
    inside = [index for index, (one, other) in enumerate(
        zip(fpr['lower'], fpr['upper'], strict=True)) if one <= place <= other]
    low.append(min(tpr['lower'][index] for index in inside))
    high.append(max(tpr['upper'][index] for index in inside))
  return places, low, high


def _calibration(ax: Any, released: Mapping[str, Any]) -> None:
  """Draws observed against predicted proportions, with intervals."""
  for group in released['groups']:
    interval = group['interval']
    ax.plot([group['predicted']] * 2, [interval['lower'], interval['upper']],
            color=plots.COLOURS[1], linewidth=1.2)
    ax.plot(group['predicted'], group['observed'], plots.MARKERS[0],
            color=plots.COLOURS[1], markersize=4.)
  most = max(group['predicted'] for group in released['groups'])
  ax.plot([0, most], [0, most], color=plots.COLOURS[-1], linewidth=.6)
  ax.set_xlabel('predicted')
  ax.set_ylabel('observed')
  ax.set_title(f'H {released["value"]:.3g}, p {released["p_value"]:.2g}')
