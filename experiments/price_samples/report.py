"""Numbers of records against the budget, and verdicts on the text."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

# 'midpoint' is not drawn, because its curve lies on that of 'path'.
_LABELS = {
    'pure': {'quoted': 'lower: Acharya et al., quoted',
             'theorem': 'lower: Theorem 3.2.1', 'path': 'lower: on a path',
             'test': 'the best pure test'},
    'zcdp': {'theorem': 'lower: Theorem 3.2.2', 'path': 'lower: on a path',
             'test': 'upper: two answers',
             'gaussian': 'upper: Gaussian count'}}
_SERIES = {'quoted': 0, 'theorem': 1, 'path': 3, 'test': 4, 'gaussian': 2}
_TITLES = {'pure': ('epsilon-DP', 'epsilon'), 'zcdp': ('rho-zCDP', 'rho')}
_METRICS = ('quoted', 'theorem', 'midpoint', 'path', 'sampling', 'test',
            'gaussian')
# Stored values of catalogue item G-1: epsilon -> n by quoted, theorem and path.
_GOLDEN = {0.1: (381, 4109, 8019), 0.01: (3807, 39315, 78435),
           0.005: (7614, 78435, 156675), 0.002: (19034, 195795, 391396)}


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of records by bound and test, and of errors at too few."""
  cells = points.collect(rows)
  return '\n'.join([
      'Number of records to distinguish B(.50) from B(.51) with a mean error '
      'of 1 %: necessary by the lower bounds, and sufficient for a test.\n',
      points.table(cells, ('notion', 'amount'), _METRICS, digits=7),
      'Error of that test at the n of the bounds.\n',
      points.table(cells, ('notion', 'amount'),
                   ('error_quoted', 'error_theorem'))])


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on the worked example and its numbers."""
  cells = points.collect(rows)
  pure = points.select(cells, notion='pure')
  tenth = points.select(pure, amount=0.1)
  return [
      points.judged('381 participants by the quoted bound, 4109 by Theorem '
                    '3.2.1', '381 and 4109 at epsilon = .1', tenth, _example),
      points.judged('4109 participants suffice at epsilon = .1',
                    'the experiment is to be calibrated with them', tenth,
                    _moot),
      points.judged('half of the distance gives 7969, a path 8019, sampling '
                    '54112', 'item E-20', tenth, _sharper),
      points.judged('numbers of participants at other values of epsilon',
                    'item G-1', points.select(
          pure, amount=tuple(_GOLDEN)), _golden),
      points.judged('privacy increases the number of participants below '
                    'epsilon = .015, by Theorem 3.2.1 below .007',
                    'item EXP-8', pure, _felt),
      points.judged('no test needs fewer records than the bounds', 'everywhere',
                    cells, _below),
      points.judged('bounds are near the number of records that the best pure '
                    'test needs', 'where privacy dominates', [
                        p for p in pure if p['amount'] <= 0.002], _near),
      points.judged('a Gaussian count is the best test under zCDP',
                    'the mechanism of the sources', points.select(
                        cells, notion='zcdp'), _ramp),
      points.judged('the number of records grows as 1 / epsilon, and as 1 / '
                    'sqrt(rho)', '-1 '
                    'and -0.5', cells, _slopes)]


def _example(cells):
  point, = cells
  ours = int(point['quoted']), int(point['theorem'])
  return f'{ours[0]} and {ours[1]}', ours == (381, 4109), 'both bounds hold'


def _moot(cells):
  point, = cells
  return (f'{point["test"]:.0f}', point['theorem'] == point['test'],
          'with 4109 the best private test has error '
          f'{point["error_theorem"]:.3f}; sampling alone needs '
          f'{point["sampling"]:.0f} (erratum E-20)')


def _sharper(cells):
  point, = cells
  ours = [int(point[name]) for name in ('midpoint', 'path', 'sampling')]
  return (', '.join(map(str, ours)), ours == [7969, 8019, 54112],
          'least n at which each bound falls to 1 %')


def _golden(cells):
  off = [int(abs(p[name] - wanted)) for p in cells for name, wanted in zip(
      ('quoted', 'theorem', 'path'), _GOLDEN[p['amount']])]
  return (f'at most {max(off)} away', max(off) == 0, f'{len(off)} numbers')


def _crossing(cells, metric):
  """Returns the budget at which a bound needs as many records as sampling."""
  pairs = sorted((p[metric] / p['sampling'], p['amount']) for p in cells)
  ratios, amounts = np.log(np.array(pairs)).T
  return float(np.exp(np.interp(0.0, ratios, amounts)))


def _felt(cells):
  path, theorem = (_crossing(cells, name) for name in ('path', 'theorem'))
  return (f'{path:.4f} and {theorem:.4f}',
          abs(path - 0.015) < 5e-4 and abs(theorem - 0.007) < 5e-4,
          'where a bound needs as many records as sampling')


def _below(cells):
  ratios = [max(p[name] for name in _METRICS if name in p.values
                and name not in ('test', 'gaussian')) / p['test']
            for p in cells]
  return (f'{min(ratios):.3f} to {max(ratios):.3f} of the records that a test '
          'needs',
          max(ratios) <= 1, f'{len(cells)} budgets')


def _near(cells):
  ratios = [p['test'] / p['path'] for p in cells]
  return (', '.join(f'{ratio:.3f}' for ratio in ratios), max(ratios) < 1.1,
          'n of the test over n of the path bound')


def _ramp(cells):
  ratios = [p['gaussian'] / p['test'] for p in cells]
  return (f'needs up to {max(ratios):.3f} times the records',
          max(ratios) <= 1.001, 'the better test has two answers, whose '
                                'log-odds change as fast as zCDP allows at all '
                                'orders; ratio of the least n')


def _slopes(cells):
  texts, worst = [], 0.0
  for notion, power in (('pure', -1.0), ('zcdp', -0.5)):
    selected = points.select(cells, notion=notion)
    small = sorted(p['amount'] for p in selected)[:3]
    tests = points.slope(points.select(selected, amount=tuple(small)), 'amount',
                         'test')
    path = points.slope(selected, 'amount', 'path')
    texts.append(f'{path:.3f} (test {tests:.3f})')
    worst = max(worst, abs(path - power))
  return (', '.join(texts), worst < 0.02,
          'slopes of the path bound over all budgets, and of tests at the '
          'three smallest budgets, where sampling still matters')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the number of records against epsilon (left) and rho (right)."""
  cells = points.collect(rows)
  drawn, axes = plots.new(1, 2, width=4.4, height=3.6)
  for ax, (notion, (title, symbol)) in zip(axes[0], _TITLES.items()):
    subset = points.select(cells, notion=notion)
    for metric, label in _LABELS[notion].items():
      points.curve(ax, subset, 'amount', metric, label, series=_SERIES[metric],
                   line={'test': '-', 'path': '-.', 'gaussian': '--'}.get(
                       metric, ':'))
    points.curve(ax, subset, 'amount', 'sampling', 'no privacy', series=6,
                 line='--')
    points.finish(ax, symbol, 'records n for an error of 1 %', title,
                  legend=False)
    ax.set_ylim(2e2 if notion == 'pure' else 1e3, 6e6)
    ax.legend(fontsize=7, loc='upper right', frameon=False)
  return drawn
