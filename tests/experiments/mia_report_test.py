"""What the report of mia_sparsity says of rows whose answers are known."""

import itertools
import math
import re

import numpy as np
import pytest
from scipy import stats

from dpjax.report import records
from dpjax.report import verdicts
from experiments import papers
from experiments import registry
from experiments import selection
from experiments.mia_sparsity import ceilings
from experiments.mia_sparsity import claims
from experiments.mia_sparsity import comparisons
from experiments.mia_sparsity import inference
from experiments.mia_sparsity import lookup
from experiments.mia_sparsity import report
from experiments.mia_sparsity import sweep

Kind = sweep.Kind
DENSE = lookup.DENSE
_SEEDS = 3
_ACCURACY, _DEFENCE = 0.875, 79.0
_SHARE = {(1, 2): 0.3226, (2, 3): 0.1273}


def _pruned(k):
  return Kind(method='magnitude', prunings=k)


def _butterfly(segments, factors):
  return Kind(method='butterfly', segments=segments, factors=factors)


def _share(kind):
  if kind.method == 'butterfly':
    return _SHARE.get((kind.segments, kind.factors), 0.085)
  return (1578 + 270896 * 0.8**kind.prunings) / 272474


def _metrics(accuracy, defence):
  """All metrics of a network on the same line of attacks."""
  attack = 1 - defence / 200
  found = {'test_accuracy': accuracy, 'train_accuracy': 1.0,
           'validation_accuracy': accuracy, 'num_attacked': 28000.0,
           'num_params': 272474.0, 'defence': defence,
           'perceptron_oracle': attack + 0.002}
  for step, name in enumerate(lookup.ATTACKS):
    found[f'{name}_accuracy'] = 0.5 + (attack - 0.5) * (1 + 0.1 * step)
    found[f'{name}_auc'] = found[f'{name}_accuracy'] + 0.01
    for level in sweep.FPR_LEVELS:
      found[f'{name}_tpr_at_{level:g}'] = min(1, level * 20 * attack)
  return found


def _rows(networks, profile='full', roles=sweep.ROLES, noise=0.0,
          num_seeds=_SEEDS):
  """Rows of {kind: metrics, or (seed, role) -> metrics}."""
  found, generator = [], np.random.default_rng(0)
  for kind, metrics in networks.items():
    for seed, role in itertools.product(range(num_seeds), roles):
      setting = sweep.Setting(
          **kind.__dict__, profile=profile, seed=seed, role=role,
          dataset=sweep.PROFILES[profile].dataset)
      values = metrics(seed, role) if callable(metrics) else dict(metrics)
      values.setdefault('nonzero', _share(kind))
      values['defence'] += noise * generator.standard_normal()
      found += selection.named('mia_sparsity', setting, [
          records.Row(seed=seed, metric=metric, value=float(value), n=14000,
                      epsilon_requested=kind.epsilon, epsilon=kind.epsilon,
                      epsilon_valid=True, delta=1e-5,
                      adjacency='replace_one', accountant='pld',
                      method=kind.method, dataset=setting.dataset, wall_s=1.0)
          for metric, value in values.items()])
  return found


def _on_line(factor, kinds):
  """Dense, and kinds that lose 1 %, 2 % ... and gain `factor` times that."""
  found = {DENSE: _metrics(_ACCURACY, _DEFENCE)}
  for i, kind in enumerate(kinds, 1):
    found[kind] = _metrics(_ACCURACY * (1 - 0.01 * i),
                           _DEFENCE * (1 + 0.01 * factor * i))
  return found


def _only(rows):
  networks, = lookup.collect(rows)
  return networks


def _said(rows, profile='full'):
  """Topic -> verdict, of one profile."""
  end = f' ({profile})'
  return {v.claim.removesuffix(end): v
          for v in verdicts.check(report.verdict(rows))
          if v.claim.endswith(end)}


def _first_number(text):
  return float(re.search(r'[+-]?[0-9.]+', text).group())


