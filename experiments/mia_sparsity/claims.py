"""Compares claims of Lalanne (2023) on sparsity as a defence with the rows.

Catalogue item MIA-11. Every claim is judged for every profile that has rows.
The printed numbers are of one network on one data set: other profiles are shown
beside them but not compared. With few seeds, a test that does not reach its
level proves nothing: then a claim 'differs' if the measured effect has the
opposite sign, and is 'not comparable' otherwise.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from experiments import papers
from experiments import records
from experiments import summary
from experiments import verdicts
from experiments.mia_sparsity import ceilings
from experiments.mia_sparsity import comparisons
from experiments.mia_sparsity import inference
from experiments.mia_sparsity import lookup
from experiments.mia_sparsity import sweep

_CIFAR = ('full', 'gpu')
_ACCURACY_BAND = 0.01
_ATTACK_WINDOW = (58.0, 63.0)
_LEAST_ATTACK = 0.55
_FACTOR_WINDOW = (2.0, 6.0)
_LEAST_SEEDS = 5
_RARE_LEVEL = 0.001
_ISOLATED = tuple(sweep.Kind(method='magnitude', prunings=k) for k in (3, 4))


class Finding(NamedTuple):
  """The outcome for a claim; fields as in `verdicts.Verdict`."""
  ours: str
  verdict: str
  reason: str


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns a verdict on each claim and profile; 'not run' without rows."""
  profiles = lookup.collect(rows)
  profiles_run = [networks.profile for networks in profiles]
  results = [_judged(networks, *claim) for networks in profiles
             for claim in _CLAIMS]
  results += [
      verdicts.Verdict(f'Figure 1.1 ({name})', 'a figure without numbers', '-',
                       verdicts.NOT_RUN, 'no rows')
      for name in sweep.TAGS
      if name in sweep.PROFILES and name not in profiles_run]
  return results


_NOT_RUN = Finding('-', verdicts.NOT_RUN, 'no rows of these networks')


def _judged(networks: lookup.Networks, topic: str, printed: str,
            judge: Callable[[lookup.Networks], Finding | None]
            ) -> verdicts.Verdict:
  result = judge(networks) or _NOT_RUN
  measured = result.verdict != verdicts.NOT_RUN
  if judge in _NUMBERS and measured and networks.profile not in _CIFAR:
    result = result._replace(verdict=verdicts.NOT_COMPARABLE, reason=(
        f'{networks.dataset} and a smaller network; {result.reason}'))
  return verdicts.Verdict(f'{topic} ({networks.profile})', printed, *result)


def significant(networks: lookup.Networks
                ) -> dict[sweep.Kind, tuple[bool, float]]:
  """Tests whether sparse kinds defend differently from dense networks.

  Returns:
    Kind -> the printed rule over networks, and the p-value of the two-sided
    test of differences paired by seed, after Holm's correction.
  """
  dense = networks.each(lookup.DENSE, 'defence')
  kinds = [kind for kind in networks.kinds(*lookup.SPARSE)
           if networks.has(kind, 'defence')] if dense else []
  adjusted = summary.holm([
      inference.p_value(list(comparisons.gains_over_dense(
          networks, kind, 'defence').values()), one_sided=False)
      for kind in kinds])
  return {kind: (inference.are_disjoint(networks.each(kind, 'defence'),
                                        dense), p_value)
          for kind, p_value in zip(kinds, adjusted, strict=True)}


def _dense_accuracy(networks: lookup.Networks) -> Finding | None:
  if not networks.has(lookup.DENSE, comparisons.ACCURACY):
    return None
  result = networks.mean(lookup.DENSE, comparisons.ACCURACY)
  close = abs(result - papers.SPARSITY.accuracy) <= _ACCURACY_BAND
  return Finding(_percent(result), _either(close),
                 f'MIA-11 (i): tolerance one point; {_training(networks)}')


