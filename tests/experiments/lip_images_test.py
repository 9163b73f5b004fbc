"""These tests check EXP-F5.3.1: settings, rows, table, figure and verdicts."""

import dataclasses
import json
import math
import types

import pytest

from dpjax.runs import building
from dpjax.runs import configuration
from experiments import fold_choices
from experiments import papers
from experiments import records
from experiments import registry
from experiments import selection
from experiments import verdicts
from experiments.lip_images import choosing
from experiments.lip_images import claims
from experiments.lip_images import hyperparameters
from experiments.lip_images import report
from experiments.lip_images import run
from experiments.lip_images import sweep


@pytest.fixture(scope='module')
def rows(smoke_rows):
  # optax.adam is not strict.
  return smoke_rows('lip_images', promotion='standard')


def _tagged(tag):
  experiment = registry.load('lip_images')
  return selection.with_tag(experiment.settings, experiment.tags, tag)


def test_the_full_profile_is_that_of_the_figure():
  """The full profile has the networks, budgets and seeds of EXP-F5.3.1."""
  full = _tagged('full')
  assert {s.dataset for s in full} == {'mnist', 'fashion_mnist', 'cifar10'}
  assert {s.seed for s in full} == set(range(5))
  for setting in full:
    if setting.dataset != 'cifar10':
      assert setting.model == 'convnet'
    elif setting.method in ('dp_sgd', 'lip_dp_sgd', 'lip_norm'):
      wide = setting.epsilon > 4.2
      assert setting.model == ('wrn_40_4' if wide else 'wrn_16_4')
  assert all(run.config(s).delta == 1e-5 for s in full)
  ids = {selection.setting_id('lip_images', s) for s in sweep.SETTINGS}
  assert ('lip_images/profile=full,dataset=cifar10,model=wrn_40_4,'
          'method=lip_dp_sgd,epsilon=8,seed=4') in ids


def test_the_cpu_profile_is_small():
  cpu = _tagged('cpu')
  assert {s.profile for s in cpu} == {'cpu', 'features', 'count'}
  trained = [s for s in cpu if s.profile == 'cpu']
  assert len(trained) == 3 * (3 + 7 * 4 * 3)
  assert {s.method for s in trained} == {
      'sgd', 'dp_sgd', 'layer_clipped', 'tempered_sigmoid', *sweep.LIPSCHITZ}
  assert {s.model for s in trained} == {'small_convnet'}
  linear = [s for s in cpu if s.profile == 'features']
  assert len(linear) == 3 * (3 + 2 * 4 * 3)
  assert {s.method for s in linear} == {'sgd', 'dp_sgd', 'lip_dp_sgd'}
  assert {run.config(s).features for s in linear} == {'scattering'}


def test_hyperparameters_are_chosen_with_one_budget():
  settings = choosing.settings()
  assert len(settings) == 3 * 8
  assert len({(s.dataset, s.method) for s in settings}) == 3 * 8
  assert {s.epsilon for s in settings if s.method != 'sgd'} == {2.0, 4.0}
  for setting in settings:
    tried = choosing.cell(setting).candidates
    assert len(tried) == (3 if setting.method == 'sgd' else 9)
    # What was chosen by hand is one of them.
    by_hand = hyperparameters.fields(setting, chosen={})
    assert any(all(by_hand.get(name, 1.0) == value
                   for name, value in each.items()) for each in tried)
  setting = next(s for s in settings if s.method == 'dp_sgd')
  chosen = {setting.dataset: {setting.method: dict(
      fields=dict(learning_rate=0.06))}}
  assert run.config(setting, chosen=chosen).learning_rate == 0.06
  assert run.config(setting, chosen={}).learning_rate == 0.03


