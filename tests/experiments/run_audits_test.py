"""These tests audit finished runs: power, level and planted faults."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import special
from scipy import stats

from dpjax.audit import auditor
from dpjax.audit import curves
from dpjax.audit import one_run
from dpjax.audit.suite import reports
from dpjax.audit.suite import run_folders
from dpjax.audit.suite import runs
from dpjax.grads import privatizer
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import environment
from dpjax.runs import run_keys
from dpjax.runs import summary as summaries
from dpjax.runs import training
from dpjax.train import step
from dpjax.typing import Batch

_HERE = environment.Environment('cpu', '1', 'c0', {'jax': '1'})
# The networks see few records and are wide enough to memorise canaries.
_EAGER = dict(optimizer='adam', schedule='constant', num_examples=20, width=64)


def _left(folder, **fields):
  """Returns the folder of a run as the launcher leaves it."""
  with jax.numpy_dtype_promotion('standard'):  # optax.adam is not strict
    result, = training.train([configuration.TrainingConfig(
        **{'noise_seed': 0, **fields})])
  summaries.write(folder, summaries.summarize(result, _HERE), result)
  return folder


@pytest.fixture(name='honest', scope='module')
def _honest(tmp_path_factory):
  return _left(tmp_path_factory.mktemp('honest'), dataset='breast_cancer',
               method='dp_sgd', num_canaries=200, canary_kind='noise',
               num_steps=40, learning_rate=0.1, **_EAGER)


def _restated(folder, target, **changes):
  """Returns a copy of the run with changes in its summary."""
  for path in folder.glob('*.*'):
    (target / path.name).write_bytes(path.read_bytes())
  summary = json.loads((folder / summaries.NAME).read_text()) | changes
  (target / summaries.NAME).write_text(json.dumps(summary))
  return target


def _audit(folder, **options):
  return runs.audit(run_folders.load(folder), name='run', **options)


@pytest.mark.slow
def test_an_overfit_run_shows_all_that_its_canaries_can(tmp_path):
  """An overfit run shows a large epsilon but is not refuted.

  It claims no privacy.
  """
  folder = _left(
      _empty(tmp_path, 'run'), dataset='digits', method='sgd', num_canaries=200,
      canary_kind='mislabelled', num_examples=100, channels=(8,), stride=2,
      pool='none', width=64, num_steps=200, optimizer='adam',
      learning_rate=0.005, batch_size=100.0, schedule='constant')
  report = _audit(folder)
  assert report.verdict == auditor.CONSISTENT
  assert report.claim.epsilon == math.inf
  # A hundred correct guesses show 2.87; all of the 200 are not correct.
  assert 2.8 < report.epsilon_lower < report.cap < 3.6
  assert report.details['bounds']['log_odds']['num_correct'] > 90
  # This summary claims more privacy than it may.
  understated = _restated(folder, _empty(tmp_path, 'told'), epsilon=0.1)
  refuted = _audit(understated)
  assert refuted.verdict == auditor.VIOLATED and not refuted.scores


def _empty(tmp_path, name):
  folder = tmp_path / name
  folder.mkdir()
  return folder


@pytest.mark.every(11)
def test_a_run_that_keeps_its_claim_is_not_refuted(honest):
  report = _audit(honest)
  assert report.verdict == auditor.CONSISTENT and not report.failed
  assert 1 < report.claim.epsilon < report.cap and report.epsilon_lower < 1
  assert report.claim.delta == pytest.approx(0.05e-3 / 200)
  assert report.claim.num_examples == 220
  assert [check.name for check in report.checks] == [
      'claim', 'one run, log_odds', 'one run, calibrated',
      'whole curve, log_odds', 'whole curve, calibrated']
  # Two scores share the significance. Both tests of a score judge one count.
  assert {check.level for check in report.checks[1:]} == {0.05 / 2}
  assert _audit(honest, significance=0.01).checks[1].level == 0.01 / 2


@pytest.mark.every(2)
def test_a_planted_fault_is_refuted(tmp_path, monkeypatch):
  """A run with a fiftieth of its noise is refuted."""
  honest = privatizer.draw_ahead
  monkeypatch.setattr(privatizer, 'draw_ahead', lambda *args, **options: (
      jax.tree.map(lambda leaf: leaf / 50, honest(*args, **options))))
  folder = _left(tmp_path, dataset='breast_cancer', method='dp_sgd',
                 num_canaries=200, canary_kind='noise', num_steps=200,
                 learning_rate=0.1, clip_norm=1.0, epsilon=0.25, **_EAGER)
  report = _audit(folder)
  assert report.verdict == auditor.VIOLATED
  assert {check.name.split(',')[0] for check in report.failed} >= {
      'whole curve'}


@pytest.mark.slow
def test_scores_are_what_they_say(honest):
  run = run_folders.load(honest)
  records = run.canaries.records
  scores = runs.score(run)
  logits = run.model.apply(run.params, records.x)
  others = np.array(logits)
  others[np.arange(200), records.y] = -np.inf
  np.testing.assert_allclose(
      scores['log_odds'], np.asarray(logits)[np.arange(200), records.y]
      - special.logsumexp(others, axis=1), rtol=1e-4, atol=1e-5)
  before, after = (np.asarray(
      optax.softmax_cross_entropy_with_integer_labels(
          run.model.apply(params, records.x), records.y))
                   for params in (run.initial, run.params))
  np.testing.assert_allclose(scores['calibrated'], before - after, atol=1e-5)
  assert np.std(before) > 0.01
  # The log-odds are high for likely labels: three classes by hand.
  apply = lambda params, x: x * params
  got = runs.log_odds(apply, jnp.float32(1), Batch(
      jnp.log(jnp.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])),
      jnp.array([0, 2])))
  np.testing.assert_allclose(got, [0, math.log(0.25)], atol=1e-6)


@pytest.mark.every(2)
def test_parameters_before_the_first_step_come_from_the_seed(honest):
  run = run_folders.load(honest)
  method = building.make_method(run.config, run.model, building.prepare(
      run.config, building.load(run.config)))
  state = step.init_state(
      run_keys.run_key(run.config), model=run.model, method=method,
      transform_of=lambda key: optax.sgd(1.0))
  assert jax.tree.structure(run.params) == jax.tree.structure(run.initial)
  for leaf, first, trained in zip(*map(jax.tree.leaves, (
      run.initial, state.params, run.params)), strict=True):
    np.testing.assert_array_equal(leaf, first)
    assert not np.array_equal(leaf, trained)


@pytest.mark.slow
def test_a_release_is_audited_by_what_it_wrote(tmp_path):
  """A release is audited by its written canaries.

  The key of its coins is gone.
  """
  folder = _left(tmp_path, dataset='breast_cancer', method='dp_sgd',
                 num_canaries=200, canary_kind='noise', num_steps=5,
                 noise_seed=None, seed=3, **_EAGER)
  run = run_folders.load(folder)
  with np.load(folder / summaries.CANARIES) as kept:
    np.testing.assert_array_equal(kept['included'], run.canaries.included)
    np.testing.assert_array_equal(kept['x'], run.canaries.records.x)
  assert (folder / summaries.CANARIES).stat().st_mode & 0o077 == 0
  # The verdict is violated by chance with probability 1e-7 at most.
  assert _audit(folder, significance=1e-7).verdict != auditor.VIOLATED
  with np.load(folder / summaries.CANARIES) as kept:
    fewer = {name: kept[name][:-1] for name in kept}
  np.savez(folder / summaries.CANARIES, **fewer)
  with pytest.raises(ValueError, match='canaries.npz does not match'):
    run_folders.load(folder)


def test_other_coins_are_guessed_no_better_than_chance(honest):
  """Coins that no run has seen are guessed half of the time.

  The whole curve is not refuted on them.
  """
  run = run_folders.load(honest)
  scores = runs.score(run)['log_odds']
  rng = np.random.default_rng(0)
  coins = rng.random((400, 200)) < 0.5
  right = np.array([one_run.count_guesses(scores, each, 100)
                    for each in coins])
  assert abs(right.mean() - 50) < 4 * 5 / 20
  curve = curves.of_event(run.plan.event, adjacency=run.plan.adjacency)
  assert not any(runs.refutes_curve(curve, scores, each, significance=0.05)[0]
                 for each in coins[:40])


@pytest.mark.every(2)
def test_the_whole_curve_keeps_its_level_at_the_truth():
  """The whole curve keeps its level at the true shift, in 200 runs.

  More than 20 rejections at 5 % have probability below 2e-3.
  """
  assert stats.binom.sf(20, 200, 0.05) < 2e-3
  curve = curves.of_event(accounting.gaussian_event(noise_multiplier=1.0),
                          adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  rng = np.random.default_rng(1)
  coins = rng.random((200, 200)) < 0.5
  scores = coins + rng.standard_normal((200, 200))
  assert sum(runs.refutes_curve(curve, *each, significance=0.05)[0]
             for each in zip(scores, coins, strict=True)) <= 20
  # The test rejects scores that are four times as far apart.
  assert all(runs.refutes_curve(curve, score + 3 * coin, coin,
                                significance=0.05)[0]
             for score, coin in zip(scores[:20], coins[:20], strict=True))


def test_least_alarms_are_those_of_the_trade_off():
  curve = curves.of_event(accounting.gaussian_event(noise_multiplier=1.0),
                          adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  powers = np.array([0.01, 0.1, 0.5, 0.8, 0.99])
  alarms = np.array([curves.least_alarm(curve, power) for power in powers])
  true = special.ndtr(special.ndtri(powers) - 1)
  assert (alarms <= true + 1e-6).all()
  np.testing.assert_allclose(alarms, true, rtol=0.02)
  assert curves.least_alarm(curves.NOTHING, 0.9) == 0
  # Both lines of one point of the curve are those of randomised response.
  point = curves.PrivacyCurve(np.array([1.0]), np.array([0.1]))
  assert curves.least_alarm(point, 0.5) == pytest.approx(0.4 / math.e)
  assert curves.least_alarm(point, 0.95) == pytest.approx(0.9 - math.e * 0.05)


def test_caps_are_what_perfect_guesses_show():
  included = np.random.default_rng(2).permutation(300) < 150
  for delta in (0.0, 1e-6, 3e-4):
    kwargs = dict(delta=delta, significance=0.02)
    bound = one_run.grid_bound(1.0 * included, included, **kwargs)
    cap = one_run.grid_largest_bound(num_canaries=300, **kwargs)
    assert bound.epsilon_lower == cap
    assert bound.num_guesses == bound.num_correct
  # By the published p-value 300 correct guesses show 1.7 and 3.3.
  caps = [one_run.grid_largest_bound(num_canaries=300, delta=delta)
          for delta in (3e-4, 1e-6)]
  assert 4.1 < caps[0] < caps[1] < caps[0] + 0.02


@pytest.mark.every(3)
@pytest.mark.parametrize('changes, verdict', [
    (dict(epsilon=0.99), auditor.VIOLATED),
    (dict(joint_noise_multiplier=1.0), auditor.VIOLATED)])
def test_a_claim_below_its_event_is_refuted_unseen(honest, changes, verdict,
                                                   tmp_path):
  report = _audit(_restated(honest, tmp_path, **changes))
  assert report.verdict == verdict and not report.scores
  assert [check.name for check in report.failed] == ['claim']
  assert report.claim.epsilon <= 1


@pytest.mark.every(3)
@pytest.mark.parametrize('changes, message', [
    (dict(epsilon=1.1), 'epsilon = 1.1, but the event costs 0.99'),
    (dict(epsilon=None), 'epsilon = inf, but the event costs 0.99'),
    (dict(sampling_prob=0.5), 'sampling_prob = 0.5, by the configuration 1'),
    (dict(num_steps=41), 'num_steps = 41, by the configuration 40'),
    (dict(delta=1e-6), 'delta = 1e-06, by the configuration 0.00')])
def test_a_summary_of_another_run_is_refused(honest, changes, message,
                                             tmp_path):
  with pytest.raises(ValueError, match=message):
    _audit(_restated(honest, tmp_path, **changes))


def _without(folder):
  summary = json.loads((folder / summaries.NAME).read_text())
  return dict(config=summary['config'] | dict(
      num_canaries=0, canary_kind='mislabelled'))


def test_runs_without_canaries_name_the_flag(honest, tmp_path):
  _restated(honest, tmp_path, **_without(honest))
  with pytest.raises(ValueError, match='no canaries .* train with --num_can'):
    run_folders.load(tmp_path)
  _restated(honest, _empty(tmp_path, 'below'))
  assert run_folders.find(tmp_path) == [tmp_path, tmp_path / 'below']
  with pytest.raises(FileNotFoundError, match='no summary.json in or below'):
    run_folders.find(_empty(tmp_path, 'nothing'))


@pytest.mark.every(2)
def test_what_was_written_must_be_of_one_run(honest, tmp_path):
  summary = json.loads((honest / summaries.NAME).read_text())
  other = {**summary['config'], 'canary_seed': 5}
  _restated(honest, tmp_path, config=other)
  with pytest.raises(ValueError, match='canaries.npz does not match'):
    run_folders.load(tmp_path)
  _restated(honest, tmp_path, config={**summary['config'], 'width': 8})
  with pytest.raises(ValueError, match='params.npz belongs to another model'):
    run_folders.load(tmp_path)
  _restated(honest, tmp_path, config={**summary['config'], 'colour': 8})
  with pytest.raises(ValueError, match='by another version'):
    run_folders.load(tmp_path)


@pytest.mark.every(2)
def test_what_cannot_be_reached_is_underpowered(honest):
  """A run with only ten canaries is underpowered."""
  run = run_folders.load(honest)
  few = dataclasses.replace(
      run, config=dataclasses.replace(run.config, num_canaries=10,
                                      num_examples=210),
      canaries=jax.tree.map(lambda leaf: leaf[:10], run.canaries))
  report = runs.audit(few, name='few')
  assert report.verdict == auditor.UNDERPOWERED and not report.beyond_cap
  assert report.cap < report.claim.epsilon


@pytest.mark.every(2)
def test_a_report_is_for_other_auditors(honest, tmp_path):
  report = _audit(honest, delta=1e-5)
  assert report.claim.delta == 1e-5
  path = reports.write(report, tmp_path, seed=0)
  assert path.stat().st_mode & 0o777 == 0o600
  written = json.loads(path.read_text())
  assert written['num_canaries'] == 200 and written['canary'] == 'noise'
  with np.load(path.with_suffix('.npz')) as kept:
    assert set(kept) == {'log_odds', 'calibrated', 'included'}
    for key in runs.SCORES:
      again = one_run.grid_bound(kept[key], kept['included'], delta=1e-5,
                                 significance=written['level'])
      assert again._asdict() == written['bounds'][key]