_FACTOR = 'relative gain of defence for a relative loss of accuracy'
_SLOPE = 'slope of defence against accuracy'
_LITERAL = 'defence differs from the dense network\'s, by the printed rule'
_CORRECTED = 'defence differs from the dense network\'s, by corrected tests'
_SPARSEST = 'the sparsest pruned network defends better than the dense one'
_TREND = 'defence rises with sparsity, at 17.3 % or fewer'
_ALIKE = 'butterflies and pruned networks trade alike'
_CONTROLS = 'sparse networks defend better than controls of equal accuracy'
_SHARPER = 'the same against the sharpest attack'
_SHARP = 'sparsity defends against sharp attacks, accuracy'
_RARE = 'sparsity defends against sharp attacks, TPR at FPR .1 %'
_PRIVATE = 'sparse networks defend better than private ones of equal accuracy'
_CEILING = 'attacks on private networks stay below the ceiling'


# Printed numbers and rows.


def test_printed_slope_and_gain_hold_together_for_one_defence():
  """M-E03."""
  assert papers.SPARSITY.defence == pytest.approx(78.993, abs=1e-3)
  assert papers.SPARSITY.attack_accuracy == pytest.approx(0.605, abs=1e-4)


def test_every_setting_is_read_back_from_its_id():
  for setting in (*sweep.SETTINGS, *sweep.SMOKE):
    profile, kind, role = lookup.parse(
        selection.setting_id('mia_sparsity', setting))
    assert (profile, role) == (setting.profile, setting.role)
    assert all(getattr(setting, name) == value
               for name, value in kind.__dict__.items())
    assert lookup.label(kind)


def test_kinds_are_told_apart_and_in_order():
  kinds = list(sweep.PROFILES['full'].kinds())
  networks = _only(_rows({kind: {'defence': 1.0, 'nonzero': 0.1}
                          for kind in reversed(kinds)}, num_seeds=1))
  ordered = networks.kinds()
  assert len({lookup.label(kind) for kind in ordered}) == len(kinds)
  assert ordered[0] == DENSE
  assert [kind.prunings for kind in networks.kinds('magnitude')
          ] == list(range(1, 25))
  assert [kind.stop for kind in networks.kinds('stopped')
          ] == [0.45, 0.25, 0.1]


def test_claims_are_about_eight_prunings_and_more():
  kinds = [*map(_pruned, (4, 7, 8, 16, 17, 24)), _butterfly(1, 2),
           _butterfly(2, 3)]
  networks = _only(_rows(_on_line(3.6, kinds)))
  assert lookup.claimed(networks) == [
      *map(_pruned, (8, 16, 17, 24)), _butterfly(2, 3)]
  assert lookup.claimed(networks, window=True) == [
      _pruned(8), _pruned(16), _butterfly(2, 3)]
  assert round(_share(_pruned(8)), 3) == papers.SPARSITY.window[1]
  assert round(_share(_pruned(16)), 3) == papers.SPARSITY.window[0]


def test_a_pair_of_networks_is_one_value():
  """Roles that are far apart cancel; single networks keep their spread."""
  values = {'target': 70.0, 'shadow': 90.0}
  networks = _only(_rows({DENSE: lambda seed, role: {
      'defence': values[role] + seed}}))
  assert networks.pairs(DENSE, 'defence') == {0: 80.0, 1: 81.0, 2: 82.0}
  assert len(networks.each(DENSE, 'defence')) == 6
  assert networks.mean(DENSE, 'defence') == 81.0


# Statistics.


def test_student_s_tests_and_limits_are_those_of_scipy():
  values = [1.0, 2.5, 0.5, 3.0]
  theirs = stats.ttest_1samp(values, 0)
  assert inference.p_value(values, one_sided=False) == pytest.approx(
      theirs.pvalue)
  for some in (values, [-value for value in values]):
    assert inference.p_value(some, one_sided=True) == pytest.approx(
        stats.ttest_1samp(some, 0, alternative='greater').pvalue)
  limits = theirs.confidence_interval(0.95)
  assert inference.t_interval(values) == pytest.approx(
      (np.mean(values), limits.low, limits.high))


