"""Prints Table 1 with the measured value beside each exponent.

The table is that of Lalanne, Garivier and Gribonval (2023).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpjax.report import plots
from dpjax.report import tables
from experiments import points
from experiments import records
from experiments import verdicts

_NAMES = {'tent2': 'Lipschitz'} | {
    f'sobrand{order}': f'periodic Sobolev, beta = {order}'
    for order in (1, 2, 3)}
_SOURCES = {
    'lipschitz': {'pure': ('Theorem 1', 'Theorems 2 and 3, Corollary 1'),
                  'zcdp': ('Theorem 1', 'Theorems 2 and 3, Corollary 1')},
    'sobolev': {'pure': ('Theorem 4', 'Theorem 5'),
                'zcdp': ('Theorem 4', 'Theorem 5')}}
_SIGNALS = {'pure': 'n epsilon', 'zcdp': 'n sqrt(rho)', 'sampling': 'n'}
_TOLERANCE, _PRINTED_TOLERANCE = 0.05, 0.08


def _of(cells: Sequence[points.Point], dataset: str, term: str, method: str
        ) -> points.Point | None:
  same = points.select(cells, dataset=dataset, term=term, method=method)
  return same[0] if same else None


def table(rows: Sequence[records.Row]) -> str:
  """Returns Table 1 with an updated row, followed by all rates."""
  cells = points.collect(rows)
  lines = []
  for dataset, name in _NAMES.items():
    if not points.select(cells, dataset=dataset):
      continue
    kind = 'lipschitz' if dataset == 'tent2' else 'sobolev'
    lines.append((name, *(
        f'{_cell(cells, dataset, term, method)} ({_SOURCES[kind][term][side]})'
        for term in ('pure', 'zcdp')
        for side, method in enumerate(('printed', 'cells')))))
    if kind == 'sobolev':
      lines.append((f'{name}, updated', *(
          f'{_cell(cells, dataset, term, method)} ({source})'
          for term, method, source in (
              ('pure', 'spectral', 'by a noisy histogram'),
              ('pure', 'cells', 'Theorem 5'),
              ('zcdp', 'exact', 'exact sensitivities'),
              ('zcdp', 'cells', 'Theorem 5')))))
  return ('Each rate is the larger of two terms; the measured slope follows '
          'each exponent in brackets. Under (epsilon, delta) the text has (n '
          'epsilon / sqrt ln(1 / delta)) to the exponent of zCDP for pure '
          'privacy too.\n\n'
          + tables.markdown(('class', 'epsilon-DP, upper', 'epsilon-DP, lower',
                             'rho-zCDP, upper', 'rho-zCDP, lower'), lines)
          + '\nSlopes, of n alpha from 10^3 to 10^6 and of n from 10^4 to '
            '10^10, and prefactors C of C scale^theory; sobrand is one density '
            'that just belongs to its class; lower bounds are for the worst '
            'density with its norm.\n\n' + points.table(
              cells, ('dataset', 'term', 'method'),
              ('theory', 'slope', 'prefactor'), digits=3))


def _cell(cells, dataset, term, method):
  """Returns a cell such as max{n^a [measured a], (n alpha)^b [measured b]}."""
  parts = []
  for name in ('sampling', term):
    # Without noise, the printed and the exact estimator are the same.
    best = method if name == term or method in ('printed', 'cells') else (
        'oracle')
    point = _of(cells, dataset, name, best)
    scale = _SIGNALS[name] if name == 'sampling' else f'({_SIGNALS[name]})'
    if point:
      parts.append(f'{scale}^{point["theory"]:.3f} [{point["slope"]:.3f}]')
  return f'max{{{", ".join(parts)}}}'


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on the exponents of Table 1, and on its open case."""
  cells = points.collect(rows)
  sobolev = ('sobrand1', 'sobrand2', 'sobrand3')
  rate = lambda claim, tolerance=_TOLERANCE, **fields: points.judged(
      claim, ', '.join(sorted({f'{p["theory"]:.3f}' for p in points.select(
          cells, **fields)}, reverse=True)) or '-',
      points.select(cells, **fields), lambda of: _rates(of, tolerance))
  return [
      rate('upper bounds of Table 1, Lipschitz', _PRINTED_TOLERANCE,
           dataset='tent2', method=('printed', 'oracle')),
      rate('lower bounds of Table 1, Lipschitz', dataset='tent2',
           method=('cells', 'pointwise')),
      rate('upper bounds of Table 1, Sobolev, tuned as printed',
           _PRINTED_TOLERANCE, dataset=sobolev, method='printed'),
      rate('upper bounds of Table 1, Sobolev, tuned for the density',
           dataset=sobolev, method=('oracle', 'exact', 'relaxed')),
      rate('lower bounds of Table 1, Sobolev', dataset=sobolev,
           method='cells'),
      rate('updated row: pure privacy at the rate of its lower bound, without '
           'relaxation', dataset=sobolev, term='pure', method='spectral'),
      points.judged('near-optimal rates need a relaxation of pure privacy',
                    'section 4.4', points.select(
                        cells, dataset=sobolev, term='pure'), _gap),
      points.judged('no error is below its lower bound', 'always', cells,
                    _ordered)]


