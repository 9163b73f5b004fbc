"""These tests check who trains on what in mia_sparsity, and resuming."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.train import plan as plans
from experiments import registry
from experiments import selection
from experiments.mia_sparsity import attacking
from experiments.mia_sparsity import hyperparameters
from experiments.mia_sparsity import private
from experiments.mia_sparsity import run
from experiments.mia_sparsity import study as studies
from experiments.mia_sparsity import sweep
from experiments.mia_sparsity import trainers
from experiments.mia_sparsity.store import Store
from experiments.mia_sparsity.sweep import Kind

_PROFILE = dataclasses.replace(
    sweep.PROFILES['smoke'], widths=(2, 3, 4), num_epochs=3, num_seeds=1,
    epsilons=())
_KINDS = (Kind(method='dense'), Kind(method='stopped', stop=1 / 3),
          Kind(method='magnitude', prunings=8))


@pytest.fixture(scope='module')
def study():
  return studies.load(
      dataclasses.replace(_PROFILE, controls=_KINDS[1:2]), None)


class _Killed(Exception):
  pass


def test_the_full_profile_is_that_of_the_chapter():
  """The full profile is the chapter's (MIA-05, MIA-06, MIA-09).

  It has 24 prunings and six butterflies with their rates.
  """
  full = sweep.PROFILES['full']
  assert (full.dataset, full.num_records, full.num_validation) == (
      'cifar10', 60000, 1000)
  assert (full.depth, full.widths, full.num_epochs, full.batch_size) == (
      20, (16, 32, 64), 300, 256)
  kinds = full.kinds()
  assert [kind.prunings for kind in kinds
          if kind.method == 'magnitude'] == list(range(1, 25))
  rates = {(kind.segments, kind.factors): tuple(hyperparameters.rates(kind))
           for kind in kinds if kind.method == 'butterfly'}
  assert rates == {(1, 2): (.3, .0005), (1, 3): (.3, .0001),
                   (2, 2): (.3, .0005), (2, 3): (.1, .001),
                   (3, 2): (.3, .0005), (3, 3): (.1, .001)}
  assert hyperparameters.rates(kinds[0]) == (.03, .005)
  decayed, = (kind for kind in kinds if kind.method == 'decayed')
  assert hyperparameters.rates(decayed) == pytest.approx((.03, .02))
  assert full.num_seeds >= 5


def test_profiles_are_tags_with_settings_of_their_own():
  experiment = registry.load('mia_sparsity')
  counts = {name: len(selection.with_tag(experiment.settings, experiment.tags,
                                         name))
            for name in experiment.tags if name != 'quick'}
  assert counts == {
      name: len(sweep.PROFILES[name].kinds()) * sweep.PROFILES[
          name].num_networks for name in ('cpu', 'gpu', 'full')}


@pytest.mark.slow
def test_networks_of_a_pair_share_no_record(study):
  """The networks of a pair share no record (MIA-01)."""
  inclusion = study.inclusion()
  assert not np.any(inclusion[0] & inclusion[1])
  for r in range(2):
    attacked = np.asarray(study.attacked[r])
    members = np.asarray(study.members[r])
    assert np.array_equal(inclusion[r][attacked], members)
    assert members.mean() == .5
    assert not set(attacked) & set(np.asarray(study.validation[r]))
    assert not np.any(inclusion[1 - r][attacked])
  assert list(study.partners) == [1, 0]


@pytest.mark.every(4)
def test_a_killed_study_goes_on_to_the_same_bits(study, tmp_path):
  """A study killed in its second training ends with the same bits."""
  done = []

  def progress(share, name):
    done.append((name, share))
    if len(done) == kill_at:
      raise _Killed

  kill_at = math.inf
  trainer = trainers.Trainer(study, Store(tmp_path / 'one', 'a'), progress)
  whole = [trainer.train(kind) for kind in _KINDS]
  assert len(done) == 6
  # The same compiled programs run with an empty folder.
  trainer._store = Store(tmp_path / 'two', 'a', every_seconds=0)
  done, kill_at = [], 5
  with pytest.raises(_Killed):
    for kind in _KINDS:
      trainer.train(kind)
  done, kill_at = [], math.inf
  again = [trainer.train(kind) for kind in _KINDS]
  assert [name for name, _ in done] == ['magnitude-8-0-0-1-1']
  for one, two in zip(whole, again, strict=True):
    jax.tree.map(np.testing.assert_array_equal, one.networks, two.networks)
    np.testing.assert_array_equal(one.validation_accuracy,
                                  two.validation_accuracy)
    assert one.num_params == two.num_params
  assert whole[0].num_params == trainer.num_dense
  pruned = np.asarray(whole[2].networks.params)
  assert np.all(np.sum(pruned != 0, 1) <= whole[2].num_params)
  assert whole[2].num_params < trainer.train(_KINDS[0]).num_params / 2
  assert not list(tmp_path.glob('*/*.unfinished.npz'))


def test_a_store_is_of_one_study(tmp_path):
  Store(tmp_path, 'a').save('x', (np.arange(3), np.float32(2)))
  loaded = Store(tmp_path, 'a').load('x', (0, 0))
  np.testing.assert_array_equal(loaded[0], np.arange(3))
  assert Store(tmp_path, 'a').load('y', 0) is None
  with pytest.raises(ValueError, match='another study'):
    Store(tmp_path, 'b').load('x', (0, 0))
  with pytest.raises(ValueError, match='2 arrays, expected 1'):
    Store(tmp_path, 'a').load('x', 0)


@pytest.mark.slow
def test_what_networks_show_is_each_ones_own(study):
  """Features are each network's own logits, softmax and slopes."""
  x, y = study.records
  weights = jax.random.normal(jax.random.key(5), (2, x[0].size, 10)) / 8

  def apply(weights, x):
    flat = x.reshape(*x.shape[:2], -1)
    return jax.numpy.einsum('rbf,rfc->rbc', flat, weights)

  seen = attacking.look(apply, weights, study.keys('noise'), x, y,
                        study.attacked, 10)
  flat = np.asarray(x).reshape(len(y), -1)
  for r in range(2):
    logits = flat @ np.asarray(weights[r])
    np.testing.assert_allclose(seen.logits[r], logits, atol=1e-4)
    rows = np.asarray(study.attacked[r])
    softmax = np.asarray(jax.nn.softmax(logits[rows]))
    np.testing.assert_array_equal(np.argmax(seen.features[r][:, :10], 1),
                                  np.asarray(y)[rows])
    np.testing.assert_allclose(seen.features[r][:, 10:20], softmax, atol=1e-5)
    # E |<gradient, N>| is sqrt(2 / pi) times the norm; five draws a record.
    jacobian = softmax[:, :, None] * (np.asarray(weights[r]).T[None] - np.einsum(
        'mc,fc->mf', softmax, np.asarray(weights[r]))[:, None])
    expected = np.sqrt(2 / np.pi) * np.linalg.norm(jacobian, axis=-1)
    ratio = np.mean(seen.features[r][:, 20:], 0) / expected.mean(0)
    np.testing.assert_allclose(ratio, 1, atol=4 * .756 / np.sqrt(5 * 192))