def test_one_seed_shows_nothing_and_equal_differences_everything():
  assert inference.p_value([5.0], one_sided=True) == 1
  assert math.isnan(inference.t_interval([5.0]).low)
  assert inference.p_value([5.0, 5.0], one_sided=True) == 0
  assert inference.p_value([-5.0, -5.0], one_sided=True) == 1
  assert inference.p_value([0.0, 0.0], one_sided=False) == 1


def test_the_printed_rule_by_hand():
  """79 +- 1 against 81.5 +- 1 and 80.9 +- 1; sharing an end is not disjoint."""
  dense = [78.0, 79.0, 80.0]
  assert inference.are_disjoint([80.5, 81.5, 82.5], dense)
  assert inference.are_disjoint([75.5, 76.5, 77.5], dense)
  assert not inference.are_disjoint([79.9, 80.9, 81.9], dense)
  assert not inference.are_disjoint([80.0, 81.0, 82.0], dense)
  assert not inference.are_disjoint([99.0], dense)


def test_bootstrap_is_that_of_all_ordered_draws():
  """27 draws of three, each as likely as the others."""
  values = {4: 1.0, 7: 2.0, 9: 6.0}
  mean = lambda drawn: sum(values[seed] for seed in drawn) / len(drawn)
  found = inference.bootstrap(mean, list(values))
  every = sorted(mean(drawn) for drawn in itertools.product(values, repeat=3))
  assert len(every) == 27
  # Less than 2.5 % of 27 is below the least of them: limits are the ends.
  assert found == pytest.approx((3.0, every[0], every[-1]))
  five = {seed: seed**2 for seed in range(5)}
  square = lambda drawn: sum(five[seed] for seed in drawn) / len(drawn)
  every = np.sort([square(drawn) for drawn
                   in itertools.product(five, repeat=5)])
  found = inference.bootstrap(square, list(five))
  ends = [np.quantile(every, q, method='inverted_cdf')
          for q in (0.025, 0.975)]
  assert found == pytest.approx((6.0, *ends))
  with pytest.raises(ValueError, match='at most 8 seeds, got 9'):
    inference.bootstrap(mean, list(range(9)))


def test_slope_goes_through_the_dense_network():
  assert inference.slope([1, 2], [2, 4]) == 2
  assert inference.slope([1, 2], [3, 4]) == pytest.approx(11 / 5)
  assert math.isnan(inference.slope([0.0, 0.0], [1, 2]))


def test_matching_interpolates_and_pairs():
  """At .82 a quarter of the way from .8: 3/4 of 90 and 1/4 of 82."""
  below, above = {0: 89.0, 1: 91.0}, {0: 81.0, 1: 83.0, 2: 50.0}
  found = inference.matched(0.82, {0: 90.0, 1: 92.0, 2: 0.0},
                            [(0.88, above), (0.8, below)])
  assert found.differences == pytest.approx({0: 3.0, 1: 3.0})
  assert found.gap == pytest.approx(3.0)
  for accuracy in (0.79, 0.89):
    assert inference.matched(accuracy, {0: 1.0}, [(0.88, above),
                                                  (0.8, below)]) is None
  assert inference.matched(0.82, {7: 1.0}, [(0.88, above),
                                            (0.8, below)]) is None
  # Too far apart.
  assert inference.matched(0.82, {0: 90.0}, [(0.88, above),
                                             (0.77, below)]) is None


def test_excess_of_networks_that_are_as_bad_as_they_may_be():
  """Pairs told rightly with the ceiling's probability: 5 % are rejected."""
  ceiling, pairs, networks = 0.7, 500, 2
  right = np.random.default_rng(1).binomial(
      pairs, ceiling, [2000, networks]) / pairs
  p_values = np.array([inference.excess(list(one), ceiling, 2 * pairs).p_value
                       for one in right])
  allowed = 0.05 + 3 * math.sqrt(0.05 * 0.95 / len(p_values))
  assert 0.015 < np.mean(p_values < 0.05) < allowed
  exact = inference.excess([0.72, 0.72], ceiling, 1000)
  assert exact.standard_error == pytest.approx(math.sqrt(0.21 / 1000))
  assert exact.p_value == pytest.approx(stats.norm.sf(
      0.02 / math.sqrt(0.21 / 1000)))
  # Networks that scatter more than coins are given what they scatter.
  wide = inference.excess([0.62, 0.82], ceiling, 1000)
  assert wide.standard_error == pytest.approx(0.1)


