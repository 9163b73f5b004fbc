"""Compares conditional variation with the printed bounds, by budget."""

from collections.abc import Sequence
import math
from typing import Any

import numpy as np

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.price_definitions import sweep

_LABELS = {'response': 'randomised response', 'five_answers': 'five answers',
           'laplace': 'Laplace noise', 'choice': 'exponential mechanism'}
_CLOSE = 1e-3


def table(rows: Sequence[records.Row]) -> str:
  """Returns a table for each kind of settings."""
  cells = points.collect(rows)
  return '\n'.join([
      'Total variation given events: by search over events of probability .001 '
      'or more (found), by the range of log-ratios (range), the bound for '
      'every mechanism (sharp) and the printed one; and for posteriors.\n',
      points.table(points.select(cells, kind='conditional'),
                   ('method', 'amount'),
                   ('found', 'range', 'sharp', 'printed', 'linear',
                    'posterior', 'posterior_printed')),
      'The worst (epsilon, delta)-DP pair, given events of the printed mass, '
      'and the least sum of errors of a test.\n',
      points.table(points.select(cells, kind='approximate'),
                   ('amount', 'delta'),
                   ('mass', 'found', 'sharp', 'printed', 'errors',
                    'errors_bound', 'errors_printed')),
      'Before and after the release of one of n records.\n',
      points.table(points.select(cells, kind='release'), ('method', 'amount'),
                   ('variation', 'found')),
      'A bit of probabilities .01 and .1, one of k numbers beside it.\n',
      points.table(points.select(cells, kind='beside'), ('amount',),
                   ('found', 'range'))])


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on Theorem 1, equation (3) and the examples.

  All are of Barber and Duchi (2014).
  """
  cells = points.collect(rows)
  pure = points.select(cells, kind='conditional')
  approx = points.select(cells, kind='approximate')
  golden = [p for p in approx if (p['amount'], p['delta']) in sweep.GOLDEN]
  return [
      points.judged('Theorem 1: conditional total variation is at most (1 + '
                    'e^-epsilon) (1 - e^(-2 epsilon))', 'everywhere',
                    [*pure, *approx], _below),
      points.judged('the bound of Theorem 1 is below 1 for every epsilon',
                    'a < 1', pure, _vacuous),
      points.judged('for delta = 0 the sharp bound is tanh(epsilon / 2)',
                    'DEF-CHTP', points.select(
                        pure, method=('response', 'five_answers', 'laplace',
                                      'parity')), _sharp),
      points.judged('the exponential mechanism has half the range of '
                    'log-ratios, hence a smaller bound',
                    'tanh(epsilon / 4)', points.select(pure, method='choice'),
                    _half),
      points.judged('the sharp bound for delta > 0',
                    '.160, .551, .915 (DEF-CHTP)', golden,
                    _golden),
      points.judged('the sum of both errors of a test is at least (2 - delta) '
                    '/ (1 + e^epsilon)', 'everywhere', approx, _errors),
      points.judged('posteriors change by at most e^epsilon - 1',
                    '.0997 at .2, '
                    '.4621 at 1 (DEF-SEM)', [p for p in pure if 'posterior' in
                                             p.values], _posteriors),
      points.judged('publishing a random record is 1/n-private before the '
                    'draw, and not private after it', '1/n and 1',
                    points.select(cells, kind='release'), _release),
      points.judged('conditional testing is not inherited',
                    '.09 and up to .537',
                    points.select(cells, kind='beside'), _beside)]


def _below(cells):
  ratios = [p['found'] / min(1.0, p['printed']) for p in cells]
  return (f'{min(ratios):.2g} to {max(ratios):.2g} of the bound',
          max(ratios) <= 1 + 1e-9, f'{len(cells)} pairs of distributions; an '
                                   'eighth of the bound for small epsilon')


def _vacuous(cells):
  first = min((p['amount'] for p in cells if p['printed'] >= 1), default=None)
  return (f'a >= 1 at epsilon = {first:g}' if first else 'a < 1 everywhere',
          first is None, 'from ln((1 + sqrt 5) / 2) = .4812 on; tanh(epsilon / '
          '2) is below 1 (erratum E-22)')


def _off(cells, wanted):
  return max(abs(p['found'] / wanted(p) - 1) for p in cells)


def _sharp(cells):
  off = max(_off(cells, lambda p: math.tanh(p['amount'] / 2)),
            _off(cells, lambda p: p['sharp']))
  return (f'within {off:.1e}', off < _CLOSE,
          f'{len(cells)} settings, by linear programs')


def _half(cells):
  off = _off(cells, lambda p: math.tanh(p['amount'] / 4))
  return f'within {off:.1e}', off < _CLOSE, f'{len(cells)} settings'


def _golden(cells):
  ours = [p['found'] for p in cells]
  stands = all(
      abs(p['found'] - sweep.GOLDEN[p['amount'], p['delta']]) < _CLOSE
      and abs(p['found'] - p['sharp']) < _CLOSE for p in cells)
  return (', '.join(f'{value:.3f}' for value in ours), stands,
          't + (1 - t) delta / mass for t = tanh(epsilon / 2), sharp')


def _errors(cells):
  gaps = [p['errors_printed'] - p['errors'] for p in cells]
  exact = max(abs(p['errors'] - p['errors_bound']) for p in cells)
  return (f'a test attains {max(gaps):.3f} less', max(gaps) <= 1e-9,
          f'(2 - 2 delta) / (1 + e^epsilon) is attained, within {exact:.0e} '
          '(erratum E-02)')


def _posteriors(cells):
  at = {p['amount']: p['posterior'] for p in cells}
  off = max(abs(value / math.tanh(epsilon / 2) - 1)
            for epsilon, value in at.items())
  stands = off < _CLOSE and all(
      p['posterior'] <= p['posterior_printed'] for p in cells)
  texts = [f'{at[epsilon]:.4f}' for epsilon in (0.2, 1.0) if epsilon in at]
  return (', '.join(texts), stands, 'tanh(epsilon / 2), attained by a noisy '
          f'parity within {off:.0e}')


def _release(cells):
  random = points.select(cells, method='one_at_random')
  noisy = points.select(cells, method='response')
  stands = (all(abs(p['variation'] * p['amount'] - 1) < 1e-9 for p in cells)
            and all(p['found'] > 1 - 1e-6 for p in random)
            and all(abs(p['found'] / p['variation'] - 1) < _CLOSE
                    for p in noisy))
  return (f'after: {min(p["found"] for p in random):.3g}', stands,
          'randomised response that is 1/n-private before the draw is so after '
          'it')


def _beside(cells):
  ours = [p['found'] for p in cells]
  limit = cells[0]['range']
  rises = all(low < high for low, high in zip(ours, ours[1:]))
  return (f'{ours[0]:.3g}, {ours[-1]:.3g} beside one of '
          f'{cells[-1]["amount"]:g} numbers, {limit:.3f} in the limit',
          abs(ours[0] - 0.09) < _CLOSE and abs(limit - 0.537) < _CLOSE and rises
          and ours[-1] < limit, 'limit: tanh of a quarter of the range of '
                                'log-ratios')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the four kinds of settings.

  The panels show conditional variation without and with delta, the release of
  one record before and after conditioning, and a channel with an independent
  output.
  """
  cells = points.collect(rows)
  drawn, axes = plots.new(2, 2, width=4.6, height=3.5)
  _pure(axes[0, 0], points.select(cells, kind='conditional'))
  _approximate(axes[0, 1], points.select(cells, kind='approximate',
                                         delta=sweep.MASS))
  _before_after(axes[1, 0], points.select(cells, kind='release'))
  beside = points.select(cells, kind='beside')
  ax = axes[1, 1]
  points.curve(ax, beside, 'amount', 'found', 'events of bit and number',
               series=0)
  points.curve(ax, beside, 'amount', 'range', 'limit, tanh(R / 4)', series=1,
               line='--')
  ax.set_ylim(0, 0.65)
  points.finish(ax, 'numbers k beside the bit', 'conditional variation',
                'Not inherited: a binary channel', scales='linear linear',
                legend=False)
  ax.legend(fontsize=7, loc='lower right')
  return drawn