def _dense_attack(networks: lookup.Networks) -> Finding | None:
  result = networks.pairs(lookup.DENSE, 'perceptron_accuracy')
  if not result:
    return None
  interval = inference.t_interval([100 * each for each in result.values()])
  low, high = _ATTACK_WINDOW
  return Finding(
      interval.text('{:.1f}') + ' %',
      _either(low <= interval.value <= high),
      f'MIA-11 (i): 58 to 63 % would agree; slope {papers.SPARSITY.slope:g} '
      f'and factor {papers.SPARSITY.relative_gain:g} hold together only for a '
      f'defence of {papers.SPARSITY.defence:.1f} (M-E03); '
      f'{_training(networks)}')


def _overfitted(networks: lookup.Networks) -> Finding | None:
  """Returns whether the attack on dense networks works.

  If it does not, there is nothing to defend against.
  """
  if not networks.has(lookup.DENSE, 'perceptron_accuracy'):
    return None
  result = networks.mean(lookup.DENSE, 'perceptron_accuracy')
  return Finding(_percent(result), _either(result > _LEAST_ATTACK),
                 f'more than {_percent(_LEAST_ATTACK)} is required')


def _training(networks: lookup.Networks) -> str:
  profile = sweep.PROFILES[networks.profile]
  return f'{profile.num_epochs} epochs instead of the printed 300'


def _literal(networks: lookup.Networks) -> Finding | None:
  result = significant(networks)
  claimed = set(lookup.claimed(networks)) & result.keys()
  if not claimed:
    return None
  flagged = {kind for kind, (disjoint, _) in result.items() if disjoint}
  above = [lookup.label(kind) for kind in result
           if kind in flagged - claimed]
  agrees = flagged - set(_ISOLATED) == claimed
  return Finding(
      _shares(result, claimed, flagged), _either(agrees),
      'mean +- standard deviation over networks disjoint from the dense '
      'one\'s, as printed: of three runs a test at level .07 without '
      f'correction; above 17.3 %: {"; ".join(above) or "none"}')


def _corrected(networks: lookup.Networks) -> Finding | None:
  result = significant(networks)
  claimed = set(lookup.claimed(networks)) & result.keys()
  if not claimed:
    return None
  flagged = {kind for kind, (_, p_value) in result.items()
             if p_value < inference.LEVEL}
  seeds = len(networks.pairs(lookup.DENSE, 'defence'))
  outcome = _either(claimed <= flagged)
  if outcome == verdicts.DIFFERS and seeds < _LEAST_SEEDS:
    outcome = verdicts.NOT_COMPARABLE
  least = min(p_value for _, p_value in result.values())
  return Finding(
      _shares(result, claimed, flagged), outcome,
      f'two-sided t tests of {seeds} differences paired by split and seed, '
      f'averaged over the two roles, Holm over {len(result)} networks; least p '
      f'{least:.2g}')


def _shares(cells, claimed, flagged) -> str:
  others = cells.keys() - claimed
  return (f'{len(claimed & flagged)} of {len(claimed)} at 17.3 % or fewer, '
          f'{len(others & flagged)} of {len(others)} above')


def _sparsest(networks: lookup.Networks) -> Finding | None:
  kinds = networks.kinds('magnitude')[-1:]
  result = comparisons.over_dense(networks, 'defence', kinds)
  if not result.gains:
    return None
  return _directed([result._replace(name=lookup.label(kinds[0]))])


def _trend(networks: lookup.Networks) -> Finding | None:
  kinds = lookup.claimed(networks)
  gains = {kind: list(comparisons.gains_over_dense(
      networks, kind, 'defence').values()) for kind in kinds}
  pruned = [kind for kind in kinds if kind.method == 'magnitude'
            and gains[kind]]
  slopes = _slopes(networks, pruned)
  if not slopes:
    return None
  above = sum(np.mean(each) > 0 for each in gains.values() if each)
  mean, p_value = np.mean(slopes), inference.p_value(slopes, one_sided=True)
  count = sum(map(bool, gains.values()))
  outcome = (verdicts.DIFFERS if above < count or mean <= 0 else
             _either(p_value < inference.LEVEL, verdicts.NOT_COMPARABLE))
  return Finding(
      f'{above} of {count} above the dense network; {mean:+.2f} points a '
      'pruning', outcome,
      'MIA-11 (ii): '
      f'slope over k = {pruned[0].prunings} to {pruned[-1].prunings}, '
      f'{len(slopes)} seeds, one-sided p = {p_value:.2g}')