# Claims.


@pytest.mark.parametrize('factor, outcome', [
    (3.6, verdicts.AGREES), (8.0, verdicts.DIFFERS),
    (-3.6, verdicts.DIFFERS)])
def test_a_planted_factor_is_found(factor, outcome):
  kinds = [_pruned(8), _pruned(12), _butterfly(3, 3), _pruned(24)]
  said = _said(_rows(_on_line(factor, kinds)))
  assert said[_FACTOR].ours == f'{factor:.2f} [{factor:.2f}, {factor:.2f}]'
  assert said[_FACTOR].verdict == outcome
  # k = 24 is outside of the window, and in the slope.
  assert 'through 3 networks' in said[_FACTOR].reason
  slope = -factor * _DEFENCE / (100 * _ACCURACY)
  assert said[_SLOPE].ours.startswith(f'{slope:.2f} ')
  assert 'nearest to 4 sparse' in said[_SLOPE].reason
  assert '3.6 would be -3.25 here' in said[_SLOPE].reason


def test_a_factor_near_the_end_of_the_window_is_not_judged():
  """1.9 with seeds on both sides of 2."""
  networks = {
      DENSE: _metrics(_ACCURACY, _DEFENCE),
      _pruned(8): lambda seed, role: _metrics(
          0.9 * _ACCURACY, _DEFENCE * (1 + 0.1 * (1.5, 1.9, 2.3)[seed]))}
  found = _said(_rows(networks))[_FACTOR]
  assert found.ours == '1.90 [1.50, 2.30]'
  assert found.verdict == verdicts.NOT_COMPARABLE


def test_the_ratio_of_means_is_not_the_mean_of_ratios():
  """Literal ratios 2 and 6 beside a line that weighs what lost more."""
  networks = _on_line(0, [])
  networks[_pruned(8)] = _metrics(0.99 * _ACCURACY, 1.06 * _DEFENCE)
  networks[_pruned(12)] = _metrics(0.9 * _ACCURACY, 1.2 * _DEFENCE)
  found = comparisons.trade_off(_only(_rows(networks)), [_pruned(8),
                                                         _pruned(12)])
  assert found.ratios == pytest.approx((6, 2))
  assert found.factor.value == pytest.approx(
      (0.01 * 0.06 + 0.1 * 0.2) / (0.01**2 + 0.1**2))


def test_holm_by_hand():
  """Three differences over three seeds; the least p counts three times."""
  shifts = {_pruned(8): (5.0, 5.1, 5.2), _pruned(9): (1.0, 2.0, 3.0),
            _pruned(3): (0.5, 0.4, 0.7)}
  networks = {DENSE: lambda seed, role: _metrics(0.8, 70.0 + 3 * seed)}
  for kind, shift in shifts.items():
    networks[kind] = lambda seed, role, shift=shift: _metrics(
        0.8, 70.0 + 3 * seed + shift[seed])
  found = claims.significant(_only(_rows(networks)))
  raw = {kind: stats.ttest_1samp(shift, 0).pvalue
         for kind, shift in shifts.items()}
  assert raw[_pruned(8)] < raw[_pruned(3)] < raw[_pruned(9)]
  assert found[_pruned(8)][1] == pytest.approx(3 * raw[_pruned(8)])
  assert found[_pruned(3)][1] == pytest.approx(2 * raw[_pruned(3)])
  assert found[_pruned(9)][1] == pytest.approx(raw[_pruned(9)])
  said = _said(_rows(networks))[_CORRECTED]
  assert said.ours == '1 of 2 at 17.3 % or fewer, 0 of 1 above'
  # Three seeds are fewer than MIA-11 asks for.
  assert said.verdict == verdicts.NOT_COMPARABLE


