"""Printed and exact sensitivities, and verdicts on claims about them."""

from collections.abc import Sequence
import math
from typing import Any

from dpjax.privacy.adjacency import Adjacency
from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

_REPLACE = Adjacency.REPLACE_ONE.value
_ADD = Adjacency.ADD_OR_REMOVE_ONE.value

# Item DEN-P3: N -> l1 and l2 sensitivity under REPLACE_ONE, and l1 sensitivity
# under ADD_OR_REMOVE_ONE.
TABLE = {3: (4.0000, 2.8284, 2.00), 5: (6.8374, 3.5355, 3.878),
         9: (12.4315, 4.6987, 7.596), 17: (23.5579, 6.4399, 15.007),
         33: (45.7724, 8.9656, 29.813), 65: (90.1801, 12.5803, 59.418),
         129: (178.984, 17.7217, None)}
INVERSE = {2: 8.9995, 6: 12.778, 13: 15.641, 23: 17.795, 49: 20.730,
           105: 23.735}
COSINE = {10: 4.44, 50: 4.08, 200: 4.02}


def _collected(rows: Sequence[records.Row]) -> list[points.Point]:
  cells = points.collect(rows)
  for point in points.select(cells, method='sums'):
    point.values['ratio'] = point['printed'] / point['exact']
  return cells


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of the sensitivities of sums, counts and weighted sums."""
  cells = _collected(rows)
  return '\n'.join([
      'Sums of N functions; attained: the largest change that a search '
      'attains.\n',
      points.table(points.select(cells, method='sums'),
                   ('adjacency', 'order', 'size'),
                   ('printed', 'exact', 'attained', 'ratio'), digits=7),
      'Counts of N bins, all pairs.\n',
      points.table(points.select(cells, method='counts'),
                   ('adjacency', 'size'), ('l1', 'l2', 'largest')),
      'Weights 1/k of N frequencies: largest sum of (4 - 4 cos 2 pi k d) / k.',
      '', points.table(points.select(cells, method='inverse'), ('size',),
                       ('supremum',), digits=6),
      "Privacy error of Pinsker's weights below W = N, divided by the bound 4 "
      '(sum of weights)^2 / (n^2 rho); order is beta, 0 stands for equal '
      'weights.\n',
      points.table(points.select(cells, method='pinsker'), ('order', 'size'),
                   ('proportional', 'least')),
      'On an interval: supremum over the sum of weights, beta = 1.\n',
      points.table(points.select(cells, method='cosine'), ('size',),
                   ('ratio',))])


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on printed claims and on stored values."""
  cells = _collected(rows)
  sums = points.select(cells, method='sums')
  replaced = points.select(sums, adjacency=_REPLACE)
  return [
      *(points.judged(f'the l{order} sensitivity of N sums is {text}', text,
                      points.select(replaced, order=float(order)), _printed)
        for order, text in ((1, '2 sqrt 2 N'), (2, '2 sqrt 2 sqrt N'))),
      points.judged('no pair found by search changes the sums by more than '
                    'the certified sensitivity',
                    'attained to 1e-6', sums, _certified),
      points.judged('exact sensitivities match independently computed values',
                    'DEN-P3, four digits', [
                        p for p in sums if p['size'] in TABLE], _table),
      points.judged('sensitivities for many functions, replace_one',
                    '1.3876 N and 2.4345 N squared',
                    points.select(replaced, size=257.0), _limits),
      points.judged('every record has the same norm, add_or_remove_one',
                    'sqrt(N - 1) in l2', points.select(
                        sums, adjacency=_ADD, order=2.0), _lengths),
      points.judged('excess noise variance of the printed sensitivities',
                    '4.15 times in l1, 3.29 times in l2',
                    points.select(replaced, size=257.0), _waste),
      points.judged('one record changes counts by 2, sqrt 2 and 1 in l1, l2 '
                    'and maximum norm; by 1 if n is private',
                    'for at least 2 bins',
                    points.select(cells, method='counts'), _counts),
      *_weighted(cells)]


def _weighted(cells: list[points.Point]) -> list[verdicts.Verdict]:
  """Returns the verdicts on sums of weighted functions."""
  return [
      points.judged('suprema for weights 1/k match independently computed '
                    'values', 'DEN-B5, four digits',
                    points.select(cells, method='inverse'), _inverse),
      points.judged('suprema on an interval match independently computed '
                    'values',
                    '4.44, 4.08, 4.02 times the sum of weights (DEN-B4)',
                    points.select(cells, method='cosine'), _cosine),
      points.judged('constants of Pinsker\'s weights, proportional noise',
                    '1.217, 1.000, 1.086, 1.130 (DEN-B4)', [
                        p for p in points.select(cells, method='pinsker')
                        if p['size'] == 200], _constants),
      points.judged('noise variances inverse to the weights have the smallest '
                    'error',
                    'DEN-B4', points.select(cells, method='pinsker'), _least)]


def _span(values, form='{:.2f}'):
  return ' to '.join(form.format(end) for end in (min(values), max(values)))


