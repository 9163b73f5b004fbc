"""Reports slopes, numbers of cells by several rules, and gaps of the bounds."""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.price_histograms import sweep

_METRICS = ('code', 'lower', 'risk', 'measured', 'measured_se', 'upper',
            'non_private', 'bins')
_TOLERANCE = 0.1
_CURVES = (('upper', 'upper bound, tuned histogram', '-', 0),
           ('lower', 'lower bound, any estimator', '--', 1),
           ('non_private', 'tuned histogram without privacy', ':', 2))
_NOTIONS = {'pure': 'epsilon', 'zcdp': 'sqrt rho'}


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of bounds and risks, by parts of the sweep."""
  cells = points.collect(rows)
  parts = {part: points.select(cells, part=part) for part in (
      'records', 'privacy', 'cells', 'golden')}
  fields = ('dimension', 'notion', 'method', 'num_records', 'amount')
  return '\n'.join([
      'Integrated squared errors over 1-Lipschitz densities on [0, 1]^d; '
      'amount is n alpha, alpha epsilon or sqrt rho. risk: of the densities '
      'that are worst for the estimator, in closed form; measured: the same, '
      'simulated; code: a lower bound by words of a code (LB-14).\n',
      'alpha = 1, against n.\n',
      points.table(parts['records'], fields, _METRICS),
      'n = 10^7, against n alpha.\n',
      points.table(parts['privacy'], fields, _METRICS),
      'Against the number of cells.\n',
      points.table(parts['cells'], fields, _METRICS),
      'The line 1/2 + x, noise of Barber and Duchi (2014).\n',
      points.table(parts['golden'], fields, _METRICS)])


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on Proposition 5, equation (19), erratum E-14, and values.

  The proposition and the equation are of Barber and Duchi (2014); the values
  are the stored ones of `sweep.GOLDEN`.
  """
  cells = points.collect(rows)
  tuned = points.select(cells, method='tuned')
  simulated = [p for p in cells if 'measured' in p.values]
  many = [p for p in points.select(tuned, part='records')
          if p['num_records'] >= 1e4]
  noisy = [p for p in points.select(tuned, part='privacy')
           if 1e2 <= p['amount'] <= 1e4]
  return [
      points.judged('measured risks lie between the bounds', 'everywhere',
                    points.select(simulated, part=('records', 'privacy',
                                                   'cells')), _between),
      points.judged('closed forms match measured risks', 'EST-HIST',
                    simulated, _closed),
      points.judged('risks and bounds match independently computed values',
                    'G-9', points.select(
          cells, part='golden'), _golden),
      points.judged('risks fall with n at the rate of equation (18)',
                    '-2/3 and -1/2 for '
                    'd = 1, 2', many, lambda of: _slopes(
                        of, 'num_records', lambda d: -2 / (d + 2))),
      points.judged('risks fall with n alpha at the rate of equation (18)',
                    '-1 and -2/3 for '
                    'd = 1, 2', noisy, lambda of: _slopes(
                        of, 'amount', lambda d: -2 / (d + 1))),
      *_numbers_of_bins(cells)]


def _numbers_of_bins(cells: list[points.Point]) -> list[verdicts.Verdict]:
  """Returns the verdicts on rules for the number of bins."""
  panel = points.select(cells, part='cells', dimension=2.0)
  rates = points.select(cells, method=('rate', 'printed'), dimension=2.0)
  return [
      points.judged('the number of bins printed below equation (19) gives the '
                    'rate of equation (18)',
                    '-1/2 in n and -2/3 in n alpha, d = 2', [
                        p for p in rates if p['method'] == 'printed'],
                    _printed),
      points.judged('the number of bins with corrected exponents gives that '
                    'rate', '-1/2 and '
                    '-2/3, d = 2', [p for p in rates if p['method'] == 'rate'],
                    _printed),
      points.judged('the printed number of bins has a larger error at n = '
                    '10^6, d = 2',
                    '16 times, constants taken as 1 (E-14)', panel, _ratio),
      points.judged('a tuned number of bins has a smaller error than that of '
                    'the rates', '1.4 to 3.9 times (EST-HIST)', points.select(
                        cells, part='golden'), _gains)]