def test_the_printed_pattern_of_significance():
  """At 17.3 % or fewer; 41.4 % and 51.5 % may be, 33 % may not."""
  networks = {kind: _metrics(_ACCURACY, _DEFENCE) for kind in (
      DENSE, _pruned(1), _pruned(5))}
  for kind in map(_pruned, (3, 4, 8, 20)):
    networks[kind] = _metrics(_ACCURACY, _DEFENCE + 5)
  found = _said(_rows(networks, noise=0.5))[_LITERAL]
  assert found.ours == '2 of 2 at 17.3 % or fewer, 2 of 4 above'
  assert found.verdict == verdicts.AGREES
  assert found.reason.endswith(
      'above 17.3 %: magnitude, k = 3; magnitude, k = 4')
  networks[_pruned(5)] = networks[_pruned(8)]
  assert _said(_rows(networks, noise=0.5))[_LITERAL].verdict == (
      verdicts.DIFFERS)
  networks[_pruned(5)] = networks[_pruned(8)] = networks[DENSE]
  assert _said(_rows(networks, noise=0.5))[_LITERAL].verdict == (
      verdicts.DIFFERS)


@pytest.mark.parametrize('step, sparsest, trend', [
    (1.0, verdicts.AGREES, verdicts.AGREES),
    (-1.0, verdicts.DIFFERS, verdicts.DIFFERS)])
def test_direction_of_defence(step, sparsest, trend):
  networks = {DENSE: _metrics(_ACCURACY, _DEFENCE)}
  for k in (4, 8, 12, 16):
    networks[_pruned(k)] = _metrics(_ACCURACY - 0.002 * k,
                                    _DEFENCE + step * k)
  said = _said(_rows(networks, 'cpu', noise=0.05, num_seeds=5), 'cpu')
  assert said[_SPARSEST].verdict == sparsest
  assert _first_number(said[_SPARSEST].ours.removeprefix(
      'magnitude, k = 16')) == pytest.approx(16 * step, abs=0.1)
  assert said[_TREND].verdict == trend
  above, slope = said[_TREND].ours.split(' above the dense network; ')
  assert above == ('3 of 3' if step > 0 else '0 of 3')
  assert _first_number(slope) == pytest.approx(step, abs=0.02)
  assert 'k = 8 to 16, 5 seeds' in said[_TREND].reason


def test_a_gain_that_seeds_do_not_show_is_not_judged():
  shift = (30.0, -14.0, 2.0)
  found = _said(_rows({
      DENSE: _metrics(_ACCURACY, _DEFENCE),
      _pruned(16): lambda seed, role: _metrics(
          _ACCURACY, _DEFENCE + shift[seed])}))[_SPARSEST]
  assert found.verdict == verdicts.NOT_COMPARABLE
  assert '+6.00 [' in found.ours


def test_butterflies_within_a_standard_deviation_of_pruned_networks():
  networks = _on_line(3.6, [_pruned(8), _pruned(16)])
  middle = (_ACCURACY * 0.985, _DEFENCE * (1 + 0.015 * 3.6))
  spread = lambda accuracy, defence: lambda seed, role: _metrics(
      accuracy, defence + (-1, 0, 1)[seed])
  for kind, metrics in list(networks.items()):
    networks[kind] = spread(metrics['test_accuracy'], metrics['defence'])
  unit = math.sqrt(6 / 5 * 2 / 3)  # of -1, 0, 1, each twice
  for gap, outcome in ((0.5, verdicts.AGREES), (-0.5, verdicts.AGREES),
                       (1.5, verdicts.DIFFERS), (-1.5, verdicts.DIFFERS)):
    networks[_butterfly(3, 3)] = spread(middle[0], middle[1] + gap * unit)
    found = _said(_rows(networks))[_ALIKE]
    assert found.ours == f'{gap:+.2f} standard deviations at most'
    assert found.verdict == outcome
  networks[_butterfly(3, 3)] = spread(0.3, 99.0)
  assert _said(_rows(networks))[_ALIKE].verdict == verdicts.NOT_COMPARABLE


@pytest.mark.parametrize('shift, outcome', [
    (2.0, verdicts.AGREES), (-2.0, verdicts.DIFFERS)])