@pytest.mark.every(2)
def test_perceptrons_learn_on_partners_alone(study, monkeypatch):
  """Perceptrons learn on the partner's features and report each network."""
  given = {}

  def attack(key, shadow_features, shadow_members, target_features):
    given.update(shadows=shadow_features, members=shadow_members,
                 targets=target_features)
    # The one discriminator is right on the members alone.
    return attacking.shadow.AttackResult(
        target_features[:, None, :, 0], jax.numpy.zeros((4, 1)),
        jax.numpy.zeros(4, 'int32'))

  monkeypatch.setattr(attacking.shadow, 'attack', attack)
  members = np.asarray(study.members)
  features = [jax.numpy.asarray(np.stack([
      np.where(members[r], 1.0, -1.0 + 2 * (10 * kind + r == 11)), np.full(
          members[r].shape, 10 * kind + r)], -1), 'float32')
              for kind in range(2) for r in range(2)]
  metrics = attacking.perceptrons(study, [
      jax.numpy.stack(features[:2]), jax.numpy.stack(features[2:])])
  assert given['shadows'][:, 0, 1].tolist() == [1, 0, 11, 10]
  assert given['targets'][:, 0, 1].tolist() == [0, 1, 10, 11]
  np.testing.assert_array_equal(given['members'], members[[1, 0, 1, 0]])
  assert [[one['perceptron_accuracy'] for one in kind] for kind in metrics] == [
      [1.0, 1.0], [1.0, 0.5]]
  assert metrics[1][1]['defence'] == 100 and metrics[0][0]['defence'] == 0
  assert metrics[1][1]['perceptron_oracle'] == 0.5


