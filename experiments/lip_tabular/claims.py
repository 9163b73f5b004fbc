"""Judges four claims about Barczewski (2025, Table 5.4) over all data sets.

Catalogue item STAT-01.
"""

from collections.abc import Sequence
import math

from dpjax.report import tables
from experiments import papers
from experiments import records
from experiments import summary
from experiments import verdicts
from experiments.lip_search import selected
from experiments.lip_tabular import sweep

_LEVEL = 0.05


def overall(rows: Sequence[records.Row],
            datasets: set[str]) -> list[verdicts.Verdict]:
  """Returns verdicts on four claims over the data sets with rows.

  The best of several methods is chosen on the same test fifths that judge it:
  with ten splits its accuracy is too high by about a standard error.

  Args:
    rows: rows of the settings at the printed budgets, and of 'sgd'.
    datasets: names of the data sets to judge.
  """
  lines = [line for line in papers.TABLE_5_4 if line.dataset in datasets]
  if not lines:
    return []
  result = summary.over_seeds(rows, ('dataset', 'method'),
                             metric='test_accuracy')
  return [_beats_the_printed_best(lines, result),
          _lipschitz_keeps_up(lines, result),
          _signed_ranks(lines, rows), _families(lines, rows)]


def near_strong_models(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts: is a private method as good as models without privacy?

  As good is within one standard error of the best strong model; errors of both
  are added in squares. The best ones are chosen on the test fifths, as in
  `overall`.

  Args:
    rows: rows at the printed budgets, and of strong models.
  """
  cells = summary.over_seeds(rows, ('dataset', 'method'),
                             metric='test_accuracy')
  comparisons = []
  for line in papers.TABLE_5_4:
    strong = _best(cells, line.dataset, sweep.STRONG)
    private = _best(cells, line.dataset,
                    sweep.METHODS + sweep.OTHERS)
    if strong and private:
      error = math.hypot(strong[1].standard_error, private[1].standard_error)
      comparisons.append(verdicts.Verdict(
          f'{line.dataset}: best private method within one standard error of '
          'the best strong model',
          f'{summary.cell(strong[1], digits=4)} ({strong[0]})',
          f'{summary.cell(private[1], digits=4)} ({private[0]})',
          verdicts.AGREES if private[1].mean >= strong[1].mean - error else
          verdicts.DIFFERS, f'at epsilon {line.epsilon:g}'))
  return comparisons


def _best(cells, dataset, methods) -> tuple[str, summary.Summary] | None:
  available = [(method, cells[dataset, method]) for method in methods
               if (dataset, method) in cells]
  return max(available, key=lambda each: each[1].mean) if available else None


def _beats_the_printed_best(lines, cells) -> verdicts.Verdict:
  above, short = 0, []
  for line in lines:
    printed = max(value for value in (line.dp_sgd, line.lip_dp_sgd,
                                      line.fix_lip_dp_sgd) if value)
    best = _best(cells, line.dataset, sweep.CLIPPING + sweep.LIPSCHITZ)
    ceiling = cells.get((line.dataset, 'sgd'))
    if best and best[1].mean > printed:
      above += 1
    elif best:
      short.append(
          f'{line.dataset} {summary.cell(best[1], digits=4)} ({best[0]}) '
          f'against {printed:.3f}' + (
              f', without privacy {summary.cell(ceiling, digits=4)}'
              if ceiling else ''))
  return verdicts.Verdict(
      'best method beats the best printed accuracy', 'all data sets',
      f'{above} of {len(lines)}',
      verdicts.AGREES if above == len(lines) else verdicts.DIFFERS,
      'short: ' + '; '.join(short) if short else 'on every one')


def _lipschitz_keeps_up(lines, cells) -> verdicts.Verdict:
  """Tests that Lipschitz methods lose at most one standard error to clipping.
  """
  near, far = [], []
  for line in lines:
    lip = _best(cells, line.dataset, sweep.LIPSCHITZ)
    clip = _best(cells, line.dataset, sweep.CLIPPING)
    if not lip or not clip:
      continue
    error = max(lip[1].standard_error, clip[1].standard_error)
    close = lip[1].mean >= clip[1].mean - (error if math.isfinite(error)
                                           else 0)
    (near if close else far).append(
        f'{line.dataset} {lip[1].mean:.3f} ({lip[0]}) against '
        f'{clip[1].mean:.3f} ({clip[0]})')
  return verdicts.Verdict(
      'Lip-DP-SGD is within one standard error of the best DP-SGD, or above',
      'above on all', f'{len(near)} of {len(near) + len(far)}',
      verdicts.AGREES if not far else verdicts.DIFFERS,
      'not on: ' + '; '.join(far) if far else 'on every one')


def _by_seed(rows) -> dict[tuple[str, str], dict[int, float]]:
  """Returns (data set, method) -> seed -> accuracy."""
  accuracies: dict[tuple[str, str], dict[int, float]] = {}
  for row in rows:
    if row.metric == 'test_accuracy':
      accuracies.setdefault((row.dataset, row.method), {})[row.seed] = row.value
  return accuracies


def _families(lines, rows) -> verdicts.Verdict:
  """Compares two methods, of either kind that with the best score on folds.

  So neither is chosen on the test records of this comparison. Differences are
  paired by split and seed.
  """
  by_seed = _by_seed(rows)
  shown, above = [], 0
  for line in lines:
    names = [selected.best_by_score(line.dataset, methods)
             for methods in (sweep.LIPSCHITZ, sweep.CLIPPING)]
    pair = [by_seed.get((line.dataset, name)) for name in names]
    if not all(pair):
      continue
    differences = summary.differences(*pair)
    mean = summary.summarise(differences)
    above += mean.mean >= 0
    shown.append(f'{line.dataset} {summary.cell(mean, digits=4)} '
                 f'({names[0]} minus {names[1]})')
  return verdicts.Verdict(
      'the best Lipschitz method on folds is at least the best clipping method '
      'on folds, in the mean', 'above on all',
      f'on {above} of {len(shown)}',
      verdicts.AGREES if above == len(shown) else verdicts.DIFFERS,
      '; '.join(shown) or 'no pairs')


def _signed_ranks(lines, rows) -> verdicts.Verdict:
  """Tests differences by exact signed ranks, with Holm's correction.

  Differences are paired by split and seed; the correction is for the number of
  data sets.
  """
  by_seed = _by_seed(rows)
  names, p_values, gaps = [], [], []
  for line in lines:
    pair = [by_seed.get((line.dataset, method))
            for method in ('lip_dp_sgd', 'dp_sgd')]
    if all(pair):
      differences = summary.differences(*pair)
      names.append(line.dataset)
      p_values.append(summary.wilcoxon(differences).p_value)
      gaps.append(sum(differences) / len(differences))
  adjusted = summary.holm(p_values)
  better = [name for name, p, gap in zip(names, adjusted, gaps, strict=True)
            if p <= _LEVEL and gap > 0]
  worse = [name for name, p, gap in zip(names, adjusted, gaps, strict=True)
           if p <= _LEVEL and gap < 0]
  shown = ', '.join(f'{name} {tables.number(p)}' for name, p in
                    zip(names, adjusted, strict=True))
  return verdicts.Verdict(
      'lip_dp_sgd differs from dp_sgd (Wilcoxon signed rank, 5 %)',
      'better on six', f'better on {len(better)}, worse on {len(worse)} of '
      f'{len(names)}',
      verdicts.AGREES if len(better) >= 6 else verdicts.DIFFERS,
      f'exact, two-sided, Holm-adjusted p: {shown or "no pairs"}')
