"""Reports ratios of errors after smoothing to errors before.

The figures are Figures 6.6.1 and 6.6.2 of Barczewski (2025).
"""

from collections.abc import Sequence
import math
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.ecdf_smoothing import reference

_FIELDS = ('figure', 'method', 'smoothing', 'num_thresholds', 'rate', 'epsilon')
_METRICS = ('mse', 'mse_se', 'ratio', 'ratio_se', 'run_ratio', 'worst',
            'absolute', 'of_printed')
# Curves: method, smoothing, metric, label, number of the colour, line style.
_DRAWN = (
    ('paper', 'p1', 'ratio', 'p = 1', 0, '-'),
    ('paper', 'p2', 'ratio', 'p = 2', 1, '-'),
    ('paper', 'pava', 'ratio', 'isotonic', 2, '-'),
    ('tight', 'p2', 'of_printed', 'p = 2, tight noise', 1, '--'),
    ('tight', 'pava', 'of_printed', 'isotonic, tight noise', 2, '--'),
    ('tree', 'none', 'of_printed', 'tree of counts', 4, '--'),
    ('tree', 'native', 'of_printed', 'the same, nonnegative', 4, '-'),
)


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of ratios, with one line for each setting."""
  return (
      'Squared errors of ranks (mse), and what is left of those before '
      'smoothing: of means (ratio), on average over data sets (run_ratio), at '
      'most (worst), and of absolute errors; of_printed is mse over 2 (L + 1)^3'
      ' / epsilon^2, what the printed curve has before smoothing. Of p = 1 '
      'there are many solutions: one in their middle.\n\n' + points.table(
          points.collect(rows), _FIELDS, _METRICS, digits=3))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on both figures, and on better methods.

  The figures are discussed in Barczewski (2025, section 6.6.3).
  """
  cells = points.collect(rows)
  paper = points.select(cells, method='paper')
  along = {name: points.select(paper, figure=name)
           for name in ('epsilon', 'lambda')}
  of = lambda name, *smoothings: points.select(along[name],
                                               smoothing=smoothings)
  checked = points.select(paper, figure='check', smoothing='p2')
  return [
      points.judged('before smoothing the squared error is that of Theorem '
                    '6.3.1', '2 (L + 1)^3 / epsilon^2', points.select(
                        paper, smoothing='none'), _closed),
      points.judged('2-norm smoothing outperforms 1-norm smoothing',
                    'its curve is lower in the figure',
                    of('epsilon', 'p1', 'p2'), _norms),
      points.judged('2-norm smoothing helps from epsilon 0.2 on and not below',
                    'below 1 from 0.2', of('epsilon', 'p2'), _from),
      points.judged('2-norm smoothing ceases to matter for large epsilon',
                    'tends to 1', [p for p in checked if p['rate'] == 3],
                    lambda f: _tends(f, 'epsilon')),
      points.judged('2-norm smoothing ceases to matter for large lambda',
                    'tends to 1', of('lambda', 'p2'),
                    lambda f: _tends(f, 'rate')),
      points.judged('2-norm smoothing helps for moderate lambda', 'below 1',
                    [p for p in of('lambda', 'p2') if 0.1 <= p['rate'] <= 100],
                    _helps),
      points.judged('1-norm smoothing reduces the squared error',
                    'below 1 where 2-norm smoothing is', points.select(
                        paper, smoothing='p1'), _helps),
      points.judged('values for p = 2 and isotonic regression computed by '
                    'other programs are reproduced',
                    'within 15 %', points.select(
                        paper, smoothing=('p2', 'pava')), _cells),
      points.judged('values for p = 1 are those of one of many optimal '
                    'solutions',
                    'not in the text', points.select(paper, smoothing='p1'),
                    _vertices),
      *_not_in_the_text(cells)]


def _not_in_the_text(cells: list[points.Point]) -> list[verdicts.Verdict]:
  """Returns verdicts on questions that the source does not consider."""
  return [
      points.judged('calibrated noise gains as much after smoothing as before',
                    'L^2 / (L + 1)^2, not in the text', points.select(
                        cells, figure='epsilon', smoothing='p2'), _tight),
      points.judged('a tree of counts beats smoothing',
                    'not in the text',
                    points.select(cells, figure='epsilon', smoothing=(
                        'p2', 'native')), _tree)]


def _span(values: Sequence[float]) -> str:
  return f'{min(values):.3g} to {max(values):.3g}'


def _closed(cells: list[points.Point]):
  # The noise is integer-valued; its variance is slightly below that of the
  # continuous distribution in the formula.
  off = [abs(p['of_printed'] - 1) * p['mse'] / (
      p['mse_se'] * p['of_printed'] + 1e-3 * p['mse']) for p in cells
         if p['epsilon'] <= 2]
  return (f'within {max(off):.1f} standard errors', max(off) < 5,
          'the formula is for ranks; for F, a factor 1 / n^2 is missing (C1)')


