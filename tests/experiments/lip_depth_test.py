"""These tests check EXP-SWEEP: scaling laws, rows, diagnostics and verdicts."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.data import registry as data_registry
from dpjax.grads import per_example
from dpjax.grads import privatizer
from dpjax.privacy import blocks
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import training
from experiments import fold_choices
from experiments import records
from experiments import registry
from experiments import selection
from experiments import verdicts
from experiments.lip_depth import choosing
from experiments.lip_depth import laws
from experiments.lip_depth import lookup
from experiments.lip_depth import report
from experiments.lip_depth import run
from experiments.lip_depth import sweep
from experiments.methods.training import diagnostics

# A normal value is beyond 5.7 standard errors with probability 1e-8.
_Z_SCORE = 5.7


@pytest.fixture(scope='module')
def rows(smoke_rows):
  return smoke_rows('lip_depth')


@functools.cache
def _measured(depth, rule):
  return laws.measure_noise(
      jax.random.key(7), laws.chain(depth, weight_norm=1.5), rule=rule,
      noise_multiplier=1.3, batch_size=100.0)


@pytest.mark.slow
def test_noise_of_the_averaged_update_is_z_delta_over_s():
  """The averaged update has noise z Delta / s, the first scaling law."""
  network = laws.chain(0, weight_norm=1.5)
  delta, = jax.tree.leaves(network.sensitivities)
  for rule in blocks.ALLOCATIONS:
    stddev, = laws.expected_stddevs([delta], network.sizes, rule=rule,
                                    noise_multiplier=1.3, batch_size=100.0)
    assert stddev == pytest.approx(1.3 * delta / 100, rel=1e-12)
    assert _measured(0, rule).largest_z_score < _Z_SCORE
    for depth in (1, 3):
      assert _measured(depth, rule).largest_z_score < _Z_SCORE


def test_equal_multipliers_are_one_release_of_the_joint_multiplier():
  """Every allocation rule has the joint multiplier z.

  If each sigma is a multiple of Delta_k, its multiplier is sqrt(K) z.
  """
  network = laws.chain(4, weight_norm=1.5)
  deltas = np.asarray(jax.tree.leaves(network.sensitivities))
  for rule in blocks.ALLOCATIONS:
    stddevs = laws.expected_stddevs(deltas, network.sizes, rule=rule,
                                    noise_multiplier=1.3, batch_size=1.0)
    assert np.sum((deltas / stddevs)**2)**-0.5 == pytest.approx(1.3, rel=1e-12)


@pytest.mark.every(3)
@pytest.mark.parametrize('fault', ['batch_size', 'noise_multiplier'])
def test_fault_noise_of_another_size_is_measured(fault, monkeypatch):
  """A noise that is 2 % too large or divided twice is measured as wrong."""
  honest = privatizer.gaussian_privatizer

  def wrong(key, *, noise_multiplier, expected_batch_size, **kwargs):
    if fault == 'batch_size':
      expected_batch_size *= expected_batch_size
    else:
      noise_multiplier *= 1.02
    return honest(key, noise_multiplier=noise_multiplier,
                  expected_batch_size=expected_batch_size, **kwargs)

  monkeypatch.setattr(privatizer, 'gaussian_privatizer', wrong)
  noise = laws.measure_noise(
      jax.random.key(7), laws.chain(1, weight_norm=1.5), rule='optimal',
      noise_multiplier=1.3, batch_size=100.0)
  assert noise.largest_z_score > _Z_SCORE


@pytest.mark.every(3)
@pytest.mark.parametrize('depth', [0, 1, 3])
def test_equal_multipliers_cost_k_fold_energy(depth):
  """Equal multipliers cost K times the noise energy, the third scaling law."""
  network = laws.chain(depth, weight_norm=1.5)
  assert laws.noise_energy(network, 'equal') == pytest.approx(
      (depth + 1) * laws.single_energy(network), rel=1e-5)
  assert _measured(depth, 'equal').energy_ratio == pytest.approx(depth + 1,
                                                                 rel=0.03)
  for rule in blocks.ALLOCATIONS:
    assert laws.noise_energy(network, 'optimal') <= laws.noise_energy(
        network, rule) * (1 + 1e-5)


@pytest.mark.parametrize('weight_norm', [0.5, 1.0, 3.0])
def test_the_first_bound_of_a_chain_grows_as_a_power(weight_norm):
  """The first bound of a chain grows as C^(K - 1) (LIP-03)."""
  factor = laws.LOSS_LIPSCHITZ * math.sqrt(2.5**2 + 1)
  for depth in (0, 1, 2, 4, 16):
    bounds = laws.chain(depth, weight_norm=weight_norm)
    assert len(bounds.sizes) == depth + 1
    assert bounds.first == pytest.approx(weight_norm**depth * factor)
  assert bounds.last == pytest.approx(laws.LOSS_LIPSCHITZ * math.sqrt(10))


@pytest.mark.slow
def test_plain_sums_double_and_averages_keep():
  """Plain residual sums double per block, 2^18
  in WRN-40-4; averages do not (E12)."""
  first = {
      (depth, averaged): laws.residual(depth, averaged=averaged,
                                       weight_norm=1.0)
      for depth in (10, 16, 40) for averaged in (False, True)}
  for (depth, averaged), bounds in first.items():
    num_blocks = (depth - 4) // 2
    assert bounds.num_blocks == num_blocks
    growth = bounds.first / first[10, averaged].first
    assert growth == pytest.approx(1 if averaged else 2.0**(num_blocks - 3))
  assert first[40, False].first / first[40, True].first == pytest.approx(
      262_144)
  assert len(first[40, True].sizes) == 41


@pytest.mark.slow
def test_the_multiplier_is_a_function_of_epsilon_alone():
  """The multiplier depends on epsilon alone, not on the method or the depth.

  Sampling probability and steps are fixed.
  """
  configs_at = {}
  for setting in sweep.SETTINGS:
    if setting.kind != 'train' or setting.dataset != 'adult' or (
        setting.epsilon not in (1.0, 4.0)):
      continue
    config = run.config(setting)
    place = setting.num_examples, setting.epsilon
    configs_at.setdefault(place, set()).add(dataclasses.replace(
        config, seed=0, noise_seed=0, **{name: None for name in (
            'depth', 'weight_norm', 'learning_rate', 'temperature')},
        method='dp_sgd'))
  # Nothing else differs between methods, so the plans are the same.
  assert {len(configs) for configs in configs_at.values()} == {1}
  multipliers = set()
  for method, depth in (('dp_sgd', 1), ('lip_dp_sgd', 16), ('dp_sgd', 4)):
    config = configuration.resolve(run.config(sweep.Setting(
        kind='train', dataset='adult', method=method, epsilon=4.0,
        depth=depth)), num_available=39_074)
    multipliers.add(training.make_plan(config).noise_multiplier)
  assert len(multipliers) == 1


def test_the_sweep_is_what_was_asked_for():
  experiment = registry.load('lip_depth')
  adult = [s for s in experiment.settings if s.dataset == 'adult']
  assert {s.num_examples for s in adult} == {1000, 3000, 10_000, 30_000, None}
  assert {s.method for s in adult} == {'sgd', *sweep.METHODS}
  for method in sweep.PLANE:
    plane = {(s.epsilon, s.depth) for s in adult if s.method == method and
             s.num_examples is None and s.weight_norm == sweep.WEIGHT_NORM}
    assert len(plane) == 25
  assert {s.depth for s in experiment.settings if s.method == 'plain'} == {
      10, 16, 22, 28, 40}
  laws_only = selection.with_tag(experiment.settings, experiment.tags, 'laws')
  assert not any(s.seed for s in laws_only)


def test_rows_tell_the_truth(rows):
  values = lookup.collect(rows)
  trained = lookup.trained(values)
  assert len(rows) == len({(row.id, row.metric) for row in rows})
  assert all(row.epsilon <= row.epsilon_requested for row in rows
             if row.metric in ('test_accuracy', 'sensitivity_first'))
  # Exact statistics of private records have an infinite privacy cost.
  assert all(math.isinf(row.epsilon) for row in rows
             if row.metric.startswith(('realised', 'signal')))
  assert all(math.isinf(row.epsilon) for row in rows if row.method == 'sgd')
  for key, metrics in trained.items():
    assert len(metrics['test_accuracy']) == 2
    if key.method == 'lip_dp_sgd':
      assert set(metrics['num_layers'].values()) == {key.depth + 1}
      for seed, bound in metrics['sensitivity_first'].items():
        # The bound is at most that of weights of norm C; orthogonal layers
        # without biases take records of norm 1 and pass on cotangents of 12.
        limit = 0.35 * key.weight_norm**key.depth * math.sqrt(2.5**2 + 1) if (
            key.kind == 'smoke') else 12.0 * (1 + 1e-4 * (key.depth + 1))
        assert 0 < bound <= limit * (1 + 1e-5)
        assert 0 < metrics['realised_first'][seed] <= 1 + 1e-5
        assert 0 < metrics['signal_first'][seed] < 1
    if key.method == 'dp_sgd':
      assert set(metrics['num_layers'].values()) == {1}
  assert {row.n for row in rows if row.dataset != 'none'} == {455}


def test_orthogonal_networks_are_chosen_with_one_budget():
  cells = {cell.method: cell for cell in choosing.cells()}
  assert cells.keys() == {'sgd', *sweep.ON_ORTHOGONAL}
  for method, cell in cells.items():
    assert len(cell.candidates) == (4 if method == 'sgd' else 12)
    # The recipe is one of them, and the split is no split of the sweep.
    assert any(all(getattr(cell.config, name) == value
                   for name, value in each.items())
               for each in cell.candidates)
    assert cell.config.split_seed not in {s.seed for s in sweep.SETTINGS}
  setting = next(s for s in sweep.SETTINGS if s.kind == 'orthogonal' and
                 s.method == 'dp_sgd')
  chosen = {'adult': {'dp_sgd': {'fields': {'clip_norm': 77.0}}}}
  assert run.config(setting, chosen=chosen).clip_norm == 77.0
  assert run.config(setting, chosen={}).clip_norm == 6.0
  if run.CHOSEN.exists():
    choices = fold_choices.read(run.CHOSEN)
    assert run.CHOSEN.read_text() == fold_choices.render(choices)
    for method, cell in cells.items():
      stored = choices['adult'][method]
      assert [each['fields'] for each in stored['candidates']] == [
          *cell.candidates]
      assert stored['fields'] == max(
          stored['candidates'], key=lambda each: each['score'])['fields']


@pytest.mark.slow
def test_realised_norms_are_those_of_gradients_of_every_record():
  """Realised norms are the largest plain gradients over their bounds.

  The test takes gradients of the probed records by `vmap`.
  """
  dataset = data_registry.load('breast_cancer')
  setting = sweep.Setting(kind='smoke', dataset='breast_cancer',
                          method='lip_dp_sgd', epsilon=2.0, depth=1)
  result, = training.train([run.config(setting)], dataset=dataset)
  diagnosis, = diagnostics.diagnose([result], dataset, probe_size=9)
  model = building.make_model(result.config, dataset)
  loss = building.make_loss(result.config, dataset)
  rows = training.split_rows(result.config, dataset).train
  whole = jax.tree.map(lambda leaf: leaf[rows], dataset.records)
  start, certificate = building.make_method(
      result.config, model, dataset).constraint.constrain(
          model.init(jax.random.split(jax.random.key(0), 1)[0]))
  means = jax.grad(lambda params: jnp.mean(loss.values(
      model.apply(params, whole.x), whole.y)))(start)
  bounds = model.network.gradient_bounds(
      certificate, loss_lipschitz=loss.lipschitz)
  assert diagnosis.signal == pytest.approx(np.array([
      math.hypot(*(float(jnp.linalg.norm(leaf))
                   for leaf in jax.tree.leaves(means[name])))
      / float(bounds[name]) for name in sorted(means)]), rel=1e-4)
  part = jax.tree.map(lambda leaf: leaf[:9], whole)
  _, grads = per_example.per_example_gradients(
      model.apply, loss.values, result.params, part)
  for index, name in enumerate(sorted(grads)):
    lengths = np.sqrt(sum(
        np.square(np.float64(leaf)).reshape(9, -1).sum(1)
        for leaf in jax.tree.leaves(grads[name])))
    assert diagnosis.realised[index] == pytest.approx(
        lengths.max() / diagnosis.sensitivities[index], rel=1e-4)
  stddevs = blocks.allocate(
      jnp.asarray(diagnosis.sensitivities), rule='optimal',
      noise_multiplier=result.plan.noise_multiplier,
      sizes=[sum(leaf.size for leaf in jax.tree.leaves(grads[name])) // 9
             for name in sorted(grads)])
  sizes = [sum(leaf.size for leaf in jax.tree.leaves(grads[name])) // 9
           for name in sorted(grads)]
  assert diagnosis.noise_norm == pytest.approx(
      float(np.sqrt(np.sum(np.square(stddevs) * np.asarray(sizes)))) /
      result.plan.sampler.expected_batch_size, rel=1e-4)


def test_tables_show_every_field(rows):
  text = report.table(rows)
  for part in ('by epsilon', 'by hidden layers', '| lip_dp_sgd, C = 1 |',
               '| averaged |', 'realised largest', '| optimal |'):
    assert part in text
  assert 'by training records' not in text


def test_figure_has_three_panels(rows):
  pytest.importorskip('matplotlib')
  drawn = report.figure(rows)
  assert [ax.get_xlabel() for ax in drawn.axes] == [
      'epsilon', 'training records', 'hidden layers']
  assert len(drawn.axes[2].containers) == 3 + 1 + 2


def test_laws_agree_and_depth_is_compared(rows):
  all_verdicts = verdicts.check(report.verdict(rows))
  assert [each.verdict for each in all_verdicts[:10]] == [verdicts.AGREES] * 10
  last = {each.claim: each for each in all_verdicts[10:]}
  assert len(last) == len(sweep.METHODS) + 1 + 3
  assert last['breast_cancer, lip_propagated: accuracy falls with '
              'depth'].verdict == verdicts.NOT_RUN


def _made_up(method, accuracies, metric='test_accuracy', **fields):
  """Returns rows of three seeds for 1 and 16 hidden layers."""
  lines = []
  for depth, accuracy in zip((1, 16), accuracies, strict=True):
    for seed in range(3):
      setting = sweep.Setting(**{'kind': 'train'} | fields, dataset='adult',
                              method=method, epsilon=1.0, depth=depth,
                              seed=seed)
      lines += selection.named('lip_depth', setting, [records.Row(
          seed=seed, metric=metric, value=accuracy + 0.01 * seed, n=1,
          epsilon_requested=1.0, epsilon=1.0, epsilon_valid=True, delta=1e-5,
          adjacency='add_or_remove_one', accountant='pld', method=method,
          dataset='adult')])
  return lines


@pytest.mark.parametrize('method, accuracies, outcome', [
    ('dp_sgd', (0.85, 0.849), verdicts.AGREES),
    ('dp_sgd', (0.85, 0.76), verdicts.DIFFERS),
    ('lip_dp_sgd', (0.85, 0.76), verdicts.AGREES),
    ('lip_dp_sgd', (0.85, 0.845), verdicts.DIFFERS)])
def test_falling_with_depth(method, accuracies, outcome):
  by_claim = {each.claim: each for each in report.verdict(
      _made_up(method, accuracies))}
  expected = 'falls' if 'lip' in method else 'does not fall'
  claim = f'adult, {method}: accuracy {expected} with depth'
  assert by_claim[claim].verdict == outcome


def test_deeper_than_propagated_bounds():
  claim = 'adult: Lip-DP-SGD supports deeper models'
  for theirs, outcome in ((0.6, verdicts.AGREES), (0.85, verdicts.DIFFERS)):
    all_verdicts = report.verdict(_made_up('lip_dp_sgd', (0.85, 0.85)) +
                                  _made_up('lip_propagated', (0.85, theirs)))
    assert [each.verdict for each in all_verdicts
            if each.claim.startswith(claim)] == [outcome]


@pytest.mark.parametrize('deep, kept, above', [
    (0.845, verdicts.AGREES, verdicts.AGREES),
    (0.841, verdicts.AGREES, verdicts.DIFFERS),
    (0.8, verdicts.DIFFERS, verdicts.DIFFERS)])
def test_orthogonal_layers_have_claims_of_their_own(deep, kept, above):
  fields = dict(kind='orthogonal', weight_norm=1.0)
  by_claim = {each.claim: each for each in report.verdict(
      _made_up('lip_dp_sgd', (0.85, deep), **fields)
      + _made_up('dp_sgd', (0.85, 0.843), **fields)
      + _made_up('dp_sgd', (0.85, 0.99)))}
  assert by_claim['adult, lip_dp_sgd with orthogonal layers: at most 0.01 '
                  'below one hidden layer at 16'].verdict == kept
  claim = ('adult, {} orthogonal layers: Lip-DP-SGD is at least as accurate as '
           'DP-SGD')
  assert by_claim[claim.format(16)].verdict == above
  assert by_claim[claim.format(8)].verdict == verdicts.NOT_RUN
  assert by_claim['adult, lip_dp_sgd: accuracy falls with depth'
                  ].verdict == verdicts.NOT_RUN


def test_scaling_laws_that_do_not_hold_are_reported():
  broken = _made_up('dp_sgd', (1.0, 1.5), 'realised_largest')
  by_claim = {each.claim: each for each in report.verdict(broken)}
  verdict = by_claim['norm of a contribution over its bound']
  assert verdict.verdict == verdicts.DIFFERS
  assert 'adult, dp_sgd' in verdict.reason
  noise = _made_up('dp_sgd', (1.0, 1.5), 'noise_multiplier')
  by_claim = {each.claim: each for each in report.verdict(noise)}
  verdict = by_claim['noise multiplier at fixed sampling probability and steps']
  assert verdict.verdict == verdicts.DIFFERS


def test_every_claim_is_there_without_rows():
  assert all(each.verdict == verdicts.NOT_RUN
             for each in verdicts.check(report.verdict([])))
