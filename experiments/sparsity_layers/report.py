"""Counts Table 1.1 anew, and shows the chains of its layers and Figure 1.3.

The table and the figure are of Lalanne (2023).
"""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from dpjax.report import tables
from experiments import papers
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.methods.sparsity.chains import Chain

# Rounding error of the printed percentages, in percentage points.
_HALF = 0.05
_DRAWN = 32, 144


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of networks with the printed numbers, and of chains."""
  cells = points.collect(rows)
  return '\n'.join([
      'Numbers of nonzero parameters; next: with chains of the next larger '
      'number in the first replaced segment.\n',
      tables.markdown(
          ('S', 'L', 'printed %', '%', 'parameters', 'of', 'next %'),
          [_network(point) for point in points.select(cells, kind='network')]),
      'The monotone chain with the fewest parameters, written with the factor '
      'that acts first in front; the number of chains with as few parameters '
      'and of all chains; and the next larger number of parameters.\n',
      tables.markdown(
          ('p x q', 'L', 'r', 's', 'sizes', 'parameters', 'of', 'as few',
           'chains', 'next'),
          [_layer(point) for point in points.select(
              cells, kind=('layer', 'square'))])])


def _network(point: points.Point) -> tuple[str, ...]:
  return (f'{point["segments"]:g}', f'{point["num_factors"]:g}',
          f'{_printed(point)}', f'{_percent(point):.3f}',
          f'{point["parameters"]:.0f}', f'{point["dense"]:.0f}',
          f'{_percent(point, "next_parameters"):.3f}')


def _layer(point: points.Point) -> tuple[str, ...]:
  chain = _chain(point)
  return ('{} x {}'.format(*chain.size), f'{len(chain.rows)}',
          *(', '.join(map(str, numbers)) for numbers in (
              chain.rows, chain.columns, chain.sizes)),
          *(f'{point.values[name]:.0f}' if name in point.values else '-'
            for name in ('parameters', 'dense', 'as_few', 'chains',
                         'next_parameters')))


def _chain(point: points.Point) -> Chain:
  return Chain(*(
      tuple(int(point[f'{letter}_{number}'])
            for number in range(1, int(point['num_factors']) + 1))
      for letter in 'rs'))


def _percent(point: points.Point, metric: str = 'parameters') -> float:
  return 100 * point[metric] / point['dense']


def _printed(point: points.Point) -> float:
  return papers.TABLE_1_1[point['segments'], point['num_factors']]


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on Table 1.1, on its fifth line, and on section 1.2.2.

  All are of Lalanne (2023).
  """
  cells = points.collect(rows)
  networks = points.select(cells, kind='network')
  square = points.select(cells, kind='square')
  of_first = points.select(cells, kind='layer', num_rows=16, num_factors=3)
  return [
      points.judged('number of parameters of ResNet-20',
                    f'{papers.RESNET_20_PARAMETERS}', networks, _size),
      *(points.judged(
          f'Table 1.1: parameters of S = {segments}, L = {factors}',
          f'{percent} %', points.select(networks, segments=segments,
                                        num_factors=factors), _line)
        for (segments, factors), percent in papers.TABLE_1_1.items()),
      points.judged('Table 1.1: S = 2 and S = 3 differ by the chains of the '
                    'first segment, L = 3', '4.4 % of the network',
                    of_first and networks and of_first + networks, _first),
      points.judged('Figure 1.3: non-zeros in a row and in a column',
                    'at most two', square, _two),
      points.judged('square butterflies multiply in O(N log N)', 'not O(N^2)',
                    square, _n_log_n),
      points.judged('the product of the supports is dense, with one path for '
                    'each entry',
                    'not in the text', [p for p in cells if 'paths_least'
                                        in p.values], _paths)]


def _size(cells):
  ours = {point['dense'] for point in cells}
  return (', '.join(f'{size:.0f}' for size in ours),
          ours == {papers.RESNET_20_PARAMETERS},
          'shortcuts are normalised convolutions 1 x 1')