def _slopes(networks, kinds) -> list[float]:
  """Returns the slope of the defence in the number of prunings, by seed.

  The slope is in percentage points for each pruning.
  """
  if len(kinds) < 2:
    return []
  values = [networks.pairs(kind, 'defence') for kind in kinds]
  prunings = [kind.prunings for kind in kinds]
  return [float(np.polyfit(prunings, [each[seed] for each in values], 1)[0])
          for seed in sorted(set.intersection(*map(set, values)))]


def _factor(networks: lookup.Networks) -> Finding | None:
  result = comparisons.trade_off(
      networks, lookup.claimed(networks, window=True))
  if result is None or not result.ratios:
    return None
  value, low, high = result.factor
  least, most = _FACTOR_WINDOW
  if least <= value <= most and low > 0:
    outcome = verdicts.AGREES
  elif high < least or low > most:
    outcome = verdicts.DIFFERS
  else:
    outcome = verdicts.NOT_COMPARABLE
  return Finding(
      result.factor.text(), outcome,
      f'MIA-11 (iii): 2 to 6 would agree; a line through {len(result.ratios)} '
      'networks, limits by resampling seeds; single networks give '
      f'{min(result.ratios):.2g} to {max(result.ratios):.2g}')


def _absolute_slope(networks: lookup.Networks) -> Finding | None:
  result = comparisons.trade_off(networks, networks.kinds(*lookup.SPARSE))
  if result is None:
    return None
  _, low, high = result.slope
  printed = papers.SPARSITY
  implied = (-printed.relative_gain * networks.mean(lookup.DENSE, 'defence')
             / (100 * networks.mean(lookup.DENSE, comparisons.ACCURACY)))
  if high != high:
    outcome = verdicts.NOT_COMPARABLE
  else:
    outcome = _either(low <= printed.slope <= high)
  return Finding(
      result.slope.text(), outcome,
      'points of defence for a point of accuracy, the line through the dense '
      f'network nearest to {len(result.ratios)} sparse ones; '
      f'{printed.relative_gain:g} would be {implied:.2f} here (M-E03)')


def _butterflies(networks: lookup.Networks) -> Finding | None:
  result = comparisons.butterfly_gaps(networks)
  total = len(networks.kinds('butterfly'))
  if not total:
    return None
  if not result:
    return Finding('-', verdicts.NOT_COMPARABLE,
                   'no butterfly is as accurate as a pruned network')
  farthest = max(result, key=lambda gap: abs(gap.gap) / gap.spread)
  ratio = farthest.gap / farthest.spread
  return Finding(
      f'{ratio:+.2f} standard deviations at most', _either(abs(ratio) <= 1),
      'MIA-11 (iv): '
      f'{len(result)} of {total} butterflies at the accuracy of pruned '
      f'networks; mean gap {np.mean([gap.gap for gap in result]):+.2f} points, '
      f'farthest {lookup.label(farthest.kind)}')


def _controls(networks: lookup.Networks) -> Finding | None:
  return _directed(comparisons.over_controls(networks, 'defence'))


def _controls_sharp(networks: lookup.Networks) -> Finding | None:
  attack = comparisons.sharpest(networks)
  if attack is None:
    return None
  result = _directed(comparisons.over_controls(networks, f'{attack}_accuracy'))
  return result and result._replace(
      reason=f'{attack}, the sharpest on dense networks; {result.reason}')


def _sharp(metric: str) -> Callable[[lookup.Networks], Finding | None]:
  """Returns a judge of the sharp attacks, by this metric of their success."""
  def judge(networks):
    result = [comparisons.over_dense(networks, f'{attack}_{metric}',
                                    lookup.claimed(networks))
             for attack in lookup.SHARP]
    return _directed([each._replace(name=attack) for attack, each
                      in zip(lookup.SHARP, result, strict=True) if each.gains])
  return judge


