"""Compares claims of Figure 5.3.1 and its text with the rows.

Catalogue items EXP-F5.3.1 and EXP-T5.3; Barczewski (2025). The text has no
numbers of the figure; it claims only that Lip-DP-SGD is better than all other
methods. Small networks can show whether it is better than DP-SGD in the same
network at the same sound budget, but not whether it is better than large
networks.
"""

from collections.abc import Mapping, Sequence

from dpjax.report import tables
from experiments import papers
from experiments import records
from experiments import summary
from experiments import verdicts
from experiments.lip_images import sweep

DATASETS = ('mnist', 'fashion_mnist', 'cifar10')
_ABOVE = 'above, in a figure without numbers'
_WIDENING_EPSILON = 4.0
# Budget -> median accuracy of WRN-16-4 on CIFAR-10 (De et al. 2022).
_DE_ET_AL = {1.0: 0.568, 8.0: 0.795}
# Of a single run against a median.
_TOLERANCE = 0.01

Accuracies = Mapping[tuple[str, float], summary.Summary]
"""(method, requested epsilon) -> test accuracy, summarised over seeds."""


def profile(row: records.Row) -> str:
  """Returns the profile in the id of a row."""
  return row.id.split('/profile=')[1].split(',')[0]


def accuracies(rows: Sequence[records.Row], wanted: str,
               dataset: str) -> Accuracies:
  """Returns the test accuracies of a profile on a data set."""
  kept = [row for row in rows
          if profile(row) == wanted and row.dataset == dataset]
  return summary.over_seeds(kept, ('method', 'epsilon_requested'),
                            metric='test_accuracy')


def best(cells: Accuracies, methods: Sequence[str], most: float
         ) -> tuple[float, str] | None:
  """Returns the largest median within a budget, and its method, or None."""
  medians = [(value.median, method) for (method, epsilon), value
             in cells.items() if method in methods and epsilon <= most]
  return max(medians, default=None)


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns a verdict on each claim; 'not run' without rows."""
  results = []
  for dataset in DATASETS:
    small = accuracies(rows, 'cpu', dataset)
    results += [
        _against_published(dataset, accuracies(rows, 'full', dataset)),
        _against_dp_sgd(
            f'{dataset}, small network', small,
            'certified bounds are products of worst cases, while clipping '
            'bounds actual gradients'),
        _against_dp_sgd(
            f'{dataset}, features', accuracies(rows, 'features', dataset),
            'in a linear model on records of norm 1 both bound the same '
            'gradients'),
        _small_beside_published(dataset, small),
        _published_code(dataset, small)]
  return results + [_widening(rows), *_de_et_al(rows), *_counts(rows)]


def _de_et_al(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Compares runs of WRN-16-4 with what De et al. (2022) print for it."""
  cells = accuracies(rows, 'de_et_al', 'cifar10')
  results = []
  for epsilon, printed in _DE_ET_AL.items():
    claim = f'cifar10: WRN-16-4 of De et al. (2022) at epsilon {epsilon:g}'
    ours = cells.get(('dp_sgd', epsilon))
    if ours is None:
      results.append(verdicts.Verdict(
          claim, tables.number(printed), '-', verdicts.NOT_RUN,
          'the profile de_et_al needs a GPU'))
      continue
    agrees = ours.median >= printed - _TOLERANCE
    results.append(verdicts.Verdict(
        claim, tables.number(printed), tables.number(ours.median),
        verdicts.AGREES if agrees else verdicts.DIFFERS,
        f'{ours.median - printed:+.3f}; at least {-_TOLERANCE:g} agrees'))
  return results


def _against_published(dataset: str, cells: Accuracies) -> verdicts.Verdict:
  """Compares our accuracy with published ones at budgets at least as large."""
  claim = f'{dataset}: Lip-DP-SGD surpasses all published results'
  pairs = [(ours[0] - accuracy, curve.work, epsilon)
           for curve in papers.PUBLISHED_CURVES if curve.dataset == dataset
           for epsilon, accuracy in zip(curve.epsilons, curve.accuracies,
                                        strict=True)
           if (ours := best(cells, sweep.LIPSCHITZ, epsilon)) is not None]
  if not pairs:
    return verdicts.Verdict(
        claim, _ABOVE, '-', verdicts.NOT_RUN,
        'the profile full, with the networks of the paper, needs a GPU')
  gap, work, epsilon = min(pairs)
  shown = f'{gap:+.3f} against {work} at epsilon {epsilon:g}'
  if gap > 0:
    return verdicts.Verdict(claim, _ABOVE, shown, verdicts.AGREES,
                            f'least of {len(pairs)} published points')
  return verdicts.Verdict(
      claim, _ABOVE, shown, verdicts.DIFFERS,
      f'largest shortfall of {len(pairs)} published points; the epsilon of '
      'the printed method does not hold (E1, E2)')