def _between(cells):
  out = [p for p in cells
         if p['measured'] + 4 * p['measured_se'] < p['lower']
         or p['measured'] - 4 * p['measured_se'] > p['upper'] * (1 + 1e-9)]
  ratios = [p['upper'] / p['lower'] for p in points.select(
      cells, method='tuned')]
  return (f'{len(cells)} settings; upper bounds are {min(ratios):.1f} to '
          f'{max(ratios):.1f} times the lower ones', not out,
          f'{len(out)} outside by more than four standard errors; for d = 1 '
          'the upper bound is attained')


def _closed(cells):
  # A histogram of one cell has neither noise nor sampling error.
  worst = max(abs(p['measured'] - p['risk']) / p['measured_se'] for p in cells
              if p['bins'] > 1)
  return (f'within {worst:.1f} standard errors', worst < 4,
          f'{len(cells)} settings')


def _golden(cells):
  risks, bounds, off = [], [], 0.0
  for p in cells:
    golden = sweep.GOLDEN if p['notion'] == 'pure' else sweep.GOLDEN_ZCDP
    level = p['amount'] / p['num_records']
    if p['notion'] == 'zcdp':
      level **= 2
    wanted = next(values for (n, budget, _), values in golden.items()
                  if n == p['num_records'] and abs(budget / level - 1) < 1e-3)
    risks.append(f'{p["measured"]:.3g}')
    bounds.append(f'{p["upper"]:.3g}')
    # Stored risks are simulated with a standard error of 2.4 %.
    off = max(off, abs(p['upper'] / wanted[1] - 1) * 10,
              abs(p['measured'] / wanted[0] - 1))
  return (f'{", ".join(risks)}; {", ".join(bounds)}', off < 0.05,
          'risks of the line 1/2 + x, and bounds of all Lipschitz densities')


def _slopes(cells, across, theory):
  texts, worst = [], 0.0
  for dimension, notion in points.distinct(cells, 'dimension', 'notion'):
    selected = points.select(cells, dimension=dimension, notion=notion)
    if len(selected) < 2:
      continue
    slopes = [points.slope(selected, across, metric)
              for metric in ('lower', 'measured', 'upper')]
    texts.append(' '.join(f'{slope:.3f}' for slope in slopes))
    worst = max([worst, *(abs(slope - theory(dimension)) for slope in slopes)])
  return ('; '.join(texts) or '-', bool(texts) and worst < _TOLERANCE,
          'lower bound, measured, upper bound; pure then zCDP, d = 1 then 2; '
          f'at most {worst:.3f} from the theory')


def _printed(cells):
  many = [p for p in points.select(cells, part='records')
          if p['num_records'] >= 1e4]
  noisy = [p for p in points.select(cells, part='privacy')
           if 1e2 <= p['amount'] <= 1e4]
  if min(len(many), len(noisy)) < 2:
    return '-', False, 'too few settings'
  first = points.slope(many, 'num_records', 'risk')
  second = points.slope(noisy, 'amount', 'risk')
  return (f'{first:.2f} in n, {second:.2f} in n alpha',
          max(abs(first + 1 / 2), abs(second + 2 / 3)) < 0.1,
          'the printed exponents are for the cells of each axis; the total is '
          'that number to the power of d (erratum E-14)')