def test_committed_choices_are_the_best_candidates():
  if not hyperparameters.CHOSEN.exists():
    pytest.skip('nothing is chosen yet')
  chosen = json.loads(hyperparameters.CHOSEN.read_text())
  assert hyperparameters.CHOSEN.read_text() == fold_choices.render(chosen)
  for setting in choosing.settings():
    found = chosen[setting.dataset][setting.method]
    assert [each['fields'] for each in found['candidates']] == (
        choosing.cell(setting).candidates)
    best = max(found['candidates'], key=lambda each: each['score'])
    assert found['fields'] == best['fields']


@pytest.mark.slow
def test_every_setting_can_be_trained():
  """Models and methods can be made for every setting, without training."""
  seen = set()
  for setting in sweep.SETTINGS:
    key = dataclasses.replace(setting, seed=0, epsilon=0.0)
    if setting.profile == 'count' or key in seen:
      continue
    seen.add(key)
    config = configuration.resolve(run.config(setting), num_available=50_000)
    dataset = building.prepare(config, run.blank(setting.dataset))
    method = building.make_method(
        config, building.make_model(config, dataset), dataset)
    assert method.private == (setting.method != 'sgd')
  # Three methods of the figure have two networks.
  assert len(seen) == 3 * 8 + 3 * 7 + 3 + 3 * 3 + 1


def test_the_recipe_of_de_et_al():
  configs = [run.config(setting) for setting in _tagged('de_et_al')]
  assert [(c.epsilon, c.num_steps) for c in configs] == [(1, 875), (8, 2500)]
  wanted = dict(
      dataset='cifar10', model='wide_resnet', depth=16, width=4, num_groups=16,
      method='dp_sgd', delta=1e-5, batch_size=4096, views=16, clip_norm=1,
      optimizer='sgd', schedule='constant', learning_rate=2, average='ema',
      weights='standardised', residual='plain')
  for config in configs:
    assert wanted == {name: getattr(config, name) for name in wanted}


def test_runs_of_other_lengths_are_trained_and_saved_apart(tmp_path,
                                                           monkeypatch):
  seen = []

  def train(configs, *, checkpoints, **others):
    checkpoints.folder.mkdir()
    seen.append((len(configs), checkpoints.folder))
    return [types.SimpleNamespace(params={})] * len(configs)

  monkeypatch.setattr(run.registry, 'load', lambda *_, **__: None)
  monkeypatch.setattr(run.training, 'train', train)
  monkeypatch.setattr(run.rows, 'of_training', lambda *_: ['row'])
  monkeypatch.setattr(run.rows, 'trained', lambda *_: [])
  settings = _tagged('de_et_al')
  result = run.run(settings, None, None, state_dir=tmp_path)
  for number, (setting, _) in enumerate(result):
    assert setting == settings[number] and seen[number][1].exists()
  assert [count for count, _ in seen] == [1, 1]
  assert len({folder for _, folder in seen}) == 2
  # A finished run leaves no checkpoint.
  assert not list(tmp_path.iterdir())


def test_rows_tell_the_truth(rows):
  trained = [row for row in rows if row.method != 'count']
  probed = [row for row in trained
            if row.metric.startswith(('realised', 'signal'))]
  assert {row.method for row in probed} == {'lip_dp_sgd'}
  # They are measured on private records, so no finite epsilon covers them.
  assert all(math.isinf(row.epsilon) and 0 < row.value <= 1 + 1e-5
             for row in probed)
  private = [row for row in trained
             if row.method != 'sgd' and row not in probed]
  assert {row.metric for row in trained if row not in probed} == {
      'test_accuracy', 'noise_multiplier', 'num_parameters',
      'step_microseconds'}
  assert all(0.99 * row.epsilon_requested < row.epsilon
             <= row.epsilon_requested for row in private)
  assert all(row.delta == 1e-5 for row in private)
  assert all(math.isinf(row.epsilon) for row in trained
             if row.method == 'sgd')
  assert {row.n for row in trained} == {1437}


