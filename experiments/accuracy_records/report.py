"""Tables of the records, and claims in the form of a leaderboard."""

from collections.abc import Sequence

from dpjax.report import tables
from experiments import records
from experiments import summary
from experiments.accuracy_records import ablations
from experiments.accuracy_records import blocks
from experiments.accuracy_records import choosing
from experiments.accuracy_records import claims
from experiments.accuracy_records import entries
from experiments.accuracy_records import published
from experiments.accuracy_records import results
from experiments.accuracy_records import sweep
from experiments.accuracy_records.entries import Entry
from experiments.accuracy_records.results import Result

verdict = claims.verdict
documents = blocks.documents

_INTRODUCTION = (
    'Test accuracy of private models that are trained on the training set '
    'alone, without any other data: mean over seeds, with its standard error. '
    'The privacy unit is one record, added or removed. Epsilon is that of the '
    'event that ran, by PLD. The recipe was chosen on the validation part of '
    'the training set, which epsilon does not cover. "With choice" is the '
    'epsilon of a final run, all runs of the choice, and the private runs '
    'before them by which the recipes were narrowed down: these have no rows, '
    'and their number is a count by hand. Runs without noise, of which there '
    'were 21 on MNIST, have no epsilon and are not in it. The audit is a lower '
    'bound on epsilon, at confidence 95 %, from one run with canaries.')


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of records, and what was tried and changed."""
  every = entries.ENTRIES.values()
  found = [result for entry in every
           if (result := results.of(entry, rows)) is not None]
  return '\n\n'.join([
      _INTRODUCTION,
      tables.markdown(
          ('entry', 'accuracy', 'runs', 'epsilon', 'delta', 'with choice',
           'audit', 'best published', 'seconds', 'recipe'),
          [_line(result) for result in found]),
      '## Recipes that were tried\n\nAccuracy on the validation part.',
      tables.markdown(
          ('entry', 'recipe', 'accuracy', 'runs'),
          [line for entry in every for line in _tried(entry, rows)]),
      '## The best recipe with one thing changed\n\nAccuracy on the validation '
      'part, three seeds.',
      tables.markdown(
          ('entry', 'change', 'accuracy', 'epsilon', 'noise multiplier'),
          [line for result in found for line in _ablations(result, rows)])])


def _line(result: Result) -> tuple:
  """Returns the line of an entry."""
  entry, audit = result.entry, result.audit
  figure = published.best(entry.dataset, entry.epsilon, entry.delta)
  return (entry.name, summary.cell(result.accuracy, digits=4),
          result.accuracy.count, f'{result.epsilon:.4g}', f'{entry.delta:g}',
          f'{result.price:.3g}',
          '-' if audit is None else f'{audit.epsilon_lower:.3g}',
          figure or '-', f'{result.seconds:.2g}', result.recipe)


def _tried(entry: Entry, rows: Sequence[records.Row]) -> list[tuple]:
  """Returns a line for each recipe with a score, the best one first."""
  scores = {name: summary.summarise(values) for name, values
            in choosing.scores(entry, rows).items()}
  words = {recipe.name: str(recipe) for recipe in entry.recipes}
  return [(entry.name, words.get(name, f'{name} (not in the list)'),
           f'{score.mean:.4f}', score.count)
          for name, score in sorted(scores.items(),
                                    key=lambda pair: -pair[1].mean)]


def _ablations(result: Result, rows: Sequence[records.Row]) -> list[tuple]:
  """Returns a line for each change that was tried."""
  lines = []
  for variant in sweep.VARIANTS:
    found = results.of_part(result.entry, rows, 'ablation', variant=variant,
                            recipe=result.entry.choice)
    if found:
      runs = found[choosing.SCORE]
      lines.append((
          result.entry.name, ablations.described(result.recipe, variant),
          summary.cell(summary.summarise(row.value for row in runs), digits=4),
          f'{max(row.epsilon for row in runs):.4g}',
          f'{found["noise_multiplier"][0].value:.4g}'))
  return lines
