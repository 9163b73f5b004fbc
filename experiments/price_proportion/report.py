"""Reports measured errors between their bounds, against the budget."""

from collections.abc import Sequence
import math
from typing import Any

import numpy as np

from dpjax.report import plots
from dpjax.report import tables
from experiments import points
from experiments import records
from experiments import verdicts

_NOTIONS = {'pure': 'epsilon', 'zcdp': 'rho'}
_ERRORS = 4.5
_TRIVIAL = 0.25
_METRICS = ('risk', 'risk_se', 'closed_form', 'upper', 'lower', 'lower_pair',
            'lower_scores', 'lower_solved', 'program', 'thesis', 'non_private')


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of the slopes of both regimes, and of every setting."""
  cells = points.collect(rows)
  lines = []
  for notion, method in points.distinct(cells, 'notion', 'method'):
    of = points.select(cells, notion=notion, method=method)
    lines.append((notion, method, *(
        f'{slope:.2f}' if slope is not None else '-'
        for slope in (_slope(_dear(of)), _slope(_free(of))))))
  return ('Largest squared errors over p of estimates of a proportion, '
          'measured at their worst p, their closed forms, the least of all '
          'estimators offered (upper), and what no estimate with the budget '
          'has less of: by two proportions (pair), by scores, by the minimax '
          'risk solved for, and by a linear programme on a grid; the bounds of '
          'Lalanne (2023), and the minimax risk without privacy. Slopes of '
          'measured errors against the budget, epsilon or rho, where privacy '
          'is dear and where it is free:\n\n' + tables.markdown(
              ('notion', 'estimator', 'dear', 'free'), lines) + '\n'
          + points.table(cells, ('notion', 'method', 'num_examples', 'budget'),
                         _METRICS))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on claims of Lalanne (2023) and on stored values."""
  cells = points.collect(rows)
  pure, zcdp = (points.select(cells, notion=name) for name in _NOTIONS)
  of = lambda *names: points.select(cells, method=names)
  return [
      points.judged('risks lie between the lower bound and the closed form',
                    'at every n and budget', cells,
                    _between),
      points.judged('E (M - p)^2 >= 1 / (8 (n epsilon)^2), by proportions 1 / '
                    '(n epsilon) apart (section 3.1.2)', '1/8',
                    points.select(pure, method='laplace'), _introduction),
      points.judged('the bounds 1 / (160 n), 1 / (80 (n epsilon)^2) and 1 / '
                    '(64 n^2 rho) hold (section 4.1.1)', 'constants of a rate',
                    cells, _constants),
      points.judged('the rate under pure privacy is max(1 / n, 1 / (n epsilon)'
                    '^2)', 'slopes -2 and 0 in epsilon', of('laplace'),
                    lambda p: _slopes(p, -2)),
      points.judged('the rate under zCDP is max(1 / n, 1 / (n^2 rho))',
                    'slopes -1 and 0 in rho', of('gaussian'),
                    lambda p: _slopes(p, -1)),
      points.judged('the Laplace mechanism is free from epsilon = sqrt(8 / n)',
                    '2.83 n^(-1/2)', of('laplace'),
                    lambda p: _crossover(p, 8, 0.5)),
      points.judged('the Gaussian mechanism is free from rho = 2 / n', '2 / n',
                    of('gaussian'), lambda p: _crossover(p, 2, 1)),
      points.judged('the Gaussian mechanism with noise 2 / (n sqrt rho) is '
                    'rho-zCDP, and no less noise is',
                    '16 / n', of('printed'), _printed),
      points.judged('a noisy mean shrunk towards 1/2 has at most 35 % more '
                    'than the minimax risk', '1.35',
                    points.select(of('shrunk_laplace'), num_examples=20.0),
                    lambda p: _near(p, 1.35)),
      points.judged('tables of geometric counts are minimax',
                    'within a linear programme and .5 %', of('table'),
                    lambda p: _near(p, 1.02))]


def _scale(point: points.Point) -> float:
  """Returns the noise variance of the mean over its sampling variance.

  The sampling variance is that at p = 1/2.
  """
  n, budget = point['num_examples'], point['budget']
  return 8 / (n * budget**2) if point['notion'] == 'pure' else 2 / (n * budget)


def _dear(cells):
  """Returns points where noise dominates but a constant has a larger error."""
  return [p for p in cells if _scale(p) > 30 and p['closed_form'] < 0.02]


def _free(cells):
  return [p for p in cells if _scale(p) < 0.01]


def _slope(cells):
  """Returns the slope of ln(risk) in ln(budget), with an intercept for each n.
  """
  xs, ys = [], []
  for n, in points.distinct(cells, 'num_examples'):
    curve = points.select(cells, num_examples=n)
    if len(curve) > 1:
      pairs = np.log([(p['budget'], p['risk']) for p in curve])
      xs, ys = [np.append(old, new - new.mean())
                for old, new in zip((xs, ys), pairs.T)]
  return float(np.dot(xs, ys) / np.dot(xs, xs)) if len(xs) else None


def _slopes(cells, wanted):
  dear, free = _slope(_dear(cells)), _slope(_free(cells))
  text = ' and '.join('-' if s is None else f'{s:.2f}' for s in (dear, free))
  return (text, None not in (dear, free) and abs(dear - wanted) < 0.1
          and abs(free) < 0.1, 'least squares of measured errors, a level for '
          'each n; within .1')


