"""Compares ways to draw batches and noise, each with its chosen rate."""

from collections.abc import Mapping, Sequence

from dpjax.report import tables
from experiments import records
from experiments import summary
from experiments import verdicts
from experiments.lip_noise import sweep

_TITLES = {'lip_dp_sgd': 'Lip-DP-SGD', 'dp_sgd': 'DP-SGD'}

Key = tuple[str, str, str]
"""Method, schedule, and way to draw batches and noise."""
Values = dict[Key, dict[int, float]]
"""Values of a metric by seed."""


def by_key(rows: Sequence[records.Row], metric: str) -> Values:
  """Returns the values of a metric.

  Args:
    rows: rows of this experiment.
    metric: its name.
  """
  found: Values = {}
  for row in rows:
    if row.metric == metric:
      fields = dict(part.split('=') for part in row.id.split('/')[1].split(','))
      found.setdefault((row.method, fields['schedule'], fields['noise']),
                       {})[row.seed] = row.value
  return found


def table(rows: Sequence[records.Row]) -> str:
  """Returns a table with one line for each method, schedule and way."""
  accuracies = by_key(rows, 'test_accuracy')
  noise = by_key(rows, 'noise_multiplier')
  lines = []
  for key in sorted(accuracies, key=_order):
    method, schedule, way = key
    steps = sweep.SCHEDULES[schedule]
    lines.append((
        schedule, steps.num_groups, steps.num_steps, method, way,
        f'{next(iter(noise[key].values())):.4g}', len(accuracies[key]),
        summary.cell(summary.summarise(accuracies[key].values()),
                     digits=4)))
  return (
      'Test accuracy of a linear model on binned columns, mean +- standard '
      'error over seeds, at epsilon 1 and delta = 1/n^1.1, add or remove one. '
      'The multiplier is the standard deviation of the draws of one step, '
      'before they are correlated, over the sensitivity of that step. Learning '
      'rates were chosen on a validation fold of another split, with five '
      'candidates for each line.\n\n' +
      tables.markdown(('schedule', 'groups', 'steps', 'method', 'noise',
                       'multiplier', 'runs', 'accuracy'), lines))


def _order(key: Key) -> tuple[int, ...]:
  method, schedule, noise = key
  return (list(sweep.SCHEDULES).index(schedule), sweep.METHODS.index(method),
          list(sweep.NOISE).index(noise))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts: does correlated noise help, and is sampling better?"""
  accuracies = by_key(rows, 'test_accuracy')
  result = []
  for schedule in ('one_pass', 'twenty_passes'):
    for method, title in _TITLES.items():
      for better, worse in (('banded', 'cyclic'), ('banded', 'poisson'),
                            ('allocation', 'poisson')):
        result.append(_compared(
            accuracies, f'{title}, {schedule}: {better} noise and batches are '
            f'more accurate than {worse} ones',
            *((method, schedule, way) for way in (better, worse))))
  return result


def _compared(accuracies: Mapping[Key, Mapping[int, float]], claim: str,
              better: Key, worse: Key) -> verdicts.Verdict:
  if better not in accuracies or worse not in accuracies:
    return verdicts.Verdict(claim, 'not in the text', '-', verdicts.NOT_RUN,
                            'no rows')
  gain = summary.summarise(summary.differences(accuracies[better],
                                               accuracies[worse]))
  return verdicts.Verdict(
      claim, 'not in the text', summary.cell(gain, digits=4),
      verdicts.AGREES if gain.mean > 2 * gain.standard_error
      else verdicts.DIFFERS, 'paired by seed; agrees above two standard errors')