def test_parameters_of_the_printed_architectures(rows):
  """Printed networks have the printed sizes, except WRN-16-4 (EXP-T5.3, E28).

  Section 5.3.2 gives it the count of WRN-40-4.
  """
  said = {v.claim: v for v in verdicts.check(report.verdict(rows))}
  convnet = said['Table 5.3: ConvNet on MNIST, parameters']
  assert (convnet.ours, convnet.verdict) == ('1,625,866', verdicts.AGREES)
  wide = said['Table 5.3: Wide-ResNet on CIFAR-10, parameters']
  assert (wide.ours, wide.verdict) == ('8,944,266', verdicts.AGREES)
  narrow = said['section 5.3.2: Wide-ResNet-16-4, parameters']
  assert (narrow.ours, narrow.verdict) == ('2,747,530', verdicts.DIFFERS)
  counts = [row for row in rows if row.method == 'count']
  assert len(counts) == 4
  assert all(row.epsilon == 0 and row.n == 0 for row in counts)


def test_table_has_a_line_for_each_budget(rows):
  text = report.table(rows)
  lines = [line for line in text.splitlines() if line.startswith('| smoke')]
  assert len(lines) == 3
  assert 'Profile full' in text and 'it was not run.' in text


def _rows(profile, dataset, values):
  """Returns rows of three seeds from {(method, epsilon): accuracy}."""
  return [
      records.Row(
          experiment='lip_images',
          id=f'lip_images/profile={profile},dataset={dataset},model=x,'
             f'method={method},epsilon={epsilon},seed={seed}',
          seed=seed, metric=metric, value=value + 0.001 * (seed - 1),
          n=60_000, epsilon_requested=epsilon, epsilon=epsilon,
          epsilon_valid=True, delta=1e-5, adjacency='add_or_remove_one',
          accountant='pld', method=method, dataset=dataset, wall_s=1.0)
      for (method, epsilon), accuracy in values.items() for seed in range(3)
      for metric, value in (('test_accuracy', accuracy),
                            ('noise_multiplier', 1.0),
                            ('num_parameters', 10.0))]


def _said(rows):
  return {v.claim: v for v in verdicts.check(report.verdict(rows))}


def test_nothing_is_said_without_rows():
  said = _said([])
  code = [claim for claim in said if 'public code' in claim]
  assert len(code) == 3
  for claim, verdict in said.items():
    expected = (verdicts.NOT_COMPARABLE if claim in code
                else verdicts.NOT_RUN)
    assert verdict.verdict == expected, claim
  needs = said['mnist: Lip-DP-SGD surpasses all published results']
  assert 'needs a GPU' in needs.reason


def test_the_large_network_is_compared_with_its_printed_accuracy():
  said = _said(_rows('de_et_al', 'cifar10', {('dp_sgd', 1.0): 0.56,
                                             ('dp_sgd', 8.0): 0.78}))
  low, high = (said[f'cifar10: WRN-16-4 of De et al. (2022) at epsilon {each}']
               for each in (1, 8))
  assert (low.printed, low.ours, low.verdict) == (
      '0.568', '0.560', verdicts.AGREES)
  assert (high.printed, high.ours, high.verdict) == (
      '0.795', '0.780', verdicts.DIFFERS)


def test_the_public_code_is_shown_as_not_private():
  verdict = _said([])['cifar10: the public code at epsilon ~7.5']
  assert verdict.printed == '0.861 (not private)'
  assert verdict.verdict == verdicts.NOT_COMPARABLE


def test_small_networks_are_compared_with_dp_sgd():
  claim = 'mnist, small network: Lip-DP-SGD surpasses DP-SGD'
  values = {('layer_clipped', 1.0): .90, ('tempered_sigmoid', 1.0): .92,
            ('lip_dp_sgd', 1.0): .91, ('lip_norm', 1.0): .93,
            ('layer_clipped', 2.0): .93, ('lip_dp_sgd', 2.0): .94,
            ('sgd', math.inf): .97}
  verdict = _said(_rows('cpu', 'mnist', values))[claim]
  assert verdict.verdict == verdicts.DIFFERS
  assert '0.910 against 0.920 at epsilon 1' in verdict.ours
  assert '-0.010 to +0.010' in verdict.reason
  assert '0.930 (lip_norm)' in verdict.reason
  values['lip_dp_sgd', 1.0] = .95
  assert _said(_rows('cpu', 'mnist', values))[claim].verdict == verdicts.AGREES


