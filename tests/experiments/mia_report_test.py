"""These tests check the report of mia_sparsity on invented rows."""

import pytest

from experiments import papers
from experiments import records
from experiments import registry
from experiments import selection
from experiments import verdicts
from experiments.mia_sparsity import claims
from experiments.mia_sparsity import lookup
from experiments.mia_sparsity import report
from experiments.mia_sparsity import sweep
from experiments.mia_sparsity.sweep import Kind
from tests.experiments.mia_rows import ACCURACY
from tests.experiments.mia_rows import butterfly
from tests.experiments.mia_rows import DEFENCE
from tests.experiments.mia_rows import DENSE
from tests.experiments.mia_rows import guarded
from tests.experiments.mia_rows import metrics_of
from tests.experiments.mia_rows import on_line
from tests.experiments.mia_rows import only
from tests.experiments.mia_rows import pruned
from tests.experiments.mia_rows import rows_of
from tests.experiments.mia_rows import share_of


def test_printed_slope_and_gain_hold_together_for_one_defence():
  """The printed slope and gain together imply one defence (M-E03).

  Lalanne (2023) prints both.
  """
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


def test_kinds_have_different_labels_and_are_in_order():
  kinds = list(sweep.PROFILES['full'].kinds())
  networks = only(rows_of({kind: {'defence': 1.0, 'nonzero': 0.1}
                           for kind in reversed(kinds)}, num_seeds=1))
  ordered = networks.kinds()
  assert len({lookup.label(kind) for kind in ordered}) == len(kinds)
  assert ordered[0] == DENSE
  assert [kind.prunings for kind in networks.kinds('magnitude')
          ] == list(range(1, 25))
  assert [kind.stop for kind in networks.kinds('stopped')
          ] == [0.45, 0.25, 0.1]


def test_claims_are_about_eight_prunings_and_more():
  kinds = [*map(pruned, (4, 7, 8, 16, 17, 24)), butterfly(1, 2),
           butterfly(2, 3)]
  networks = only(rows_of(on_line(3.6, kinds)))
  assert lookup.claimed(networks) == [
      *map(pruned, (8, 16, 17, 24)), butterfly(2, 3)]
  assert lookup.claimed(networks, window=True) == [
      pruned(8), pruned(16), butterfly(2, 3)]
  assert round(share_of(pruned(8)), 3) == papers.SPARSITY.window[1]
  assert round(share_of(pruned(16)), 3) == papers.SPARSITY.window[0]


def test_a_pair_of_networks_is_one_value():
  """A pair of networks counts once, as the mean of its two roles."""
  values = {'target': 70.0, 'shadow': 90.0}
  networks = only(rows_of({DENSE: lambda seed, role: {
      'defence': values[role] + seed}}))
  assert networks.pairs(DENSE, 'defence') == {0: 80.0, 1: 81.0, 2: 82.0}
  assert len(networks.each(DENSE, 'defence')) == 6
  assert networks.mean(DENSE, 'defence') == 81.0


def test_without_rows_nothing_is_said():
  all_verdicts = verdicts.check(report.verdict([]))
  assert [v.claim for v in all_verdicts] == [f'Figure 1.1 ({name})'
                                             for name in ('cpu', 'gpu', 'full')]
  assert {v.verdict for v in all_verdicts} == {verdicts.NOT_RUN}
  assert report.table([])


_SOME = {
    'dense': {DENSE: metrics_of(ACCURACY, DEFENCE)},
    'no_dense': {pruned(8): metrics_of(0.8, 90.0),
                 Kind(method='stopped', stop=0.1): metrics_of(0.7, 95.0)},
    'private': {Kind(method='dp_sgd', epsilon=2.0): guarded(0.55)},
    'same': on_line(0.0, [pruned(8), pruned(12), butterfly(1, 2)]) | {
        pruned(8): metrics_of(ACCURACY, DEFENCE)},
    'few_metrics': {DENSE: {'defence': 70.0},
                    pruned(12): {'defence': 80.0}}}


