"""Reports relative errors of private statistics, and draws Figure 6.6.5.

The figure is that of Barczewski (2025).
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.hosmer_lemeshow import sweep

_FILES = ('bank_full', 'diabetes_130')
_LABELS = {'paper': 'Algorithm 10', 'tight': 'the same, calibrated',
           'release': 'one release'}


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of relative errors, with one line for each setting."""
  return (
      "Of releases H' of a statistic H (exact): the mean of (H' / H - 1)^2, "
      "the median and the largest |H' / H - 1|. binned: H of bins, without "
      'noise. first_expected: expected number of positives in the first group, '
      'by the predictions; a number below 5 is replaced by 5 in divisions.\n\n'
      + points.table(
          points.collect(rows), ('dataset', 'method', 'epsilon'),
          ('relative_mse', 'relative_mse_se', 'median', 'largest', 'exact',
           'binned', 'first_expected'), digits=3))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on sections 6.5.2 and 6.6.6, and on better releases.

  The sections are those of Barczewski (2025).
  """
  cells = points.collect(rows)
  files = points.select(cells, dataset=_FILES)
  bank = points.select(files, dataset='bank_full')
  between = [p for p in bank if 0.5 <= p['epsilon'] <= 5]
  return [
      points.judged('errors vary much from run to run', 'on the Bank data',
                    points.select(bank, method='paper'), _vary),
      points.judged('the reason is the small expected number of positives in '
                    'the first group', 'E_11 is small', points.select(
                        bank, method='paper'), _first),
      points.judged('errors fall with epsilon', 'Figure 6.6.5', bank, _fall),
      points.judged('one release of both classes is better than Algorithm 10',
                    'not in the text: 10 times less squared error at epsilon '
                    '0.5 to 5', between, _release),
      points.judged('the median error of one release is below that of '
                    'Algorithm 10 with calibrated noise',
                    'not in the text', between, _nearer),
      verdicts.Verdict(
          'noise for the statistic itself may be preferable at small epsilon',
          'proportional to its sensitivity', '-',
          verdicts.NOT_COMPARABLE if cells else verdicts.NOT_RUN,
          'its sensitivity is unbounded: it divides by expected numbers, which '
          'may be near 0 (C11)')]


def _by(cells: Sequence[points.Point], metric: str
        ) -> dict[tuple[str, float], dict[str, float]]:
  """Returns (data set, epsilon) -> method -> value of the metric."""
  lines: dict[tuple[str, float], dict[str, float]] = {}
  for point in cells:
    lines.setdefault((point['dataset'], point['epsilon']), {})[
        point['method']] = point[metric]
  return lines


def _span(values: Sequence[float]) -> str:
  return f'{min(values):.3g} to {max(values):.3g}' if values else '-'


def _vary(cells: list[points.Point]):
  tails = [p['relative_mse'] / p['median']**2 for p in cells]
  return (f'the mean square is {_span(tails)} times that of the median',
          max(tails) > 10, '0.455^-1 = 2.2 for a normal error; more than 10 at '
          'some epsilon')


def _first(cells: list[points.Point]):
  few, of = cells[0]['first_expected'], cells[0]['first_records']
  return (f'{few:.3g} of {of:g}', few < of / 100,
          'less than a hundredth of the group')


def _fall(cells: list[points.Point]):
  falls = []
  for method, in points.distinct(cells, 'method'):
    line = sorted(points.select(cells, method=method),
                  key=lambda p: p['epsilon'])
    falls += [first['median'] > second['median']
              for first, second in zip(line, line[1:])]
  return (f'in {sum(falls)} of {len(falls)} steps', bool(falls) and all(falls),
          'medians are compared, because a few large runs determine the means')


def _release(cells: list[points.Point]):
  lines = {at: {method: line[method] / line['release']
                for method in ('paper', 'tight')}
           for at, line in _by(cells, 'relative_mse').items()
           if set(sweep.METHODS) <= set(line)}
  gains = {method: [line[method] for line in lines.values()]
           for method in ('paper', 'tight')}
  return ('; '.join(f'{method} {_span(each)} times'
                    for method, each in gains.items()),
          bool(lines) and min(gains['paper']) > 10,
          'ratios of mean squares; the calibrated Algorithm 10 has half of '
          'epsilon for its cells')


def _nearer(cells: list[points.Point]):
  gains = [line['tight'] / line['release']
           for line in _by(cells, 'median').values()
           if {'tight', 'release'} <= set(line)]
  return (f'{_span(gains)} times', bool(gains) and min(gains) > 1,
          "ratios of |H' / H - 1|, at epsilon 0.5 to 5")


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws mean and median relative errors against epsilon, by data set."""
  cells = points.collect(rows)
  names = [name for name, in points.distinct(cells, 'dataset')]
  drawn, axes = plots.new(1, max(1, len(names)), width=4.0, height=3.4)
  for ax, name in zip(axes[0], names):
    for series, method in enumerate(sweep.METHODS):
      of = points.select(cells, dataset=name, method=method)
      points.curve(ax, of, 'epsilon', 'relative_mse', _LABELS[method],
                   series=series)
      squares = [dataclasses.replace(point, values=dict(
          median=point['median']**2)) for point in of]
      points.curve(ax, squares, 'epsilon', 'median', '_', series=series,
                   line=':')
    points.finish(ax, 'epsilon', 'relative squared error',
                  f'{name}; dotted: of the median')
  return drawn
