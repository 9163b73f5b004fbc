"""Risks of medians of zeros, their bounds, and Figure 6.2."""

from collections.abc import Sequence
import math
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

_METRICS = ('amplitude', 'risk', 'risk_se', 'bound_printed', 'bound',
            'missed')
# n -> E M^2 with the printed noise at epsilon 1/2, computed separately.
_KNOWN = {100: 2.8e-3, 200: 1.3e-4, 400: 8.1e-7}


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of all risks."""
  return ('Risks E M^2 of private medians of zeros on [-1, 1]; bounds as '
          'printed, and as they follow from the definition of the cost.\n\n'
          + points.table(_risks(points.collect(rows)),
                         ('method', 'epsilon', 'num_examples'), _METRICS))


def _risks(cells: list[points.Point]) -> list[points.Point]:
  return [p for p in cells if p['method'] != 'cost']


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on Lalanne (2023, section 6.3.3)."""
  cells = points.collect(rows)
  noisy = points.select(cells, method=('printed', 'half'))
  return [
      points.judged('between -alpha/4 and alpha/4 the cost is at most n/4',
                    '<= n/4', points.select(cells, method='cost'), _inside),
      points.judged('beyond alpha the cost is n/2', 'n/2',
                    points.select(cells, method='cost'), _outside),
      points.judged('without added noise, the private median of constant '
                    'records is useless',
                    'fails', points.select(cells, method='raw'), _raw),
      points.judged('with added noise, E M^2 is at most the printed bound',
                    'a bound', noisy, lambda p: _bounded(p, 'bound_printed')),
      points.judged('the bound derived from it holds', 'not in the text', noisy,
                    lambda p: _bounded(p, 'bound')),
      points.judged('at least a quarter of the records lies on either side, '
                    'except with the printed probability',
                    'e^(-n/32)', noisy, _event),
      points.judged('the best noise amplitude is e^(-n epsilon / 48)',
                    'e^(-n epsilon / 48)', _both(noisy), _amplitude),
      points.judged('risks with the printed noise match independently '
                    'computed values', 'no numbers', [p for p in points.select(
                        cells, method='printed', epsilon=.5)
                     if p['num_examples'] in _KNOWN], _as_known)]


def _inside(cells: list[points.Point]):
  near = [p for p in cells if abs(p['place']) <= p['amplitude'] / 4]
  most = max(p['cost'] / p['num_examples'] for p in near)
  return f'{most:.2f} n', most <= .25, 'one sample, n = 100'


def _outside(cells: list[points.Point]):
  costs = {p['cost'] / p['num_examples'] for p in cells
           if abs(p['place']) > p['amplitude']}
  return f'{min(costs):.2f} n', costs == {.5}, 'one sample, n = 100'


def _raw(cells: list[points.Point]):
  worst = max(abs(p['risk'] - 1 / 3) for p in cells)
  return (f'E M^2 = 1/3 up to {worst:.1g}', worst < 1e-9,
          'uniform on [-1, 1] for every even n')


def _bounded(cells: list[points.Point], name: str):
  worst = max(p['risk'] / p[name] for p in cells)
  return (f'at most {worst:.2g} of the bound', worst <= 1,
          f'{len(cells)} settings')


def _event(cells: list[points.Point]):
  worst = max(p['missed'] - math.exp(-p['num_examples'] / 32) for p in cells)
  most = max(p['missed'] for p in cells)
  return (f'at most {most:.2g}', worst <= 0,
          'the proof gives twice that probability, since there are two sides '
          '(QE-08)')


def _both(cells: list[points.Point]) -> list[points.Point]:
  """Returns the points whose n and epsilon were run with both amplitudes."""
  at = lambda p: (p['num_examples'], p['epsilon'])
  half = {at(p) for p in points.select(cells, method='half')}
  printed = {at(p) for p in points.select(cells, method='printed')}
  return [p for p in cells if at(p) in half & printed]


def _amplitude(cells: list[points.Point]):
  """Compares the risks at the printed amplitude and at half of it."""
  ratios = [points.select(cells, method='printed', **at)[0]['risk']
            / points.select(cells, method='half', **at)[0]['risk']
            for at in ({'num_examples': n, 'epsilon': e} for n, e in
                       points.distinct(cells, 'num_examples', 'epsilon'))]
  return (f'{min(ratios):.2g} to {max(ratios):.2g} times the risk of '
          'e^(-n epsilon / 24)', max(ratios) <= 1,
          'the derivation loses half of the exponent (QE-08)')


def _as_known(cells: list[points.Point]):
  ratios = [p['risk'] / _KNOWN[p['num_examples']] for p in cells]
  return (f'{min(ratios):.2f} to {max(ratios):.2f} times the stored values',
          .8 < min(ratios) <= max(ratios) < 1.25, 'epsilon 1/2')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the cost for one sample (Figure 6.2), and risks against n."""
  cells = points.collect(rows)
  drawn, axes = plots.new(1, 2, height=3.4)
  sample = points.select(cells, method='cost')
  points.curve(axes[0, 0], sample, 'place', 'cost', '|n/2 - N(x)|', series=0,
               line='--')
  for p in sample[:1]:
    alpha, size = p['amplitude'], p['num_examples']
    axes[0, 0].hlines([size / 4, size / 2], -.6, .6, 'black', 'dotted')
    for edge in (alpha / 4, alpha):
      axes[0, 0].vlines([-edge, edge], 0, size / 2, 'grey', 'dotted')
  points.finish(axes[0, 0], 'x', 'cost', 'lines: n/4, n/2; alpha/4, alpha',
                scales='linear linear')
  half = points.select(cells, epsilon=.5)
  for series, (method, text) in enumerate((
      ('raw', 'no noise'), ('printed', 'exponent n epsilon / 48'),
      ('half', 'exponent n epsilon / 24'))):
    each = points.select(half, method=method)
    points.curve(axes[0, 1], each, 'num_examples', 'risk', text, series=series)
    points.curve(axes[0, 1], each, 'num_examples', 'bound_printed', '',
                 series=series, line=':')
    points.curve(axes[0, 1], each, 'num_examples', 'bound', '', series=series,
                 line='--')
  points.finish(axes[0, 1], 'records n', 'E M^2', 'dotted: printed bounds')
  sizes = [size for size, in points.distinct(half, 'num_examples')]
  axes[0, 1].set_xticks(sizes, [f'{size:g}' for size in sizes])
  axes[0, 1].minorticks_off()
  return drawn
