"""Reports the bits that protocols send, and where one overtakes another.

The figure is Figure 6.6.6 of Barczewski (2025).
"""

from collections.abc import Sequence
import math
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

_FIELDS = ('figure', 'method', 'num_servers', 'num_points', 'num_owners')
_AGGREGATION = ('shares', 'masked', 'one_shot')
_LABELS = {
    'fss': 'FSS', 'fss_2016': 'FSS, keys of 2016', 'shares':
    'aggregation, shares', 'masked': 'aggregation, masked', 'one_shot':
    'all answers at once', 'additive': 'indicator, additive', 'outer_product':
    'rows and columns, Shamir'}
_STYLES = {
    'fss': (1, '-'), 'fss_2016': (1, ':'), 'shares': (0, '-'),
    'masked': (0, '--'), 'one_shot': (5, '-'), 'additive': (2, '-'),
    'outer_product': (4, '-')}


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of bits, with one line for each setting."""
  return (
      'Bits of two curves: the total, the part that one owner sends, the part '
      'of the answers, and the total counted on messages. The cost of keys for '
      'two servers is multiplied up to m servers, as in Barczewski (2025), '
      'although no such keys exist for more than two.\n\n'
      + points.table(points.collect(rows), _FIELDS, (
          'bits', 'owner_bits', 'answer_bits', 'counted'), digits=6))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on communication costs.

  The claims are those of Barczewski (2025, sections 6.4 and 6.6.7).
  """
  cells = points.collect(rows)
  along = points.select(cells, figure='points')
  across = points.select(cells, figure='servers')
  fss = points.select(cells, method='fss')
  return [
      points.judged('keys are typically a few kilobits', '1 to 10 kilobits',
                    points.select(fss, num_thresholds=2**10), _keys),
      points.judged('what owners send does not depend on |B|', 'constant',
                    points.select(along, method='fss', num_servers=2),
                    _constant),
      points.judged('the total of FSS is O(n + m |B|)', 'n + m |B|', across,
                    _total),
      points.judged('FSS is preferable when m |B| < n |B|',
                    'for smaller m or larger |B|',
                    points.select(along, num_servers=2),
                    _condition),
      points.judged('FSS overtakes aggregation as |B| grows', 'Figure 6.6.6(a)',
                    points.select(along, num_servers=2), _overtakes),
      points.judged('aggregation becomes cheaper as servers become more',
                    'Figure 6.6.6(b)', across, _servers),
      points.judged('keys of that length go to m > 2 servers',
                    'can be extended', across, _more),
      points.judged('formulas equal the counted bits exactly',
                    'not in the text', points.select(cells, figure='counted'),
                    _counted)]


def _by(cells: Sequence[points.Point], field: str
        ) -> dict[str, dict[float, float]]:
  """Returns method -> value of the field -> bits."""
  lines: dict[str, dict[float, float]] = {}
  for point in cells:
    lines.setdefault(point['method'], {})[point[field]] = point['bits']
  return lines


def _keys(cells: list[points.Point]):
  key = cells[0]['key_bits']
  return (f'{key:g} bits', 1000 <= key <= 10_000,
          'at N = 2^10; twice as many for two curves')


def _constant(cells: list[points.Point]):
  sent = {p['owner_bits'] for p in cells}
  return (f'{min(sent):g} bits each', len(sent) == 1,
          'two keys to each of two servers, and a share of the label')


def _total(cells: list[points.Point]):
  line = _by(cells, 'num_servers').get('fss', {})
  if len(line) < 2:
    return '-', False, 'one number of servers alone'
  first, last = min(line), max(line)
  owners = cells[0]['num_owners']
  return (f'from {line[first]:.3g} to {line[last]:.3g} bits for {first:g} to '
          f'{last:g} servers', line[last] / line[first] < 1.1 * (
              owners + last) / (owners + first),
          'n m K + m |B| (log N + 2 k): a key goes to every server (C17)')


def crossing(first: dict[float, float], second: dict[float, float]) -> float:
  """Returns where the second line rises above the first; NaN if nowhere.

  Both are linear between the places that they share.
  """
  shared = sorted(set(first) & set(second))
  for low, high in zip(shared, shared[1:]):
    gaps = first[low] - second[low], first[high] - second[high]
    if gaps[0] > 0 >= gaps[1]:
      return low + (high - low) * gaps[0] / (gaps[0] - gaps[1])
  return math.nan


def _crossings(cells, field) -> dict[str, float]:
  lines = _by(cells, field)
  return {name: crossing(lines['fss'], lines[name]) for name in _AGGREGATION
          if {'fss', name} <= set(lines)}


def _condition(cells: list[points.Point]):
  lines = _by(cells, 'num_points')
  losing = [size for size, bits in lines.get('fss', {}).items()
            if bits >= lines.get('masked', {}).get(size, math.inf)]
  return ('FSS sends more at |B| = ' + ', '.join(
      f'{size:g}' for size in losing), not losing,
          '|B| is on both sides, so that the rule always prefers FSS for two '
          'servers; it omits the length of keys (C17)')


def _overtakes(cells: list[points.Point]):
  at = _crossings(cells, 'num_points')
  text = ', '.join(f'{name} {value:.4g}' for name, value in at.items())
  return (f'from |B| = {text}', bool(at) and all(
      50 < value < 170 for value in at.values()),
          'without labels 55.6, 111 and 107; their shares add a number of k '
          'bits for each owner')


def _servers(cells: list[points.Point]):
  lines = _by(cells, 'num_servers')
  cheaper = {name: [number for number, bits in lines[name].items()
                    if bits < lines['fss'].get(number, 0)]
             for name in _AGGREGATION if {name, 'fss'} <= set(lines)}
  text = '; '.join(
      f'{name} from {min(numbers):g} servers' if numbers else f'{name} never'
      for name, numbers in cheaper.items())
  return (text, bool(cheaper) and all(cheaper.values()),
          'shares go to every server, like keys; sums of masked numbers do not')


def _more(cells: list[points.Point]):
  lines = {(p['method'], p['num_servers']): p['owner_bits'] for p in cells}
  numbers = sorted({number for name, number in lines
                    if name == 'outer_product'})
  if not numbers:
    return '-', False, 'no numbers of servers above 2'
  first = numbers[0]
  return (f'{lines["outer_product", first]:g} bits of an owner for {first:g} '
          f'servers by rows and columns, {lines["fss", first]:g} by keys if '
          'they existed', False, 'no generator gives such keys (C17); rows '
          'and columns need an honest majority, and length sqrt(N)')


def _counted(cells: list[points.Point]):
  off = [p for p in cells if p['bits'] != p['counted']]
  return (f'{len(cells) - len(off)} of {len(cells)} protocols', not off,
          ', '.join(sorted({p['method'] for p in off})) or
          'keys, shares and indicators, two and three servers')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws bits against the number of thresholds and of servers."""
  cells = points.collect(rows)
  drawn, axes = plots.new(1, 2, width=4.6, height=3.8)
  for ax, name, field, label, scales in (
      (axes[0, 0], 'points', 'num_points', 'thresholds |B|', 'log log'),
      (axes[0, 1], 'servers', 'num_servers', 'servers m', 'linear log')):
    for method, (series, line) in _STYLES.items():
      points.curve(ax, points.select(cells, figure=name, method=method), field,
                   'bits', _LABELS[method], series=series, line=line)
    points.finish(ax, label, 'bits sent', scales=scales,
                  legend=name == 'points')
  return drawn
