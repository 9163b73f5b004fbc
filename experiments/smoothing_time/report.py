"""Reports seconds of smoothing by program, and draws Figure 6.6.7.

The figure is that of Barczewski (2025).
"""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.smoothing_time import sweep

_LABELS = {
    'cvxopt_lp': 'CVXOPT, p = 1', 'cvxopt_qp': 'CVXOPT, p = 2',
    'lp_rows': 'the same, printed rows', 'qp_rows': 'the same, printed rows',
    'highs_lp': 'HiGHS, p = 1', 'clarabel_qp': 'Clarabel, p = 2',
    'osqp_qp': 'OSQP, p = 2', 'p1': 'ours, p = 1', 'p2': 'ours, p = 2',
    'pava': 'isotonic'}
_STYLES = {
    'cvxopt_lp': (0, '-'), 'cvxopt_qp': (1, '-'), 'lp_rows': (0, ':'),
    'qp_rows': (1, ':'), 'highs_lp': (0, '--'), 'clarabel_qp': (4, '--'),
    'osqp_qp': (1, '--'), 'p1': (5, '-'), 'p2': (3, '-'), 'pava': (2, '-')}


def table(rows: Sequence[records.Row]) -> str:
  """Returns a table of all settings."""
  return ('Seconds of a call (median) and of compilation. objective: the sum '
          'of squares or of absolute values of the noise that smoothing '
          'removes.\n\n'
          + points.table(points.collect(rows), ('method', 'num_thresholds'),
                         ('seconds', 'fastest', 'slowest', 'calls',
                          'compile_seconds', 'objective'), digits=3))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on section 6.6.8, and on other solvers.

  The section is of Barczewski (2025).
  """
  cells = points.collect(rows)
  of = lambda *methods: points.select(cells, method=methods)
  return [
      points.judged('the quadratic program is solved more quickly than the '
                    'linear one', 'as the figure draws it',
                    of('cvxopt_qp', 'cvxopt_lp'), _quicker),
      points.judged('the problem has O(N log N) variables', 'N log N',
                    cells, _variables),
      points.judged('the printed constraint matrix is slower to solve than '
                    'one of row differences',
                    'not in the text', of('cvxopt_qp', 'qp_rows'), _rows),
      points.judged("dpjax's solver takes time linear in N",
                    'not in the text', [
          p for p in of('p2', 'p1') if p['num_thresholds'] >= 2**12], _linear),
      points.judged("dpjax's solver is 5 times as fast as CVXOPT for p = 2 at "
                    'N = 2^12, and 20 times at 2^13',
                    'not in the text', points.select(
                        of('p2', 'cvxopt_qp'), num_thresholds=(2**12, 2**13)),
                    _ours),
      points.judged('all solvers for p = 2 reach the same minimum',
                    'not in the text', of(*sweep.QUADRATIC),
                    lambda cells: _same(cells, 'p2')),
      points.judged('all solvers for p = 1 reach the same minimum',
                    'not in the text', of(*sweep.LINEAR),
                    lambda cells: _same(cells, 'p1'))]


def _ratios(cells: Sequence[points.Point], above: str, below: str,
            metric: str = 'seconds') -> dict[float, float]:
  """Returns N -> time of one solver over that of another."""
  by = {(p['method'], p['num_thresholds']): p.values.get(metric)
        for p in cells}
  return {size: by[above, size] / by[below, size] for _, size in sorted(by)
          if by.get((above, size)) and by.get((below, size))}


def _span(values: Sequence[float]) -> str:
  return f'{min(values):.3g} to {max(values):.3g}' if values else '-'


def _quicker(cells: list[points.Point]):
  gains = _ratios(cells, 'cvxopt_lp', 'cvxopt_qp')
  if not gains:
    return '-', False, 'one of the two alone'
  large = {size: gain for size, gain in gains.items() if size >= 2**8}
  return (f'by {_span(list(gains.values()))} times',
          bool(large) and min(large.values()) > 1,
          'from N = 2^8 on; for smaller N, both take a few milliseconds')


def _variables(cells: list[points.Point]):
  size = int(max(p['num_thresholds'] for p in cells))
  return (f'2 N - 1, {2 * size - 1} at N = {size}', False,
          'one variable for each node; the printed rows have N (L + 1) '
          'numbers, their differences 4 N (C13)')


def _rows(cells: list[points.Point]):
  gains = _ratios(cells, 'qp_rows', 'cvxopt_qp')
  if not gains:
    return '-', False, 'one of the two alone'
  size, gain = max(gains.items())
  return (f'{_span(list(gains.values()))} times', gain > 1,
          f'{gain:.3g} times at N = {size:g}')


def _linear(cells: list[points.Point]):
  slopes = {method: points.slope(of, 'num_thresholds', 'seconds')
            for method in ('p2', 'p1')
            if len(of := points.select(cells, method=method)) > 1}
  return (', '.join(f'slope {slope:.2f} of {method}'
                    for method, slope in slopes.items()) or '-',
          bool(slopes) and all(0.7 < slope < 1.3 for slope in slopes.values()),
          'of logarithms, from N = 2^12 on, within 0.3 of 1')


def _ours(cells: list[points.Point]):
  gains = _ratios(cells, 'cvxopt_qp', 'p2')
  wanted = {2.0**12: 5, 2.0**13: 20}
  return (', '.join(f'{gain:.3g} times at {size:g}'
                    for size, gain in gains.items()) or '-',
          set(gains) == set(wanted) and all(
              gain >= wanted[size] for size, gain in gains.items()),
          'without compilation, which happens once for each N')


def _same(cells: list[points.Point], ours: str):
  off = [abs(ratio - 1) for method, in points.distinct(cells, 'method')
         if method != ours
         for ratio in _ratios(cells, method, ours, 'objective').values()]
  return (f'within {max(off, default=0.0):.1g}', bool(off) and max(off) < 1e-2,
          f'{len(off)} problems, to 1 %; each solver stops at its own '
          'tolerance')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the seconds of each program against N."""
  cells = points.collect(rows)
  drawn, axes = plots.new(1, 1, width=5.5, height=4.0)
  for method, (series, line) in _STYLES.items():
    points.curve(axes[0, 0], points.select(cells, method=method),
                 'num_thresholds', 'seconds', _LABELS[method], series=series,
                 line=line)
  points.finish(axes[0, 0], 'thresholds N', 'seconds')
  return drawn
