"""Simulated risks, their closed form and lower bounds."""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

_METRICS = ('risk', 'risk_se', 'closed_form', 'lower', 'lower_two_point',
            'lower_printed_choice', 'lower_printed')


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of risks, with one line for each n and epsilon."""
  return ('Expected squared errors at p = 1/2, and lower bounds for the '
          'largest error over p of any epsilon-DP estimate.\n\n' + points.table(
              points.collect(rows), ('epsilon', 'num_examples'), _METRICS))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on equations (6), (10) and (11) of Lalanne (2023)."""
  cells = points.collect(rows)
  enough = [p for p in cells if p['num_examples'] * p['epsilon'] >= 2]
  return [
      points.judged('equation (6): risk of the private estimator',
                    'p (1 - p) / n + 2 / (n epsilon)^2', cells, _risk),
      points.judged('lower bounds do not exceed the risk', 'for all n, epsilon',
                    cells, _ordered),
      points.judged('the lower bound at p_2 = 1/2 + 1/(n epsilon)',
                    '1 / (8 (n epsilon)^2)', enough, _printed),
      points.judged('equation (11): rate in n for epsilon far below n^(-1/2)',
                    'slope -2 in n',
                    [p for p in cells if _place(p) <= 1], lambda p: _slope(
                        p, -2)),
      points.judged('equation (11): rate in n for epsilon far above n^(-1/2)',
                    'slope -1 in n',
                    [p for p in cells if _place(p) >= 100], lambda p: _slope(
                        p, -1))]


def _place(point: points.Point) -> float:
  return point['num_examples'] * point['epsilon']**2


def _risk(cells: list[points.Point]):
  worst = max(abs(p['risk'] - p['closed_form']) / p['risk_se'] for p in cells)
  return (f'within {worst:.1f} standard errors', worst < 5,
          f'{len(cells)} settings')


def _ordered(cells: list[points.Point]):
  # The closed form is the risk at p = 1/2, which is the largest over p, of an
  # estimate that is not clipped to [0, 1]; clipping would lower it where noise
  # is large.
  ratio = max(p['lower'] / p['closed_form'] for p in cells)
  between = all(p['lower_two_point'] <= p['lower'] * (1 + 1e-9) for p in cells)
  return (f'at most {ratio:.3f} of the risk', ratio <= 1 and between,
          'the Binomial coupling before Jensen is the largest of them')


def _printed(cells: list[points.Point]):
  ratios = [p['lower_printed_choice'] / p['lower_printed'] for p in cells]
  best = max(p['lower_two_point'] / p['lower_printed'] for p in cells)
  return (f'{max(ratios):.3f} times the printed bound', min(ratios) > 0.999,
          'e^(-n epsilon (p_2 - p_1)) = 1/e is missing (T-E02); the best p_2, '
          f'1/2 + 2/(n epsilon), gives {best:.3f} of it')


def _slope(cells: list[points.Point], wanted: float):
  slopes = []
  for epsilon, in points.distinct(cells, 'epsilon'):
    curve = points.select(cells, epsilon=epsilon)
    if len(curve) > 1:
      slopes.append(points.slope(curve, 'num_examples', 'risk'))
  text = ', '.join(f'{slope:.2f}' for slope in slopes) or '-'
  return text, bool(slopes) and all(
      abs(slope - wanted) < 0.1 for slope in slopes), 'simulated, by epsilon'


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the risk against n for each epsilon.

  Markers are simulated; dashed lines are the closed form, dotted lines the
  lower bound.
  """
  cells = points.collect(rows)
  drawn, axes = plots.new(1, 1, width=5.5, height=4)
  for series, (epsilon,) in enumerate(points.distinct(cells, 'epsilon')):
    chosen = points.select(cells, epsilon=epsilon)
    points.curve(axes[0, 0], chosen, 'num_examples', 'risk',
                 f'epsilon {epsilon:g}, simulated', series=series,
                 error='risk_se')
    points.curve(axes[0, 0], chosen, 'num_examples', 'closed_form', '_',
                 series=series, line='--')
    points.curve(axes[0, 0], chosen, 'num_examples', 'lower', '_',
                 series=series, line=':')
  points.finish(axes[0, 0], 'records n', 'expected squared error',
                'dashed: closed form; dotted: bound by privacy alone')
  return drawn