def _private(networks: lookup.Networks) -> Finding | None:
  if not networks.kinds(*lookup.PRIVATE) or not lookup.claimed(networks):
    return None
  return _directed(comparisons.over_private(networks, 'defence')) or Finding(
      '-', verdicts.NOT_COMPARABLE,
      'no private network is as accurate as a sparse one')


def _ceilings(networks: lookup.Networks) -> Finding | None:
  result = ceilings.tests(networks)
  if not result:
    return None
  above = [test for test in result
           if test.excess.p_value * len(result) < inference.LEVEL]
  closest = max(result, key=lambda test: test.excess.mean
                - test.excess.ceiling)
  errors = [100 * test.excess.standard_error for test in result]
  return Finding(
      f'{len(above)} of {len(result)} above', _either(not above),
      f'closest {closest.attack} on {lookup.label(closest.kind)}: '
      f'{_percent(closest.excess.mean)} of '
      f'{_percent(closest.excess.ceiling)}; standard errors '
      f'{min(errors):.2g} to {max(errors):.2g} points, level 5 % for all '
      'tests together')


def _directed(cells: Sequence[comparisons.Comparison]) -> Finding | None:
  """Tests that all gains are positive, with Holm's correction."""
  if not cells:
    return None
  adjusted = summary.holm([each.p_value for each in cells])
  if max(adjusted) < inference.LEVEL:
    outcome = verdicts.AGREES
  elif min(each.interval.value for each in cells) <= 0:
    outcome = verdicts.DIFFERS
  else:
    outcome = verdicts.NOT_COMPARABLE
  tests = ', '.join(f'{p_value:.2g}' for p_value in adjusted)
  counts = ' and '.join(str(each.num_kinds) for each in cells)
  return Finding(
      '; '.join(f'{each.name} {each.interval.text("{:+.2f}")}'
                for each in cells), outcome,
      'gain in points with 95 % limits over '
      f'{max(len(each.gains) for each in cells)} seeds, averaged over the two '
      f'roles; one-sided p after Holm {tests}; over {counts} sparse networks')


def _either(holds: bool, otherwise: str = verdicts.DIFFERS) -> str:
  return verdicts.AGREES if holds else otherwise


def _percent(share: float) -> str:
  return f'{100 * share:.1f} %'


_P = papers.SPARSITY
_NUMBERS = (_dense_accuracy, _dense_attack, _literal, _factor,
            _absolute_slope)
_CLAIMS = (
    ('dense network: test accuracy', _percent(_P.accuracy), _dense_accuracy),
    ('dense network: accuracy of the perceptrons',
     f'{_percent(_P.attack_accuracy)}, by M-E03', _dense_attack),
    ('perceptrons tell members of the dense network', 'not in the text',
     _overfitted),
    ('defence differs from the dense network\'s, by the printed rule',
     'at 17.3 % or fewer, 41.4 % and 51.5 %', _literal),
    ('defence differs from the dense network\'s, by corrected tests',
     'not in the text', _corrected),
    ('the sparsest pruned network defends better than the dense one',
     'in a figure without numbers', _sparsest),
    ('defence rises with sparsity, at 17.3 % or fewer',
     'in a figure without numbers', _trend),
    ('relative gain of defence for a relative loss of accuracy',
     f'{_P.relative_gain:g}', _factor),
    ('slope of defence against accuracy', f'{_P.slope:g}', _absolute_slope),
    ('butterflies and pruned networks trade alike', 'similar',
     _butterflies),
    ('sparse networks defend better than controls of equal accuracy',
     'not in the text', _controls),
    ('the same against the sharpest attack', 'not in the text',
     _controls_sharp),
    ('sparsity defends against sharp attacks, accuracy', 'not in the text',
     _sharp('accuracy')),
    ('sparsity defends against sharp attacks, TPR at FPR .1 %',
     'not in the text', _sharp(f'tpr_at_{_RARE_LEVEL:g}')),
    ('sparse networks defend better than private ones of equal accuracy',
     'lower cost in accuracy', _private),
    ('attacks on private networks stay below the ceiling', 'not in the text',
     _ceilings))
