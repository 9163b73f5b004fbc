"""This module has the toy experiment's table, figure and verdicts."""

from dpjax.report import plots
from dpjax.report import tables
from experiments import summary

_KEYS = ('dataset', 'method', 'epsilon_requested')


def table(rows):
  """Returns accuracies over seeds."""
  means = summary.over_seeds(rows, _KEYS, metric='accuracy')
  return tables.markdown((*_KEYS, 'accuracy'), [
      (*key, summary.cell(value)) for key, value in means.items()])


def figure(rows):
  """Returns accuracy over epsilon, a series for each method."""
  means = summary.over_seeds(rows, _KEYS, metric='accuracy')
  result, axes = plots.new()
  for line in sorted({key[:2] for key in means}):
    points = [(key[2], value) for key, value in means.items()
              if key[:2] == line]
    plots.error_bars(
        axes[0, 0], [x for x, _ in points], [y.mean for _, y in points],
        [y.standard_error for _, y in points], ' '.join(line))
  plots.epsilon_axis(axes[0, 0], [key[2] for key in means])
  return result


def verdict(rows):
  """Returns one verdict."""
  mean = summary.summarise([row.value for row in rows]).mean
  return [('numbers are random', '.333', tables.number(mean), 'agrees',
           'within 1')]
