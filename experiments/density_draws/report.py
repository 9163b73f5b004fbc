"""Shows true densities, private estimates, their means, and their errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpjax.report import plots
from dpjax.report import tables
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.density_draws import sweep

_TITLES = {'printed': 'Theorem 4, told beta',
           'spectral': 'spectral, told beta and L', 'default': 'adaptive'}
_PLACES = 513


def _errors(cells, method, dataset):
  return np.array([p['ise'] for p in points.select(
      cells, method=method, dataset=dataset)])


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of mean integrated squared errors of the draws."""
  cells = points.collect(rows)
  lines = []
  for dataset, in points.distinct(cells, 'dataset'):
    for method in sweep.METHODS:
      errors = _errors(cells, method, dataset)
      if errors.size > 1:
        lines.append((dataset, _TITLES[method], *(
            f'{value:.2e}' for value in (
                errors.mean(), errors.std(ddof=1) / np.sqrt(errors.size),
                errors.max()))))
  return (f'Integrated squared errors of releases at n = {sweep.NUM_EXAMPLES}, '
          f'epsilon = {sweep.EPSILON}, replace_one.\n\n' + tables.markdown(
              ('density', 'estimator', 'mean', 'standard error', 'largest'),
              lines))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns a verdict: the printed estimator errs more than the adaptive one.
  """
  cells = points.collect(rows)
  return [points.judged('errors are below those of the printed estimator',
                        'by 10 and more', points.select(
                            cells, method=sweep.METHODS), _fall)]


def _fall(cells):
  texts, gains = [], []
  for dataset, in points.distinct(cells, 'dataset'):
    printed = _errors(cells, 'printed', dataset).mean()
    for method in sweep.METHODS[1:]:
      gains.append(printed / _errors(cells, method, dataset).mean())
      texts.append(f'{dataset}, {method}: {gains[-1]:.0f}')
  return ('; '.join(texts), min(gains) > 10,
          'ratio of mean errors over the draws')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the estimates, one axes for each density and estimator."""
  cells = points.collect(rows)
  datasets = [name for name, in points.distinct(cells, 'dataset')]
  drawn, axes = plots.new(len(datasets), len(sweep.METHODS), width=3.6,
                          height=2.8)
  x = np.linspace(0, 1, _PLACES)
  for line, dataset in zip(axes, datasets):
    truth = [_curve(p, x) for p in points.select(cells, dataset=dataset,
                                                 method='truth')]
    for ax, method in zip(line, sweep.METHODS):
      of = points.select(cells, dataset=dataset, method=method)
      curves = np.array([_curve(p, x) for p in of])
      for i, curve in enumerate(curves):
        ax.plot(x, curve, color=plots.COLOURS[5], linewidth=0.6, alpha=0.6,
                label=f'{len(curves)} releases' if i == 0 else None)
      if curves.size:
        ax.plot(x, curves.mean(0), '--', color=plots.COLOURS[1], linewidth=1.4,
                label='their mean')
      for curve in truth:
        ax.plot(x, curve, color='black', linewidth=1.2, label='truth')
      ax.axhline(0, color='0.5', linewidth=0.6)
      errors = _errors(cells, method, dataset)
      points.finish(ax, 'x', 'density', f'{_TITLES[method]}\nerror '
                    f'{errors.mean():.1e}' if errors.size else '',
                    scales='linear linear', legend=False)
    # All axes of one density share a scale; curves may leave it, which shows
    # the large errors.
    top = max((curve.max() for curve in truth), default=1.0)
    for ax in line:
      ax.set_ylim(-0.35 * top, 1.5 * top)
    line[0].set_ylabel(f'{dataset}: density')
  handles, labels = axes[0, 0].get_legend_handles_labels()
  drawn.legend(handles, labels, loc='outside lower center', ncols=3,
               frameon=False)
  return drawn


def _curve(point: points.Point, x: np.ndarray) -> np.ndarray:
  result = np.full(x.shape, point['mass'])
  for name, value in point.values.items():
    if name.startswith(('re_', 'im_')):
      phase = 2 * np.pi * int(name[3:]) * x
      result += 2 * value * (np.cos(phase) if name.startswith('re_')
                            else -np.sin(phase))
  return result