def _ratio(cells):
  by = {p['method']: p for p in cells}
  if not {'printed', 'rate', 'tuned'} <= set(by):
    return '-', False, 'too few settings'
  printed, rate, tuned = (by[name] for name in ('printed', 'rate', 'tuned'))
  # Like the stored values, this number of cells is not rounded to a whole
  # number on each axis.
  n = rate['num_records']
  by_one = lambda p: (lambda k: k / n + 1 / k)(
      n**(1 / 2 if p is rate else 1 / 4))
  return (f'{printed["upper"] / rate["upper"]:.2g} times the bound, '
          f'{printed["risk"] / rate["risk"]:.2g} times the risk',
          printed['risk'] > 1.5 * rate['risk'],
          f'{by_one(printed) / by_one(rate):.3g} with constants of 1; '
          f'{printed["bins"]:.0f}, {rate["bins"]:.0f} and, tuned, '
          f'{tuned["bins"]:.0f} cells: bounds {printed["upper"]:.3g}, '
          f'{rate["upper"]:.3g}, {tuned["upper"]:.3g}; bias has a constant of '
          '1/10, so that fewer cells lose less')


def _gains(cells):
  gains = [p['upper'] / p['least'] for p in points.select(cells, notion='pure')]
  return (f'{min(gains):.2g} to {max(gains):.2g} times',
          min(gains) > 1.3 and max(gains) < 4.2,
          'bounds at the points with stored values')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws risks against n, n alpha and the number of cells.

  The first row is for d = 1, the second for d = 2.
  """
  cells = points.collect(rows)
  drawn, axes = plots.new(2, 4, width=3.3, height=3.0)
  for line, dimension in zip(axes, (1.0, 2.0)):
    selected = points.select(cells, dimension=dimension)
    curves = points.select(selected, method='tuned')
    views = [('records', 'pure', 'num_records', 'records n, epsilon = 1'),
             ('privacy', 'pure', 'amount', 'n epsilon, n = 10^7'),
             ('privacy', 'zcdp', 'amount', 'n sqrt rho, n = 10^7')]
    for ax, (part, notion, across, label) in zip(line, views):
      shown = points.select(curves, part=part, notion=notion)
      _draw(ax, shown, across)
      if dimension == 2:
        points.curve(ax, points.select(selected, part=part, notion=notion,
                                       method='printed'), across, 'risk',
                     'cells as printed', series=4, line='-.')
      _finish(ax, label, dimension, ax is line[0])
    _panel(line[3], points.select(selected, part='cells'))
    size, epsilon = sweep.PANELS[int(dimension)]
    _finish(line[3], f'cells, n = {size:,}, epsilon = {epsilon:g}', dimension,
            False)
  seen = {}
  for ax in axes.ravel():
    for handle, label in zip(*ax.get_legend_handles_labels()):
      seen.setdefault(label, handle)
  drawn.legend(seen.values(), seen.keys(), ncols=5, fontsize=8,
               loc='outside lower center', frameon=False)
  return drawn


def _finish(ax, label, dimension, first):
  points.finish(ax, label, 'integrated squared error' if first else '',
                f'd = {dimension:.0f}', legend=False)


def _draw(ax, shown, across):
  for metric, label, line, series in _CURVES:
    colour = plots.COLOURS[series]
    pairs = sorted((p[across], p[metric]) for p in shown)
    if pairs:
      ax.plot(*zip(*pairs), line, label=label, color=colour, linewidth=1.2)
  points.curve(ax, shown, across, 'measured', 'measured, worst density',
               series=3, error='measured_se')


def _panel(ax, shown):
  fixed = points.select(shown, method='fixed')
  pairs = sorted((p['bins'], p['upper'], p['lower'], p['non_private'])
                 for p in fixed)
  if not pairs:
    return
  bins, *columns = zip(*pairs)
  for (_, label, line, series), values in zip(_CURVES, columns):
    ax.plot(bins, values, line, color=plots.COLOURS[series], linewidth=1.2)
  points.curve(ax, fixed, 'bins', 'measured', 'measured, worst density',
               series=3, error='measured_se')
  marks = (('printed', 'cells as printed', 4, '-.'),
           ('rate', 'cells of the rate', 5, '--'),
           ('tuned', 'tuned cells', 6, ':'))
  for method, label, series, line in marks:
    for p in points.select(shown, method=method):
      ax.axvline(p['bins'], color=plots.COLOURS[series], linestyle=line,
                 linewidth=1.2, label=label)