@pytest.mark.every(3)
@pytest.mark.parametrize('name', _SOME)
@pytest.mark.parametrize('roles, seeds', [(('shadow',), 1), (sweep.ROLES, 2)])
def test_parts_of_a_sweep_are_reported(name, roles, seeds):
  pytest.importorskip('matplotlib')
  rows = rows_of(_SOME[name], roles=roles, num_seeds=seeds)
  all_verdicts = verdicts.check(report.verdict(rows))
  assert len(all_verdicts) == len(claims.verdict(rows)) > 3
  assert 'Profile full, cifar10' in report.table(rows)
  assert len(report.figure(rows).axes) == 4


def test_headlines_begin_claims():
  rows = rows_of(_SOME['dense'])
  topics = [v.claim for v in report.verdict(rows)]
  for headline in sweep.HEADLINES:
    assert any(topic.startswith(headline) for topic in topics), headline


def test_the_table_has_a_line_for_each_kind_and_control():
  networks = on_line(3.6, [pruned(8), Kind(method='stopped', stop=0.25)])
  networks[Kind(method='dp_sgd', epsilon=2.0)] = guarded(0.55)
  text = report.table(rows_of(networks))
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
  networks = on_line(3.0, [pruned(8), butterfly(3, 3)])
  networks[Kind(method='dp_sgd', epsilon=2.0)] = guarded(0.55)
  rows = (rows_of(networks, 'cpu') + rows_of(networks, 'full'))
  axes = report.figure(rows).axes
  assert len(axes) == 8 and all(ax.has_data() for ax in axes)
  assert axes[0].get_title() == 'full, cifar10: sparse networks'
  slopes = {line.get_label(): line.get_slope() for line in axes[0].lines
            if hasattr(line, 'get_slope')}
  ours = -3.0 * DEFENCE / (100 * ACCURACY)
  assert slopes == pytest.approx({
      'printed, slope -3.25': -3.25, f'ours, slope {ours:.2f}': ours})
  floors = {line.get_label(): list(line.get_ydata()) for line in axes[1].lines
            if 'least' in line.get_label()}
  assert floors['dp_sgd: least by epsilon'] == pytest.approx([20.0])
  assert floors['dp_sgd: least by the event'] == pytest.approx([80.0])
  curves = {line.get_label(): line for line in axes[2].lines}
  assert {*lookup.ATTACKS, 'guessing'} <= curves.keys()
  assert len(curves['rmia'].get_xdata()) == len(sweep.FPR_LEVELS)


@pytest.mark.every(2)
def test_kept_rows_are_two_whole_profiles_and_give_these_verdicts(kept):
  """Committed rows cover the profiles gpu and cpu and give these verdicts."""
  lines, experiment = kept('mia_sparsity'), registry.load('mia_sparsity')
  expected = {selection.setting_id('mia_sparsity', setting)
              for setting in experiment.settings if setting.profile != 'full'}
  assert records.ids(lines) == expected
  all_verdicts = verdicts.check(experiment.report.verdict(lines))
  assert ' '.join(v.verdict[0] for v in all_verdicts) == (
      'd d a d n a d n d n n n n n n n n n '
      'a n d a d n n d d d n n n a n')
  assert all(ax.has_data() for ax in experiment.report.figure(lines).axes)


def test_kept_rows_have_sharper_attacks_than_perceptrons(kept):
  """Sharp attacks beat perceptrons on the committed rows (M-E11).

  Areas are larger, and twice as many members are found at 0.1 %.
  """
  profiles = lookup.collect(kept('mia_sparsity'))
  assert profiles
  for networks in profiles:
    means = {(name, metric): networks.mean(DENSE, f'{name}_{metric}')
             for name in ('perceptron', *lookup.SHARP)
             for metric in ('auc', 'tpr_at_0.001')}
    areas, rates = ([means[name, metric] for name in lookup.SHARP]
                    for metric in ('auc', 'tpr_at_0.001'))
    assert max(areas) > means['perceptron', 'auc'] + 0.02
    assert max(rates) > 2 * means['perceptron', 'tpr_at_0.001']