def test_sparse_networks_beside_controls_of_equal_accuracy(shift, outcome):
  """A stopped network on a line; sparse ones so many points above it."""
  networks = _on_line(3.6, [Kind(method='stopped', stop=0.1)])
  networks[_pruned(12)] = _metrics(
      _ACCURACY * 0.994, _DEFENCE * (1 + 0.006 * 3.6) + shift)
  networks[_pruned(8)] = _metrics(  # the same
      _ACCURACY * 0.996, _DEFENCE * (1 + 0.004 * 3.6) + shift)
  networks[_pruned(24)] = _metrics(0.5, 100.0)  # beyond what was stopped
  networks[_pruned(4)] = _metrics(_ACCURACY * 0.995, 10.0)  # not claimed
  rows = _rows(networks)
  said = _said(rows)
  assert said[_CONTROLS].ours == (
      f'stopped {shift:+.2f} [{shift:+.2f}, {shift:+.2f}]')
  assert said[_CONTROLS].verdict == outcome
  found, = comparisons.over_controls(_only(rows), 'defence')
  assert found.num_kinds == 2
  # Points of accuracy of an attack are half of those of defence, times 1.4.
  assert said[_SHARPER].verdict == outcome
  assert said[_SHARPER].reason.startswith('rmia, the sharpest')
  assert said[_SHARPER].ours.startswith(f'stopped {shift * 0.7:+.2f} ')


def test_several_controls_are_one_family():
  """Each p is below .05; twice the larger of them is not."""
  networks = _on_line(3.6, [Kind(method='stopped', stop=0.1),
                            Kind(method='decayed', decay=4.0)])
  shift = (1.0, 2.0, 3.5)
  assert 0.025 < stats.ttest_1samp(shift, 0, alternative='greater').pvalue < (
      0.05)
  networks[_pruned(12)] = lambda seed, role: _metrics(
      _ACCURACY * 0.994, _DEFENCE * (1 + 0.006 * 3.6) + shift[seed])
  found = _said(_rows(networks))[_CONTROLS]
  assert found.verdict == verdicts.NOT_COMPARABLE
  assert found.reason.endswith('1 and 1 sparse networks')
  del networks[Kind(method='decayed', decay=4.0)]
  assert _said(_rows(networks))[_CONTROLS].verdict == verdicts.AGREES


def test_sharp_attacks_may_tell_another_story():
  """Perceptrons see less of sparse networks; LiRA sees just as much."""
  networks = _on_line(3.6, [_pruned(8), _pruned(16)])
  for metrics in networks.values():
    metrics['lira_accuracy'] = 0.7
    metrics['rmia_tpr_at_0.001'] = 0.02
  networks[_pruned(16)]['rmia_tpr_at_0.001'] = 0.05
  said = _said(_rows(networks))
  assert said[_SHARP].verdict == verdicts.DIFFERS
  assert said[_SHARP].ours.startswith('lira +0.00 ')
  assert 'rmia -1.50 ' in said[_RARE].ours
  for metrics in networks.values():
    del metrics['lira_accuracy']
  assert _said(_rows(networks))[_SHARP].verdict == verdicts.AGREES


def test_private_networks_of_other_accuracy_are_not_compared():
  networks = _on_line(3.6, [_pruned(8)])
  networks[Kind(method='dp_sgd', epsilon=8.0)] = _metrics(0.5, 99.0)
  networks[Kind(method='sgd')] = _metrics(0.7, 90.0)
  found = _said(_rows(networks))[_PRIVATE]
  assert found.verdict == verdicts.NOT_COMPARABLE
  networks[Kind(method='dp_sgd', epsilon=8.0)] = _metrics(0.8, 99.0)
  networks[Kind(method='sgd')] = _metrics(0.88, 60.0)
  found = _said(_rows(networks))[_PRIVATE]
  # Of 99 to 60 what 8 steps in accuracy from .8 leave at .86625.
  between = 60 + 39 * (0.88 - 0.99 * _ACCURACY) / 0.08
  gain = _DEFENCE * 1.036 - between
  assert found.ours.startswith(f'dp_sgd {gain:+.2f} ')


def _guarded(accuracy, metric='event_ceiling', level=0.6):
  metrics = _metrics(0.6, 200 * (1 - 0.55)) | {
      'ceiling': 0.9, metric: level, 'nonzero': 1.0, 'perceptron_oracle': 1.0}
  for name in lookup.ATTACKS:
    metrics[f'{name}_accuracy'] = 0.55
  metrics['rmia_accuracy'] = accuracy
  return metrics