def _rates(cells, tolerance):
  off = [p['slope'] - p['theory'] for p in cells]
  worst = cells[int(np.argmax(np.abs(off)))]
  return (', '.join(f'{p["slope"]:.3f}' for p in cells),
          max(map(abs, off)) < tolerance,
          f'at most {max(map(abs, off)):.3f} from the theory; tolerance '
          f'{tolerance}; farthest: {worst["method"]}, {worst["dataset"]}, '
          f'{worst["term"]}')


def _gap(cells):
  gaps = {method: [abs(_of(cells, dataset, 'pure', method)['slope']
                       - _of(cells, dataset, 'pure', 'cells')['slope'])
                   for dataset, in points.distinct(cells, 'dataset')]
          for method in ('oracle', 'spectral')}
  return ('; '.join(f'{method}: ' + ', '.join(f'{gap:.3f}' for gap in of)
                    for method, of in gaps.items()),
          min(gaps['spectral']) > 0.1,
          'differences between the slopes of pure estimators and of the lower '
          'bound; neither is relaxed (erratum DEN-E6)')


def _ordered(cells):
  ratios = []
  for point in cells:
    below = _of(cells, point['dataset'], point['term'], 'cells')
    same = abs(point['theory'] - below['theory']) < 1e-9 if below else False
    if same and point['method'] not in ('cells', 'pointwise'):
      ratios.append(point['prefactor'] / below['prefactor'])
  return (f'{min(ratios):.1f} to {max(ratios):.1f} times', min(ratios) > 1,
          f'{len(ratios)} ratios of prefactors of the same rate: upper bounds '
          'for one density, lower bounds for the worst of its class')


_STYLES = {'printed': 'theorem, printed tuning',
           'oracle': 'theorem, best tuning', 'relaxed': 'relaxed, best tuning',
           'spectral': 'spectral histogram', 'exact': 'exact sensitivities',
           'cells': 'lower bound'}
_LINES = {'pure': ((1.0, '2 beta / (beta + 1)', '-'),
                   (1.5, '2 beta / (beta + 3/2)', '--')),
          'zcdp': ((1.0, '2 beta / (beta + 1)', '-'),),
          'sampling': ((None, '2 beta / (2 beta + 1)', ':'),)}


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws exponents on Sobolev classes, measured and of theory, by smoothness.
  """
  cells = points.collect(rows)
  drawn, axes = plots.new(1, 3, width=3.8, height=3.4)
  along = np.linspace(0.9, 3.1, 50)
  for ax, term in zip(axes[0], ('pure', 'zcdp', 'sampling')):
    for offset, label, line in _LINES[term]:
      ax.plot(along, 2 * along / (2 * along + 1 if offset is None
                                  else along + offset), line, color='black',
              linewidth=1, label=label)
    for series, (method, label) in enumerate(_STYLES.items()):
      of = [p for p in points.select(cells, term=term, method=method)
            if 'sobrand' in p['dataset']]
      ax.plot([int(p['dataset'][-1]) + 0.04 * (series - 2) for p in of],
              [-p['slope'] for p in of], plots.MARKERS[series],
              color=plots.COLOURS[series], markersize=5,
              label=label if of else None, linestyle='none')
    points.finish(ax, 'smoothness beta', 'exponent of '
                  + _SIGNALS[term], {'pure': 'epsilon-DP', 'zcdp': 'rho-zCDP',
                                     'sampling': 'not private'}[term],
                  scales='linear linear')
    ax.set_xticks((1, 2, 3))
    ax.set_ylim(0.6, 1.6)
  return drawn