def _printed(cells):
  ratios = [p['ratio'] for p in cells]
  return (f'{_span(ratios)} times too large', max(ratios) < 1.001,
          'a bound: no record attains all largest values at once (DEN-E19); '
          'safe')


def _certified(cells):
  off = [p['exact'] / p['attained'] - 1 for p in cells]
  return (f'at most {max(off):.0e} above it', min(off) >= -1e-12
          and max(off) < 1e-6, f'{len(cells)} suprema')


def _table(cells):
  worst = 0.0
  for point in cells:
    first, second, single = TABLE[int(point['size'])]
    wanted = {(_REPLACE, 1): first, (_REPLACE, 2): second,
              (_ADD, 1): single}.get((point['adjacency'], point['order']))
    if wanted:
      worst = max(worst, abs(point['exact'] / wanted - 1))
  return f'within {worst:.1e}', worst < 2e-4, f'{len(cells)} sensitivities'


def _limits(cells):
  first, second = (points.select(cells, order=order)[0]['exact']
                   for order in (1.0, 2.0))
  ours = first / 257, second**2 / 257
  return (f'{ours[0]:.4f} and {ours[1]:.4f}', abs(ours[0] - 1.3876) < 2e-4
          and abs(ours[1] - 2.4345) < 2e-4, 'N = 257')


def _lengths(cells):
  off = [abs(p['exact'] / math.sqrt(p['size'] - 1) - 1) for p in cells]
  return f'within {max(off):.0e}', max(off) < 1e-9, f'{len(cells)} sizes'


def _waste(cells):
  first, second = (points.select(cells, order=order)[0]['ratio']**2
                   for order in (1.0, 2.0))
  return (f'{first:.2f} and {second:.2f}', abs(first / 4.15 - 1) < 0.01
          and abs(second / 3.29 - 1) < 0.01, 'N = 257')


def _counts(cells):
  def wanted(point):
    if point['adjacency'] == _ADD:
      return 1, 1, 1
    return (2, math.sqrt(2), 1) if point['size'] > 1 else (0, 0, 0)
  off = max(abs(p[name] - value) for p in cells for name, value in zip(
      ('l1', 'l2', 'largest'), wanted(p), strict=True))
  return (f'within {off:.0e}', off < 1e-12,
          f'{len(cells)} enumerations; a single bin is public where n is')


def _inverse(cells):
  pairs = [(p['supremum'], INVERSE[int(p['size'])]) for p in cells]
  high = max(ours - wanted for ours, wanted in pairs)
  return (', '.join(f'{ours:.3f}' for ours, _ in pairs),
          all(abs(ours / wanted - 1) < 1e-4 for ours, wanted in pairs),
          f'up to {high:.0e} above those values: for two frequencies the '
          'supremum is 9, and the stored 8.9995 comes from a grid')


def _cosine(cells):
  pairs = [(p['ratio'], COSINE[int(p['size'])]) for p in cells]
  return (', '.join(f'{ours:.2f}' for ours, _ in pairs),
          all(abs(ours - wanted) < 6e-3 for ours, wanted in pairs),
          'attained by the records 0 and 1')


def _constants(cells):
  ours = [p['proportional'] for p in cells]
  wanted = [(1.2172, 1.0, 1.086, 1.130)[int(p['order'])] for p in cells]
  return (', '.join(f'{value:.3f}' for value in ours),
          all(abs(a / b - 1) < 0.01 for a, b in zip(ours, wanted, strict=True)),
          'W = 200; equal weights, then beta = 1, 2, 3')


def _least(cells):
  gains = [p['proportional'] / p['least'] - 1 for p in cells]
  return (f'up to {max(gains):.1%} more than other allocations',
          max(gains) < 0.001,
          'not for beta = 1; under add_or_remove_one they are optimal')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws both sensitivities against N, and the printed over the exact one."""
  sums = points.select(_collected(rows), method='sums', adjacency=_REPLACE)
  drawn, axes = plots.new(1, 3, height=3.4)
  for order, ax, limit in zip((1.0, 2.0), axes[0], (
      ('1.3876 N', lambda size: 1.3876 * size),
      ('sqrt(2.4345 N)', lambda size: math.sqrt(2.4345 * size)))):
    cells = points.select(sums, order=order)
    for series, metric in enumerate(('printed', 'exact')):
      points.curve(ax, cells, 'size', metric, metric, series=series)
    for point in cells:
      point.values['limit'] = limit[1](point['size'])
    points.curve(ax, cells, 'size', 'attained', 'farthest pair found',
                 series=6, line=':')
    points.curve(ax, cells, 'size', 'limit', limit[0], series=2, line='--')
    points.finish(ax, 'functions N', f'l{order:g} sensitivity of N sums',
                  'replace_one')
    points.curve(axes[0][2], [points.Point(p.fields, {
        'waste': p['ratio']**2}) for p in cells], 'size', 'waste',
                 f'l{order:g}: Laplace' if order == 1 else 'l2: Gaussian',
                 series=int(order) - 1)
  points.finish(axes[0][2], 'functions N', 'printed over exact variance',
                'noise that is wasted', scales='log linear')
  axes[0][2].set_ylim(0, 6)
  return drawn