def test_small_networks_are_not_compared_with_published_ones():
  said = _said(_rows('cpu', 'mnist', {('lip_dp_sgd', 4.0): .999}))
  verdict = said['mnist, small network beside published results']
  assert verdict.printed == '0.981 at 2.93 (Papernot et al. 2021)'
  assert verdict.verdict == verdicts.NOT_COMPARABLE
  assert said['mnist: Lip-DP-SGD surpasses all published results'
              ].verdict == verdicts.NOT_RUN


def test_published_points_are_met_at_no_larger_budgets():
  claim = 'cifar10: Lip-DP-SGD surpasses all published results'
  lines = _rows('full', 'cifar10', {('lip_norm', 2.0): .70,
                                    ('lip_dp_sgd', 8.0): .83})
  verdict = _said(lines)[claim]
  # At epsilon 6 our best accuracy is that at epsilon 2.
  assert verdict.verdict == verdicts.DIFFERS
  assert verdict.ours == '-0.088 against De et al. 2022 at epsilon 6'
  lines = _rows('full', 'cifar10', {('lip_norm', 2.0): .82})
  assert _said(lines)[claim].verdict == verdicts.AGREES


@pytest.mark.parametrize('last, expected', [(.30, verdicts.AGREES),
                                            (.49, verdicts.DIFFERS)])
def test_the_gap_to_propagated_norms(last, expected):
  lines = []
  for dataset, other in (('mnist', .93), ('fashion_mnist', .79),
                         ('cifar10', last)):
    ours = {'mnist': .94, 'fashion_mnist': .84, 'cifar10': .5}[dataset]
    lines += _rows('cpu', dataset, {('lip_dp_sgd', 4.0): ours,
                                    ('lip_propagated', 4.0): other})
  verdict = _said(lines)['the gap to Bethune et al. widens with the task']
  assert verdict.verdict == expected
  assert verdict.ours.startswith('+0.010, +0.050, ')


def test_figure_has_a_panel_for_each_data_set():
  pytest.importorskip('matplotlib')
  lines = _rows('cpu', 'mnist', {('lip_dp_sgd', 1.0): .91,
                                 ('layer_clipped', 1.0): .93,
                                 ('sgd', math.inf): .97})
  axes = report.figure(lines).axes
  assert [ax.get_title() for ax in axes] == [
      'mnist, ours: small network', 'fashion_mnist', 'cifar10']
  labels = axes[0].get_legend_handles_labels()[1]
  assert {'lip_dp_sgd', 'layer_clipped', 'sgd (not private)',
          'Papernot et al. 2021', 'public code (not private)'} <= set(labels)
  assert len(axes[0].containers) == 2


def test_published_points_are_those_of_their_sources():
  """Published points equal the numbers in their sources' abstracts."""
  points = {(curve.dataset, curve.work, epsilon): accuracy
            for curve in papers.PUBLISHED_CURVES
            for epsilon, accuracy in zip(curve.epsilons, curve.accuracies,
                                         strict=True)}
  assert points['cifar10', 'De et al. 2022', 8.0] == .814
  papernot = [points[name, 'Papernot et al. 2021', epsilon] for name, epsilon
              in (('mnist', 2.93), ('fashion_mnist', 2.7), ('cifar10', 7.53))]
  assert papernot == [.981, .861, .662]
  assert len(points) == 27 and all(.3 < v < 1 for v in points.values())
  assert set(claims.DATASETS) == {key[0] for key in points}