def _against_dp_sgd(where: str, cells: Accuracies, why: str
                    ) -> verdicts.Verdict:
  """Returns a verdict on Lip-DP-SGD against DP-SGD at equal true budgets.

  Args:
    where: data set and network, for the claim.
    cells: accuracies of both.
    why: reason for a difference.
  """
  claim = f'{where}: Lip-DP-SGD surpasses DP-SGD'
  gaps, lines, above = [], [], []
  for (method, epsilon), value in cells.items():
    rival = best({key: each for key, each in cells.items()
                  if key[1] == epsilon}, sweep.CLIPPING['cpu'], epsilon)
    if method != 'lip_dp_sgd' or rival is None:
      continue
    gaps.append(value.median - rival[0])
    lines.append(f'{tables.number(value.median)} against '
                 f'{tables.number(rival[0])} at epsilon {epsilon:g}')
    other = best({key: each for key, each in cells.items()
                  if key[1] == epsilon}, sweep.LIPSCHITZ, epsilon)
    above.append(f'{tables.number(other[0])} ({other[1]})')
  if not gaps:
    return verdicts.Verdict(claim, _ABOVE, '-', verdicts.NOT_RUN, 'no rows')
  ours = '; '.join(lines)
  if min(gaps) > 0:
    return verdicts.Verdict(claim, _ABOVE, ours, verdicts.AGREES,
                            'medians over seeds, every budget')
  span = ' to '.join(dict.fromkeys(
      f'{gap:+.3f}' for gap in (min(gaps), max(gaps))))
  return verdicts.Verdict(
      claim, _ABOVE, ours, verdicts.DIFFERS,
      f'{span}: {why}; best of all Lipschitz methods {", ".join(above)}; the '
      'printed epsilon does not hold (E1)')


def _small_beside_published(dataset: str,
                            cells: Accuracies) -> verdicts.Verdict:
  claim = f'{dataset}, small network beside published results'
  epsilons = [epsilon for method, epsilon in cells if method != 'sgd']
  if not epsilons:
    return verdicts.Verdict(claim, '-', '-', verdicts.NOT_RUN, 'no rows')
  most = max(epsilons)
  ours = best(cells, (*sweep.CLIPPING['cpu'], *sweep.LIPSCHITZ), most)
  accuracy, work, epsilon = max(
      (accuracy, curve.work, epsilon) for curve in papers.PUBLISHED_CURVES
      if curve.dataset == dataset for epsilon, accuracy in zip(
          curve.epsilons, curve.accuracies, strict=True) if epsilon <= most)
  return verdicts.Verdict(
      claim, f'{tables.number(accuracy)} at {epsilon:g} ({work})',
      f'{tables.number(ours[0])} at {most:g} ({ours[1]})',
      verdicts.NOT_COMPARABLE,
      'a smaller network and fewer steps, for two CPU cores')


def _published_code(dataset: str, cells: Accuracies) -> verdicts.Verdict:
  line = next(each for each in papers.PUBLISHED_CODE if each.dataset == dataset)
  ceiling = best(cells, ('sgd',), float('inf'))
  return verdicts.Verdict(
      f'{dataset}: the public code at epsilon ~{line.epsilon:g}',
      f'{tables.number(line.accuracy)} (not private)',
      f'{tables.number(ceiling and ceiling[0])} (sgd, not private)',
      verdicts.NOT_COMPARABLE,
      'its noise and its clipping do not give its printed epsilon; see '
      'experiment unsound')


def _widening(rows: Sequence[records.Row]) -> verdicts.Verdict:
  """Judges the claim that the gap to Bethune et al. widens with the task.

  Source: Barczewski (2025, section 5.3.2).
  """
  claim = 'the gap to Bethune et al. widens with the task'
  gaps = []
  for dataset in DATASETS:
    result = accuracies(rows, 'cpu', dataset)
    pair = [result.get((method, _WIDENING_EPSILON))
            for method in ('lip_dp_sgd', 'lip_propagated')]
    if None in pair:
      return verdicts.Verdict(claim, 'words', '-', verdicts.NOT_RUN, 'no rows')
    gaps.append(pair[0].median - pair[1].median)
  return verdicts.Verdict(
      claim, 'words', ', '.join(f'{gap:+.3f}' for gap in gaps),
      verdicts.AGREES if 0 < gaps[0] < gaps[1] < gaps[2] else verdicts.DIFFERS,
      'lip_dp_sgd minus lip_propagated in the small network, epsilon '
      f'{_WIDENING_EPSILON:g}: {", ".join(DATASETS)}')


def _counts(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Judges the numbers of parameters in Table 5.3 and section 5.3.2.

  Both are of Barczewski (2025).
  """
  values = {(row.dataset, row.id.split('model=')[1].split(',')[0]): row.value
           for row in rows if profile(row) == 'count'}
  return [
      _count('Table 5.3: ConvNet on MNIST', papers.IMAGE_PARAMETERS['mnist'],
             values.get(('mnist', 'convnet')), ''),
      _count('Table 5.3: Wide-ResNet on CIFAR-10',
             papers.IMAGE_PARAMETERS['cifar10'],
             values.get(('cifar10', 'wrn_40_4')), ' of WRN-40-4'),
      _count('section 5.3.2: Wide-ResNet-16-4', papers.WRN_16_4_PARAMETERS,
             values.get(('cifar10', 'wrn_16_4')), ' of WRN-16-4')]


def _count(claim: str, printed: int, ours: float | None,
           what: str) -> verdicts.Verdict:
  claim, shown = f'{claim}, parameters', f'{printed:,}'
  if ours is None:
    return verdicts.Verdict(claim, shown, '-', verdicts.NOT_RUN, 'no rows')
  if ours == printed:
    return verdicts.Verdict(claim, shown, f'{ours:,.0f}', verdicts.AGREES,
                            f'exactly{what}')
  return verdicts.Verdict(claim, shown, f'{ours:,.0f}', verdicts.DIFFERS,
                          'the printed number is that of WRN-40-4 (E28)')
