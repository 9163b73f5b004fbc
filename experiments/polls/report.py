"""Reports coverage and errors of polls, and the epsilon of their answers."""

from collections.abc import Sequence
import math
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

_METRICS = ('coverage', 'coverage_se', 'mean', 'risk', 'risk_se', 'closed_form',
            'negative')
_CONFIDENCE = 0.95


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of polls, and of epsilon by the probability of the truth."""
  cells = points.collect(rows)
  return '\n'.join([
      'Intervals of confidence 0.95 and squared errors; parameter: phi or q.\n',
      points.table(points.select(cells, kind=('truthful', 'drowned')),
                   ('kind', 'parameter', 'share', 'num_examples', 'num_other'),
                   _METRICS),
      'Epsilon of answers that are true with probability phi.\n',
      points.table(points.select(cells, kind='privacy'), ('parameter',),
                   ('epsilon',))])


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on Exercises 7.1, 7.2 and 7.30, and on claims about phi.

  The exercises are those of the lecture notes, chapter 7.
  """
  cells = points.collect(rows)
  truthful = points.select(cells, kind='truthful')
  privacy = points.select(cells, kind='privacy')
  return [
      points.judged('Exercise 7.1: the interval attains its confidence level',
                    '0.95', truthful, _coverage),
      points.judged('Exercise 7.1: variance of the estimate',
                    'lambda (1 - lambda) / (n (2 phi - 1)^2)', truthful,
                    _variance),
      points.judged('Exercise 7.2: the interval attains its confidence level',
                    '0.95', points.select(cells, kind='drowned'), _coverage),
      points.judged('Exercise 7.30: epsilon of two coins', 'ln 3',
                    points.select(privacy, parameter=0.75), _ln3),
      points.judged('privacy increases with phi, from none at 0', 'monotone',
                    privacy, _monotone)]


def _coverage(cells: list[points.Point]):
  least, most = (f(p['coverage'] for p in cells) for f in (min, max))
  # The intervals are asymptotic, so their coverage is compared with the level
  # at these numbers of people only.
  return (f'{least:.3f} to {most:.3f}',
          all(abs(p['coverage'] - _CONFIDENCE) <= 0.01 + 3 * p['coverage_se']
              for p in cells), f'{len(cells)} polls')


def _variance(cells: list[points.Point]):
  worst = max(abs(p['risk'] - p['closed_form']) / p['risk_se'] for p in cells)
  negative = max(p['negative'] for p in cells)
  return (f'within {worst:.1f} standard errors', worst < 5,
          f'unbiased, so up to {negative:.0%} of the estimates are negative')


def _ln3(cells: list[points.Point]):
  epsilon = cells[0]['epsilon']
  return f'{epsilon:.6f}', abs(epsilon - math.log(3)) < 1e-9, 'phi = 3/4'


def _monotone(cells: list[points.Point]):
  by_prob = {p['parameter']: p['epsilon'] for p in cells}
  least = min(by_prob, key=by_prob.get)
  values = [by_prob[prob] for prob in sorted(by_prob)]
  falls = all(a >= b for a, b in zip(values, values[1:]))
  return (f'epsilon is least at phi = {least:g}, infinite at 0 and 1', falls,
          'monotone in |phi - 1/2| (L-E01)')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws coverage by the share of yes, and epsilon by phi."""
  cells = points.collect(rows)
  drawn, axes = plots.new(1, 2, height=3.4)
  truthful = points.select(cells, kind='truthful')
  for series, (prob,) in enumerate(points.distinct(truthful, 'parameter')):
    points.curve(axes[0, 0], points.select(truthful, parameter=prob), 'share',
                 'coverage', f'phi = {prob:g}', series=series,
                 error='coverage_se')
  points.curve(axes[0, 0], points.select(cells, kind='drowned'), 'share',
               'coverage', 'drowned', series=6, error='coverage_se')
  axes[0, 0].axhline(_CONFIDENCE, color='0.4', linestyle='--', linewidth=1)
  points.finish(axes[0, 0], 'share of yes', 'coverage', scales='linear linear')
  finite = [p for p in points.select(cells, kind='privacy')
            if math.isfinite(p['epsilon'])]
  points.curve(axes[0, 1], finite, 'parameter', 'epsilon',
               '|ln(phi / (1 - phi))|', series=0)
  points.finish(axes[0, 1], 'probability phi of the truth', 'epsilon',
                scales='linear linear')
  return drawn
