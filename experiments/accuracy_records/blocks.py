"""An entry as text: a block for people, a claim for a leaderboard.

The claim has the fields of the template "Submit Report" of
https://private-machinelearning.github.io, where an issue with it proposes a
line. Its first fields are for whoever submits.
"""

from collections.abc import Mapping, Sequence

from experiments import records
from experiments.accuracy_records import choosing
from experiments.accuracy_records import entries
from experiments.accuracy_records import published
from experiments.accuracy_records import results
from experiments.accuracy_records.entries import Entry
from experiments.accuracy_records.results import Result

SUBMISSION = 'submission.md'
_HEAD = '''\
**Name**: {paper name}

**Authors**: {names}

**Paper**: {arXiv URL}

**Code**: {link}; python -m launch.records --entry=NAME --data_dir=data

**Venue**: {venue if published}

**Venue Date**: {date if published}

**claims:**
'''


def documents(rows: Sequence[records.Row]) -> Mapping[str, str]:
  """Returns name of a file -> its text, beside table.md."""
  found = [result for entry in entries.ENTRIES.values()
           if (result := results.of(entry, rows)) is not None]
  return {SUBMISSION: '\n'.join([_HEAD, *map(_claim, found)])}


def block(entry: Entry, rows: Sequence[records.Row]) -> str:
  """Returns the lines of one entry for a terminal."""
  result = results.of(entry, rows)
  if result is None:
    return f'{entry.name}: {missing(entry, rows)}'
  return '\n'.join(
      [f'{entry.name}: test accuracy {result.accuracy.mean:.4f} '
       f'+- {result.accuracy.standard_error:.4f} (mean and standard error of '
       f'{result.accuracy.count} seeds)'] + [
           f'  {name:13} {text}' for name, text in _facts(result)])


def missing(entry: Entry, rows: Sequence[records.Row]) -> str:
  """Returns which parts of an entry have rows, in words."""
  scores = choosing.scores(entry, rows)
  tried = sum(recipe.name in scores for recipe in entry.recipes)
  parts = [f'{tried} of {len(entry.recipes)} recipes tried']
  parts += [f'{part} {"done" if _of_list(entry, rows, part) else "not run"}'
            for part in ('final', 'ablation', 'audit')]
  return ', '.join(parts)


def _of_list(entry: Entry, rows: Sequence[records.Row], part: str) -> bool:
  """Returns whether a part has rows for the present list of recipes."""
  return bool(results.of_part(entry, rows, part, recipe=entry.choice))


def _facts(result: Result) -> list[tuple[str, str]]:
  """Returns (name, text) of everything else that is known of an entry."""
  entry, audit = result.entry, result.audit
  figure = published.best(entry.dataset, entry.epsilon, entry.delta)
  noise = choosing.score_stddev(entry, result.epsilon, result.price)
  return [
      ('data', f'{entry.dataset}, {result.num_records} training records, no '
       'other data'),
      ('privacy', f'epsilon {result.epsilon:.5g} at delta {entry.delta:g} '
       f'for one record ({result.adjacency}), PLD of the event that ran'),
      ('event', _event(result)),
      ('recipe', str(result.recipe)),
      ('choice', f'this choice of {result.num_runs} runs and a final run cost '
       f'epsilon {result.price:.3g} in all, if each score had noise of '
       f'{noise:.2g} records; reported here as free'),
      ('audit', 'not run' if audit is None else
       f'epsilon is at least {audit.epsilon_lower:.3g} at confidence 95 % '
       f'({audit.num_correct} of {audit.num_guesses} coins, '
       f'{audit.num_canaries} canaries; at most {audit.largest:.3g} could be '
       f'shown), claimed {result.epsilon:.4g}'),
      ('published', f'best at this budget: {figure or "none known"}'),
      ('time', f'{result.seconds:.2g} s a run on {result.device}'),
      ('seeds', 'public: these are measurements, not releases')]


def _event(result: Result) -> str:
  """Returns the event of a run, in words."""
  recipe = result.recipe
  share = recipe.batch_size / result.num_records
  before = (f'three sums for whitening with Gaussian noise of multiplier '
            f'{recipe.whitening:.5g}, then ' if recipe.whitening else '')
  how = ('random allocation to '
         f'{max(1, round(1 / share))} steps of an epoch'
         if recipe.sampler != 'poisson' else 'all records' if share >= 1 else
         f'Poisson batches at rate {share:.4g}')
  return (f'{before}{recipe.num_steps} steps of {how}, Gaussian noise of '
          f'multiplier {result.noise_multiplier:.5g}')


def _claim(result: Result) -> str:
  """Returns the claim of an entry, for the template."""
  entry = result.entry
  return f'''\
- **public_data:** none ({entry.dataset}, no public data)

    **model:** {result.recipe}

    **epsilon:** {entry.epsilon:g}

    **delta:** {entry.delta:g}

    **private_accuracy:** {100 * result.accuracy.mean:.2f}% (standard error \
{100 * result.accuracy.standard_error:.2f}, {result.accuracy.count} seeds)

    **dp_accountant:** PLD (dp_accounting), {_event(result)}, one record added \
or removed; epsilon {result.price:.3g} with the choice of hyperparameters
'''
