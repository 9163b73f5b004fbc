"""Shows the search space beside the printed one, selected values, and costs."""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from dpjax.report import tables
from experiments import papers
from experiments import records
from experiments import summary
from experiments import verdicts
from experiments.lip_search import selected
from experiments.lip_search import space
from experiments.lip_search import sweep

_BAND = 0.015
_SCORE = 'score_'
_ABSENT = {
    'noise_multiplier': 'solved from epsilon',
    'num_groups': 'no group normalisation in a perceptron',
    'norm_alpha': 'no group normalisation in a perceptron',
}
_Search = dict[str, float]


def _searches(rows: Sequence[records.Row]) -> dict[tuple, _Search]:
  """Returns (data set, method, id) -> the metrics of one search."""
  values: dict[tuple, _Search] = {}
  for row in rows:
    search = values.setdefault((row.dataset, row.method, row.id), {
        'epsilon': row.epsilon, 'delta': row.delta})
    search[row.metric] = row.value
  return dict(sorted(values.items(), key=lambda item: (
      item[0][0], sweep.METHODS.index(item[0][1]), item[0][2])))


def _scores(search: _Search) -> list[float]:
  return [search[name] for name in sorted(search) if name.startswith(_SCORE)]


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of the search space, the results and selected values."""
  return '\n'.join([
      'Search space (EXP-T5.2): printed and ours.', '', _space_table(),
      'Scores are noisy accuracies in cross-validation within the training '
      'part of one split; accuracies are means over runs on its held-out '
      'fifth, which the search does not see, +- standard error over runs; p '
      'is that of Wilcoxon\'s test of selected against recipe over runs, '
      'adjusted by Holm\'s method. The epsilon of a run leaves the search out '
      '(erratum E30); the one charged is that of all trials, their scores and '
      'one run of what they selected, at the same delta.', '',
      _result_table(rows), 'Selected values.', '', _selected_table(rows)])


def _space_table() -> str:
  printed = {line.name: line for line in papers.TABLE_5_2}
  names = list(printed)
  for method in sweep.METHODS:
    names += [name for name in space.NAMES[method] if name not in names]
  lines = []
  for name in names:
    if name == 'sgd_learning_rate':
      continue
    line = printed.get(name)
    theirs = f'[{line.low:g}, {line.high:g}]' if line else '-'
    if line and line.unit:
      theirs += f' times {line.unit}'
    lines.append((name, theirs, _ABSENT.get(name) or _ours(name)))
  return tables.markdown(('hyperparameter', 'printed', 'ours'), lines)


def _ours(name: str) -> str:
  if name == 'num_steps':
    return '; '.join(sorted({
        ', '.join(map(str, each.steps)) for each in sweep.SETTINGS}))
  if name == 'features':
    return '; '.join(sorted({
        ', '.join(each.features) for each in sweep.SETTINGS}))
  if name == 'loss':
    return '; '.join(sorted({
        ', '.join(sweep.losses(each.dataset)) for each in sweep.SETTINGS}))
  return space.describe(name)


def _result_table(rows: Sequence[records.Row]) -> str:
  searches = _searches(rows)
  adjusted = summary.holm([each['p_value'] for each in searches.values()])
  lines = []
  for ((dataset, method, _), each), p_value in zip(searches.items(), adjusted,
                                                   strict=True):
    scores = _scores(each)
    lines.append((
        dataset, method, len(scores), tables.number(scores[0]),
        tables.number(scores[int(each['selected_trial'])]),
        _with_error(each, 'recipe'), _with_error(each, 'selected'),
        tables.number(p_value), int(each['num_parameters']),
        f'{each["epsilon_search_ignored"]:.4g}', f'{each["epsilon"]:.4g}'))
  return tables.markdown(
      ('data set', 'method', 'trials', 'score of recipe', 'score of selected',
       'accuracy of recipe', 'accuracy of selected', 'adjusted p',
       'parameters', 'epsilon of a run', 'epsilon charged'), lines)


def _with_error(search: _Search, name: str) -> str:
  return (f'{search[f"{name}_test_accuracy"]:.4f} +- '
          f'{tables.number(search[f"{name}_test_error"], digits=4)}')


def _selected_table(rows: Sequence[records.Row]) -> str:
  result = selected.from_rows(rows)
  lines = [
      (dataset, method, ', '.join(
          f'{name} {value:.3g}' if isinstance(value, float) else
          f'{name} {value}' for name, value in sorted(values.items())
          if name != 'num_train'))
      for dataset, methods in sorted(result.items())
      for method, values in methods.items()
  ]
  return tables.markdown(('data set', 'method', 'values'), lines)


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the best score so far by trials, one panel for each data set."""
  searches = _searches(rows)
  names = sorted({dataset for dataset, _, _ in searches}) or ['no rows']
  columns = min(3, len(names))
  drawn, axes = plots.new(-(-len(names) // columns), columns)
  for panel, ax in enumerate(axes.flat):
    if panel >= len(names):
      ax.set_visible(False)
      continue
    for (dataset, method, _), each in searches.items():
      if dataset == names[panel]:
        scores = _scores(each)
        best = [max(scores[:count + 1]) for count in range(len(scores))]
        ax.plot(range(1, len(best) + 1), best, label=method,
                drawstyle='steps-post')
    ax.set_title(names[panel])
    ax.set_xlabel('trials')
    ax.set_ylabel('best score')
  axes.flat[0].legend()
  return drawn


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Compares the best printed accuracies, and states the cost of searching."""
  by_dataset: dict[str, list[tuple[str, _Search]]] = {}
  for (dataset, method, _), each in _searches(rows).items():
    by_dataset.setdefault(dataset, []).append((method, each))
  values = []
  for line in papers.TABLE_5_4:
    claim = f'{line.dataset}, best of the table at epsilon {line.epsilon:g}'
    printed = max(line.dp_sgd, line.lip_dp_sgd)
    if line.dataset not in by_dataset:
      values.append(verdicts.Verdict(claim, tables.number(printed), '-',
                                    verdicts.NOT_RUN, 'no rows'))
      continue
    values.append(_best(claim, printed, by_dataset[line.dataset]))
  return values + [_cost(rows)]


def _best(claim: str, printed: float,
          searches: Sequence[tuple[str, _Search]]) -> verdicts.Verdict:
  # The method is chosen by its cross-validation score, so that the held-out
  # fifth is not used for a choice.
  method, ours = max(searches, key=lambda pair: _scores(pair[1])[
      int(pair[1]['selected_trial'])])
  gap = ours['selected_test_accuracy'] - printed
  outcome = verdicts.AGREES if abs(gap) <= _BAND else verdicts.DIFFERS
  reason = (f'{gap:+.3f} by {method}, the method with the best score, on one '
            'held-out fifth; the split, widths and selected values are not '
            'printed')
  return verdicts.Verdict(claim, tables.number(printed),
                          _with_error(ours, 'selected'), outcome, reason)


def _cost(rows: Sequence[records.Row]) -> verdicts.Verdict:
  """Judges the "potential (small) losses" of Barczewski (2025, section 5.3.1).

  The search costs much more privacy than one run (erratum E30).
  """
  claim = 'privacy loss by the search (E30)'
  searches = _searches(rows).values()
  if not searches:
    return verdicts.Verdict(claim, 'small', '-', verdicts.NOT_RUN, 'no rows')
  ratios = [each['epsilon'] / each['epsilon_search_ignored']
            for each in searches]
  return verdicts.Verdict(
      claim, 'small', f'epsilon times {min(ratios):.0f} to {max(ratios):.0f}',
      verdicts.DIFFERS, 'the composition of all trials, which are chosen '
                        'adaptively from earlier scores')