def _line(cells):
  point, = cells
  ours = _percent(point)
  stands = abs(ours - _printed(point)) <= _HALF + 1e-9
  reason = (f'{point["parameters"]:.0f} parameters; the fewest of all monotone '
            'chains')
  if not stands:
    other = _percent(point, 'next_parameters')
    reason += (f'; {other:.3f} % with the next larger in the first of these '
               'segments (M-E05)')
  return f'{ours:.3f} %', stands, reason


def _first(cells):
  """Tests the parameters that Table 1.1 implies for a layer of segment 1.

  S = 2 and S = 3 differ only by the six layers of segment 1, whatever the
  chains of the other layers are.
  """
  layer, network = cells[0], cells[-1]
  apart = papers.TABLE_1_1[2, 3] - papers.TABLE_1_1[3, 3]
  ends = [layer['dense'] - (apart + 2 * sign * _HALF) / 100
          * network['dense'] / 6 for sign in (1, -1)]
  saved = 100 * 6 * (layer['dense'] - layer['parameters']) / network['dense']
  return (f'{saved:.2f} %', ends[0] <= layer['parameters'] <= ends[1],
          f'it would take {ends[0]:.0f} to {ends[1]:.0f} parameters in each of '
          'six layers 16 x 144, and no monotone chain of three factors with '
          f'r, s >= 2 has fewer than {layer["parameters"]:.0f} (M-E05)')


def _two(cells):
  most = max(max(p['in_a_row'], p['in_a_column']) for p in cells)
  return (f'{most:.0f}', most == 2, f'N = 2 to {cells[-1]["num_rows"]:.0f}; '
          '2 N non-zeros a factor')


def _n_log_n(cells):
  off = [p for p in cells
         if p['parameters'] != 2 * p['num_rows'] * p['num_factors']]
  return ('2 N log2 N', not off, 'multiplications to apply it to a vector, one '
                                 'for each parameter; fewer than N^2 from N = '
                                 f'{_overtakes(cells):.0f} on')


def _overtakes(cells: list[points.Point]) -> float:
  return min((p['num_rows'] for p in cells if p['parameters'] < p['dense']),
             default=float('nan'))


def _paths(cells):
  counts = {p[name] for p in cells for name in ('paths_least', 'paths_most')}
  return (', '.join(f'{count:.0f}' for count in sorted(counts)), counts == {1},
          f'{len(cells)} chains by multiplication; of any chain by its digits')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the supports of Figure 1.3 and of a rectangular chain, and sizes."""
  cells = points.collect(rows)
  drawn, axes = plots.new(2, 4, width=2.6, height=2.8)
  _supports(axes[0], points.select(cells, kind='square', num_rows=16),
            ('X(1)', 'X(2)', 'X(3)', 'X(4)'))
  _supports(axes[1, :3], points.select(
      cells, kind='layer', num_rows=_DRAWN[0], num_columns=_DRAWN[1],
      num_factors=3), ('third factor', 'second', 'first'))
  _bars(axes[1, 3], points.select(cells, kind='layer'))
  return drawn


def _supports(axes, cells, names):
  """Draws the supports of factors; the factor that acts first is rightmost.

  This is the order of the factors in the product.
  """
  for point in cells:
    supports = _chain(point).supports()[::-1]
    for ax, name, support in zip(axes, names, supports):
      ax.spy(support, marker='s', markersize=120 / max(support.shape),
             color=plots.COLOURS[0])
      ax.grid(False)
      ax.set_xticks([])
      ax.set_yticks([])
      ax.spines[:].set_visible(True)
      ax.set_title('{}: {} x {}, {} non-zeros'.format(
          name, *support.shape, support.sum()), fontsize=8)


def _bars(ax, cells):
  sizes = points.distinct(cells, 'num_rows', 'num_columns')
  for place, (p, q) in enumerate(sizes):
    subset = points.select(cells, num_rows=p, num_columns=q)
    values = [subset[0]['dense'], *(point['parameters'] for point in subset)]
    for series, value in enumerate(values):
      label = 'dense' if not series else f'L = {series + 1}'
      ax.bar(place + 0.27 * (series - 1), value, 0.25,
             color=plots.COLOURS[series], label=None if place else label)
  points.finish(ax, 'rows x columns', 'parameters', scales='linear log')
  ax.set_xticks(range(len(sizes)), [f'{p:.0f} x\n{q:.0f}' for p, q in sizes],
                fontsize=7)
