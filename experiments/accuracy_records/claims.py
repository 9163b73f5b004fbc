"""Verdicts on the entries: accuracy, choice and audit."""

from collections.abc import Sequence

from experiments import records
from experiments import verdicts
from experiments.accuracy_records import choosing
from experiments.accuracy_records import entries
from experiments.accuracy_records import published
from experiments.accuracy_records import results
from experiments.accuracy_records.entries import Entry
from experiments.accuracy_records.results import Result


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns the verdicts on all entries; 'not run' without rows."""
  found = []
  for entry in entries.ENTRIES.values():
    result = results.of(entry, rows)
    found += [*_accuracy(entry, result), _choice(entry, result, rows),
              _audit(entry, result)]
  return found


def _not_run(claim: str, printed: str, reason: str) -> verdicts.Verdict:
  return verdicts.Verdict(claim, printed, '-', verdicts.NOT_RUN, reason)


def _accuracy(entry: Entry, result: Result | None) -> list[verdicts.Verdict]:
  """Compares with the best published figure at most this budget, if any."""
  figure = published.best(entry.dataset, entry.epsilon, entry.delta)
  if figure is None:
    return []
  claim = f'{entry.name}: accuracy is at least the best published one'
  if result is None:
    return [_not_run(claim, str(figure), 'no rows')]
  mean, error = result.accuracy.mean, result.accuracy.standard_error
  return [verdicts.Verdict(
      claim, str(figure), f'{mean:.4f}',
      verdicts.AGREES if mean >= figure.accuracy else verdicts.DIFFERS,
      f'mean of {result.accuracy.count} seeds, standard error {error:.4f}; '
      f'epsilon {result.epsilon:.4g}, {result.price:.3g} with the choice')]


def _choice(entry: Entry, result: Result | None,
            rows: Sequence[records.Row]) -> verdicts.Verdict:
  """Checks that the final recipe has the best score on the validation part."""
  claim = f'{entry.name}: the final recipe is the best on the validation part'
  if result is None or not choosing.scores(entry, rows):
    return _not_run(claim, '-', 'no rows')
  best = choosing.best(entry, rows)
  ours = entry.recipes.index(result.recipe) + 1
  return verdicts.Verdict(
      claim, f'recipe {entry.recipes.index(best) + 1}', f'recipe {ours}',
      verdicts.AGREES if best == result.recipe else verdicts.DIFFERS,
      f'of {len(entry.recipes)} recipes, {result.num_runs} runs with the '
      'earlier ones')


def _audit(entry: Entry, result: Result | None) -> verdicts.Verdict:
  """Compares the lower bound of the audit with the claim."""
  claim = f'{entry.name}: an audit does not refute epsilon'
  if result is None or result.audit is None:
    return _not_run(claim, f'at most {entry.epsilon:g}', 'no rows')
  audit = result.audit
  return verdicts.Verdict(
      claim, f'at most {result.epsilon:.4g}',
      f'at least {audit.epsilon_lower:.3g}',
      verdicts.AGREES if audit.epsilon_lower <= result.epsilon else
      verdicts.DIFFERS,
      f'at confidence 95 %, {audit.num_correct} of {audit.num_guesses} coins '
      f'of {audit.num_canaries} canaries; perfect guesses would show '
      f'{audit.largest:.3g}')