def _norms(cells: list[points.Point]):
  gains, stands = [], []
  for epsilon, in points.distinct(cells, 'epsilon'):
    by = {p['smoothing']: p for p in points.select(cells, epsilon=epsilon)}
    if len(by) == 2:
      first, second = by['p1'], by['p2']
      gains.append(first['ratio'] / second['ratio'])
      stands.append(second['ratio'] - first['ratio'] < 3 * math.hypot(
          first['ratio_se'], second['ratio_se']))
  return (f'by {_span(gains)} times', bool(gains) and all(stands)
          and max(gains) > 1, 'within 3 standard errors at every epsilon')


def _from(cells: list[points.Point]):
  small = [p['ratio'] for p in cells if p['epsilon'] < 0.2]
  large = [p['ratio'] for p in cells if p['epsilon'] >= 0.2]
  if not small or not large:
    return '-', False, 'one side of 0.2 alone'
  return (f'{_span(small)} below 0.2 and {_span(large)} from there',
          min(small) >= 1 > max(large), 'an exact solver helps at every '
          'epsilon, most at small ones (C15)')


def _tends(cells: list[points.Point], field: str):
  ordered = sorted(cells, key=lambda p: p[field])
  first, last = ordered[0], ordered[-1]
  name = 'lambda' if field == 'rate' else field
  return (f'{first["ratio"]:.3g} at {name} {first[field]:g}, '
          f'{last["ratio"]:.3g} at {last[field]:g}',
          first['ratio'] < last['ratio'] and 0.9 < last['ratio'] < 1.1,
          'within 10 % of 1 at the last')


def _helps(cells: list[points.Point]):
  worst = max(cells, key=lambda p: p['ratio'])
  return (f'{_span([p["ratio"] for p in cells])}', worst['ratio'] < 1,
          f'largest at lambda {worst["rate"]:g}, epsilon {worst["epsilon"]:g}, '
          f'N {worst["num_thresholds"]:g}')


def _near(cells: list[points.Point]) -> list[tuple[float, bool]]:
  """Returns our ratios over the stored ones, and whether they are near.

  Near means within 15 %, or within 3 standard errors of the difference. The
  stored ratios are means over 25 data sets, with twice our standard error,
  hence the factor sqrt(5).

  """
  known, near = reference.cells(), {}
  for point in cells:
    at = tuple(point[name] for name in ('smoothing', 'num_thresholds',
                                        'epsilon', 'rate'))
    if at in known:
      off = abs(point['ratio'] - known[at])
      near[at] = (point['ratio'] / known[at], off < max(
          0.15 * known[at], 3 * 5**0.5 * point['ratio_se']))
  return list(near.values())


def _cells(cells: list[points.Point]):
  near = _near(cells)
  if not near:
    return '-', False, 'no setting has a stored value'
  return (f'{_span([ratio for ratio, _ in near])} times',
          all(fits for _, fits in near),
          f'{len(near)} values, within 15 % or 3 standard errors')


def _vertices(cells: list[points.Point]):
  near = _near(cells)
  if not near:
    return '-', False, 'no setting has a stored value'
  return (f'{_span([ratio for ratio, _ in near])} times',
          not all(fits for _, fits in near),
          f'{len(near)} cells; the problem has many solutions, and ours is in '
          'their middle (C16)')


def _tight(cells: list[points.Point]):
  gains, wanted = [], 1.0
  for epsilon, in points.distinct(cells, 'epsilon'):
    by = {p['method']: p for p in points.select(cells, epsilon=epsilon)}
    if {'paper', 'tight'} <= set(by):
      gains.append(by['tight']['mse'] / by['paper']['mse'])
      levels = int(by['tight']['num_thresholds']).bit_length()
      wanted = (levels - 1)**2 / levels**2
  return (f'{_span(gains)} times the error', bool(gains) and
          max(gains) < 1 and min(gains) > 0.8 * wanted,
          f'{wanted:.3g} before smoothing')


def _tree(cells: list[points.Point]):
  gains = []
  for epsilon, in points.distinct(cells, 'epsilon'):
    by = {p['method']: p for p in points.select(cells, epsilon=epsilon)}
    if {'paper', 'tree'} <= set(by):
      gains.append(by['paper']['mse'] / by['tree']['mse'])
  return (f'{_span(gains)} times less error', bool(gains) and min(gains) > 2,
          'compared with p = 2 on the printed curve, at every epsilon')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws ratios of errors against epsilon and against lambda."""
  cells = points.collect(rows)
  drawn, axes = plots.new(1, 2, width=4.6, height=3.6)
  for ax, name, field in ((axes[0, 0], 'epsilon', 'epsilon'),
                          (axes[0, 1], 'lambda', 'rate')):
    for method, smoothing, metric, label, series, line in _DRAWN:
      points.curve(ax, points.select(cells, figure=name, method=method,
                                     smoothing=smoothing), field, metric,
                   label, series=series, line=line)
    ax.axhline(1, color=plots.COLOURS[-1], linewidth=0.6)
    points.finish(ax, name, 'squared error over that of the printed curve',
                  legend=name == 'epsilon')
  return drawn