def _pure(ax, cells):
  some = points.select(cells, method='response')
  points.curve(ax, some, 'amount', 'linear', 'printed: 4 epsilon', series=6,
               line=':')
  points.curve(ax, some, 'amount', 'printed',
               'printed: (1 + e^-eps)(1 - e^-2eps)', series=6, line='--')
  points.curve(ax, some, 'amount', 'sharp', 'sharp: tanh(epsilon / 2)',
               series=0, line='-.')
  for series, (method, label) in enumerate(_LABELS.items(), 1):
    selected = points.select(cells, method=method)
    # Marks have decreasing sizes, because three mechanisms attain the bound and
    # would hide each other.
    _marks(ax, selected, 'found', f'found: {label}', series, 9 - 2 * series)
  _marks(ax, points.select(cells, method='parity'), 'posterior',
         'posterior: noisy parity', 5, 2.5)
  _vacant(ax)
  ax.set_ylim(5e-5, 40)
  points.finish(ax, 'epsilon', 'conditional variation', 'Pure privacy',
                legend=False)
  ax.legend(fontsize=6.5, loc='lower right')


def _marks(ax, cells, metric, label, series, size):
  pairs = sorted((p['amount'], p[metric]) for p in cells)
  if pairs:
    ax.plot(*zip(*pairs), linestyle='none', label=label, fillstyle='none',
            marker=plots.MARKERS[series], color=plots.COLOURS[series],
            markersize=max(size, 2.5))


def _vacant(ax):
  ax.axhspan(1, 1e3, color='0.6', alpha=0.25, linewidth=0)


def _approximate(ax, cells):
  points.curve(ax, cells, 'amount', 'printed',
               'printed: (1 + e^-eps)(1 - e^-2eps)', series=6, line='--')
  points.curve(ax, cells, 'amount', 'sharp', 'sharp: t + (1 - t) delta / mass',
               series=0, line='-.')
  _marks(ax, cells, 'found', 'found: told with probability delta', 1, 5)
  if cells:
    xs = np.array(sorted(p['amount'] for p in cells))
    ax.plot(xs, np.tanh(xs / 2), ':', color=plots.COLOURS[2],
            label='t = tanh(epsilon / 2), delta = 0')
  _vacant(ax)
  ax.set_ylim(1e-3, 40)
  points.finish(ax, 'epsilon', 'conditional variation',
                'delta = 0.001, events of the printed mass', legend=False)
  ax.legend(fontsize=7, loc='upper left')


def _before_after(ax, cells):
  for series, (method, label) in enumerate((
      ('one_at_random', 'one record at random'),
      ('response', 'randomised response'))):
    selected = points.select(cells, method=method)
    _marks(ax, selected, 'found', f'after: {label}', series, 7)
  points.curve(ax, points.select(cells, method='response'), 'amount',
               'variation', 'before: both, 1 / n', series=6, line='--')
  points.finish(ax, 'records n', 'total variation',
                'Before and after the release', legend=False)
  ax.set_ylim(5e-3, 3)
  ax.legend(fontsize=7, loc='lower left')