def test_a_ceiling_that_is_exceeded_is_reported():
  """One of ten tests, beyond what 28000 records of three pairs scatter."""
  error = math.sqrt(0.6 * 0.4 / (14000 * 3))
  limit = stats.norm.isf(0.05 / 10) * error
  private = [Kind(method='dp_sgd', epsilon=1.0),
             Kind(method='lip_dp_sgd', epsilon=1.0)]
  networks = {DENSE: _metrics(_ACCURACY, _DEFENCE),
              private[0]: _guarded(0.6 + 1.01 * limit),
              private[1]: _guarded(0.6)}
  found = _said(_rows(networks))[_CEILING]
  assert found.verdict == verdicts.DIFFERS
  assert found.ours == '1 of 10 above'
  assert 'closest rmia on dp_sgd, epsilon = 1: ' in found.reason
  networks[private[0]] = _guarded(0.6 + 0.99 * limit)
  assert _said(_rows(networks))[_CEILING].verdict == verdicts.AGREES
  # Without what the event allows, (epsilon, delta) counts; the oracle never.
  networks[private[0]] = _guarded(0.8, 'ceiling', 0.75)
  tests = ceilings.tests(_only(_rows(networks)))
  assert [test.attack for test in tests if test.excess.p_value < 0.001
          ] == ['rmia']
  assert {test.excess.ceiling for test in tests} == {0.6, 0.75}


def test_printed_numbers_are_judged_on_cifar_alone():
  networks = _on_line(3.6, [_pruned(8), _pruned(16)])
  numbers = ('dense network: test accuracy',
             'dense network: accuracy of the perceptrons', _FACTOR, _SLOPE,
             _LITERAL)
  full, cpu = (_said(_rows(networks, name, noise=0.01), name)
               for name in ('full', 'cpu'))
  for topic in numbers:
    assert cpu[topic].verdict == verdicts.NOT_COMPARABLE
    assert cpu[topic].ours == full[topic].ours
  assert full[numbers[0]].verdict == full[numbers[1]].verdict == (
      verdicts.AGREES)
  assert cpu['perceptrons tell members of the dense network'].verdict == (
      verdicts.AGREES)
  networks[DENSE] = _metrics(0.85, 92.0)
  said = _said(_rows(networks, 'gpu'), 'gpu')
  assert [said[topic].verdict for topic in numbers[:2]] == [
      verdicts.DIFFERS] * 2
  assert '60 epochs for 300' in said[numbers[0]].reason
  assert said['perceptrons tell members of the dense network'].verdict == (
      verdicts.DIFFERS)


# Whatever is there.


def test_without_rows_nothing_is_said():
  found = verdicts.check(report.verdict([]))
  assert [v.claim for v in found] == [f'Figure 1.1 ({name})'
                                      for name in ('cpu', 'gpu', 'full')]
  assert {v.verdict for v in found} == {verdicts.NOT_RUN}
  assert report.table([])


_SOME = {
    'dense': {DENSE: _metrics(_ACCURACY, _DEFENCE)},
    'no_dense': {_pruned(8): _metrics(0.8, 90.0),
                 Kind(method='stopped', stop=0.1): _metrics(0.7, 95.0)},
    'private': {Kind(method='dp_sgd', epsilon=2.0): _guarded(0.55)},
    'same': _on_line(0.0, [_pruned(8), _pruned(12), _butterfly(1, 2)]) | {
        _pruned(8): _metrics(_ACCURACY, _DEFENCE)},
    'few_metrics': {DENSE: {'defence': 70.0},
                    _pruned(12): {'defence': 80.0}}}


@pytest.mark.parametrize('name', _SOME)
@pytest.mark.parametrize('roles, seeds', [(('shadow',), 1), (sweep.ROLES, 2)])
def test_parts_of_a_sweep_are_reported(name, roles, seeds):
  pytest.importorskip('matplotlib')
  rows = _rows(_SOME[name], roles=roles, num_seeds=seeds)
  found = verdicts.check(report.verdict(rows))
  assert len(found) == len(claims.verdict(rows)) > 3
  assert 'Profile full, cifar10' in report.table(rows)
  assert len(report.figure(rows).axes) == 4