@pytest.mark.slow
def test_thresholds_come_from_the_partner(study, monkeypatch):
  """An attack's threshold comes from the partner network."""
  # Other attacks want more than one shadow.
  monkeypatch.setattr(attacking, 'POOLED', {
      'loss': attacking.attacks.loss_threshold})
  rows, y = np.asarray(study.attacked), np.asarray(study.records.y)
  logits = np.zeros((2, y.size, 10), np.float32)
  for r, level in enumerate((1.0, 3.0)):
    odds = np.where(study.members[r], level + 0.5, level - 0.5)
    logits[r, rows[r], y[rows[r]]] = odds
  metrics = attacking.statistics(study, jax.numpy.asarray(logits))
  for one in metrics:
    assert one['loss_auc'] == 1
  # The partner's best threshold flags nobody, or everybody.
  assert [one['loss_accuracy'] for one in metrics] == [0.5, 0.5]
  right = attacking.accuracies(study, jax.numpy.asarray(logits))
  assert [one['train_accuracy'] for one in right] == [1, 1]


def test_rows_are_of_the_network_in_that_role(study, monkeypatch):
  """Rows of a role carry the network of that role."""
  kinds = (Kind(method='dense'), Kind(method='magnitude', prunings=8))
  settings = [
      sweep.Setting(**dataclasses.asdict(kind), profile='smoke',
                    dataset='digits', seed=0, role=role)
      for kind in reversed(kinds) for role in sweep.ROLES]

  class Trainer:
    num_dense = 1

    def __init__(self, *args):
      pass

    def train(self, kind):
      return kind.prunings

  monkeypatch.setattr(run.studies, 'load', lambda profile, data_dir: study)
  monkeypatch.setattr(run.trainers, 'Trainer', Trainer)
  monkeypatch.setattr(run, '_look', lambda study, prunings, size: (
      [{'one': prunings + r} for r in range(2)], prunings))
  monkeypatch.setattr(run.attacking, 'perceptrons', lambda study, features: [
      [{'two': 10 * each + r} for r in range(2)] for each in features])
  values = {(setting.prunings, setting.role): [row.value for row in rows]
            for setting, rows in run.run(settings, None, lambda *_: None)}
  assert values == {(0, 'target'): [0, 0], (0, 'shadow'): [1, 1],
                    (8, 'target'): [8, 80], (8, 'shadow'): [9, 81]}


@pytest.mark.slow
def test_ceilings_are_those_of_a_replacement():
  """Ceilings are those of replacing one record in a full batch.

  Its shift is 2 over the noise multiplier.
  """
  plan = plans.private_plan(
      num_examples=40, batch_size=40.0, num_steps=1, epsilon=1.0, delta=1e-5,
      adjacency=private.ADJACENCY)
  trained = private.Trained(None, None, 1, plan, plan.epsilon(1e-5), 1e-5)
  ceilings = run._ceilings(trained)
  likely = math.exp(trained.epsilon)
  assert ceilings['ceiling'] == pytest.approx((likely + 1e-5) / (1 + likely))
  assert ceilings['event_ceiling'] == pytest.approx(
      stats.norm.cdf(1 / plan.noise_multiplier), rel=1e-3)
  assert not run._ceilings(trained._replace(epsilon=math.inf))