def _between(cells):
  out = [p for p in cells if p['risk'] + _ERRORS * p['risk_se'] < p['lower']
         or p['closed_form'] < p['lower'] * (1 - 1e-9)
         or p['risk'] - _ERRORS * p['risk_se'] > p['closed_form']]
  ratio = min(p['closed_form'] / p['lower'] for p in cells)
  gaps = {name: max(p['upper'] / p['lower']
                    for p in points.select(cells, notion=name))
          for name, in points.distinct(cells, 'notion')}
  return (f'{len(cells) - len(out)} of {len(cells)}', not out,
          f'errors are at least {ratio:.3f} times the bound; the best is at '
          'most '
          + ', '.join(f'{gap:.3g} times it ({name})'
                      for name, gap in gaps.items()))


def _introduction(cells):
  inside = [p for p in cells if p['introduction'] > 0]
  shares = [p['introduction_derived'] / p['introduction'] for p in inside]
  true = all(p['introduction'] <= p['closed_form'] for p in inside)
  best = min(p['lower'] / p['introduction'] for p in inside)
  return (f'{max(shares):.3f} times the printed bound',
          min(shares) > 0.999 and true,
          'e^-1 is missing (T-E02); the printed number is still valid, since '
          f'the best bound is at least {best:.2f} times it')


def _constants(cells):
  inside = [p for p in cells if p['thesis'] > 0]
  ratios = {name: min(p['lower'] / p['thesis'] for p in points.select(
      inside, notion=name)) for name in _NOTIONS if points.select(
          inside, notion=name)}
  true = all(p['thesis'] <= p['thesis_derived'] * (1 + 1e-9)
             and p['thesis'] <= p['lower'] for p in inside)
  return (', '.join(f'{ratio:.1f} ({name})' for name, ratio in ratios.items()),
          true, 'the best bound over them, at least')


def _crossing(curve):
  """Returns the budget at which noise and sampling have equal variance.

  It is interpolated in logarithms; None outside the budgets of the curve.
  """
  pairs = sorted((p['budget'], 4 * p['num_examples'] * p['closed_form'] - 1)
                 for p in curve)
  budgets, noise = np.log(np.array(pairs)).T
  if not noise.min() < 0 < noise.max():
    return None
  return float(np.exp(np.interp(0, -noise, budgets)))


def _crossover(cells, constant, power):
  ratios = []
  for n, in points.distinct(cells, 'num_examples'):
    at = _crossing(points.select(cells, num_examples=n))
    if at is not None:
      ratios.append(at / (constant / n)**power)
  return (', '.join(f'{r:.3f}' for r in ratios) + ' of it', bool(ratios) and (
      max(abs(r - 1) for r in ratios) < 0.03),
          'by n: where noise is as much as sampling')


def _printed(cells):
  text, _, _ = _crossover(cells, 16, 1)
  ratio = max(p['closed_form'] / p['upper'] for p in cells
              if p['closed_form'] < _TRIVIAL)
  return (f'{text}; up to {ratio:.3g} times the error of calibrated noise',
          ratio < 2, 'that noise is (rho / 8)-zCDP: a standard deviation of '
          '1 / (n sqrt(2 rho)) is enough (E-09), and free from 2 / n')


def _near(cells, most):
  ratio = max(p['closed_form'] / p['lower'] for p in cells)
  programs = [p['closed_form'] / p['program'] for p in cells
              if 'program' in p.values]
  text = f'at most {ratio:.3f} times the lower bound'
  if programs:
    text += f', {max(programs):.3f} times the programme'
  return text, ratio <= most, f'{len(cells)} settings, closed forms'


_SHOWN = {'pure': (('laplace', 'Laplace'), ('table', 'table, minimax'),
                   ('shrunk_geometric', 'geometric, shrunk')),
          'zcdp': (('printed', 'Gaussian, printed noise'),
                   ('gaussian', 'Gaussian, calibrated'),
                   ('shrunk_gaussian', 'Gaussian, shrunk'))}


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws errors against the budget: a row a notion, a column for each n.

  Markers are measured.
  """
  cells = points.collect(rows)
  sizes = [n for n, in points.distinct(cells, 'num_examples')]
  shown = [n for n in (20, 1000, 10_000) if n in sizes]
  drawn, axes = plots.new(2, max(1, len(shown)), width=3.4, height=3.1)
  for line, notion in zip(axes, _NOTIONS):
    for ax, n in zip(line, shown):
      selected = points.select(cells, notion=notion, num_examples=n)
      _draw(ax, selected, notion)
      points.finish(ax, _NOTIONS[notion], 'largest squared error'
                    if ax is line[0] else '', f'n = {n:,.0f}', legend=False)
      ax.set_ylim(min(p['thesis'] or p['non_private'] for p in selected) / 3, 3)
    handles = {}
    for ax in line:
      for handle, label in zip(*ax.get_legend_handles_labels()):
        handles.setdefault(label, handle)
    line[-1].legend(handles.values(), handles.keys(), fontsize=8,
                    loc='center left', bbox_to_anchor=(1.02, 0.5))
  return drawn


def _draw(ax, cells, notion):
  for series, (method, label) in enumerate(_SHOWN[notion]):
    of = points.select(cells, method=method)
    points.curve(ax, of, 'budget', 'risk', f'{label}: measured', series=series,
                 error='risk_se')
    points.curve(ax, of, 'budget', 'closed_form', f'{label}: closed form',
                 series=series, line='--')
  curves = sorted({p['budget']: p for p in cells}.values(),
                  key=lambda p: p['budget'])
  xs = [p['budget'] for p in curves]
  for metric, label, colour, style in (
      ('lower', 'best lower bound', 'black', '-'),
      ('thesis', 'lower bound of Lalanne (2023)', 'grey', ':'),
      ('non_private', 'minimax without privacy', plots.COLOURS[3], '-.')):
    ys = [p[metric] or math.nan for p in curves]
    ax.plot(xs, ys, style, color=colour, label=label, linewidth=1.3)
  ax.axhline(_TRIVIAL, color='grey', linewidth=.8, linestyle='--',
             label='constant 1/2')