def test_headlines_begin_claims():
  rows = _rows(_SOME['dense'])
  topics = [v.claim for v in report.verdict(rows)]
  for headline in sweep.HEADLINES:
    assert any(topic.startswith(headline) for topic in topics), headline


def test_the_table_has_a_line_for_each_kind_and_control():
  networks = _on_line(3.6, [_pruned(8), Kind(method='stopped', stop=0.25)])
  networks[Kind(method='dp_sgd', epsilon=2.0)] = _guarded(0.55)
  text = report.table(_rows(networks))
  lines = [[cell.strip() for cell in line.split('|')[1:-1]]
           for line in text.splitlines() if line.startswith('|')]
  named = {line[0]: line for line in reversed(lines)}
  assert named['dense'][1:9] == [
      '100.0', '272474', '100.0', '87.5 [87.5, 87.5]', '79.0 [79.0, 79.0]',
      '-', '-', '6']
  assert named['magnitude, k = 8'][6:8] == ['yes', '0']
  assert ['stopped', 'defence', '1', '3'] == named['stopped'][:4]
  attacks = next(line for line in lines if line[0] == 'dp_sgd, epsilon = 2'
                 and ',' in line[1])
  assert attacks[-3:] == ['100.0', '90.0', '60.0']
  assert attacks[5].startswith('55.0, ')


def test_figure_has_lines_of_both_slopes_and_floors_of_private_networks():
  pytest.importorskip('matplotlib')
  networks = _on_line(3.0, [_pruned(8), _butterfly(3, 3)])
  networks[Kind(method='dp_sgd', epsilon=2.0)] = _guarded(0.55)
  rows = (_rows(networks, 'cpu') + _rows(networks, 'full'))
  axes = report.figure(rows).axes
  assert len(axes) == 8 and all(ax.has_data() for ax in axes)
  assert axes[0].get_title() == 'full, cifar10: sparse networks'
  slopes = {line.get_label(): line.get_slope() for line in axes[0].lines
            if hasattr(line, 'get_slope')}
  ours = -3.0 * _DEFENCE / (100 * _ACCURACY)
  assert slopes == pytest.approx({
      'printed, slope -3.25': -3.25, f'ours, slope {ours:.2f}': ours})
  floors = {line.get_label(): list(line.get_ydata()) for line in axes[1].lines
            if 'least' in line.get_label()}
  assert floors['dp_sgd: least by epsilon'] == pytest.approx([20.0])
  assert floors['dp_sgd: least by the event'] == pytest.approx([80.0])
  curves = {line.get_label(): line for line in axes[2].lines}
  assert {*lookup.ATTACKS, 'guessing'} <= curves.keys()
  assert len(curves['rmia'].get_xdata()) == len(sweep.FPR_LEVELS)


def test_gains_are_points_and_positive_where_it_is_harder_to_attack():
  networks = _only(_rows(_on_line(3.6, [_pruned(8)])))
  gain = comparisons.over_dense(networks, 'defence', [_pruned(8)])
  assert gain.interval.value == pytest.approx(0.036 * _DEFENCE)
  attack = comparisons.over_dense(networks, 'perceptron_accuracy',
                                  [_pruned(8)])
  assert attack.interval.value == pytest.approx(0.018 * _DEFENCE)


def test_kept_rows_are_two_whole_profiles_and_give_these_verdicts(kept):
  """gpu and cpu; of full there are none."""
  lines, experiment = kept('mia_sparsity'), registry.load('mia_sparsity')
  asked = {selection.setting_id('mia_sparsity', setting)
           for setting in experiment.settings if setting.profile != 'full'}
  assert records.ids(lines) == asked
  found = verdicts.check(experiment.report.verdict(lines))
  assert ' '.join(v.verdict[0] for v in found) == (
      'd d a d n a d n d n n n n n n n n n '
      'a n d a d n n d d d n n n a n')
  assert all(ax.has_data() for ax in experiment.report.figure(lines).axes)
