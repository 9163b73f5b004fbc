"""These tests check training from configurations: grouping and keys."""

import dataclasses

import jax
import numpy as np
import pytest

from dpjax.data import registry
from dpjax.grads import bounder as bounders
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import options
from dpjax.runs import recipes
from dpjax.runs import run_keys
from dpjax.runs import training
from dpjax.train import sharding
from dpjax.train import state as states
from dpjax.train import used_keys

_DATA = registry.load('breast_cancer')
_CONFIG = configuration.TrainingConfig(
    dataset='breast_cancer', method='dp_sgd', num_steps=5, width=4)


def test_resolve_fills_every_gap():
  resolved = configuration.resolve(_CONFIG, num_available=455)
  optional = {'max_batch_size', 'microbatch_size', 'split_seed', 'fold',
              'model', 'channels', 'canary_seed', 'schema', 'noise_seed',
              'sampler_groups', 'bands', 'user_column', 'user_records',
              'branch_share'}
  for field in dataclasses.fields(resolved):
    if field.name not in optional:
      assert getattr(resolved, field.name) is not None, field.name
  assert resolved.delta == pytest.approx(455**-1.1)
  assert resolved.num_steps == 5 and resolved.num_examples == 455
  recipe = recipes.recipe('dp_sgd', num_train=455)
  assert resolved.learning_rate == recipe['learning_rate']


def test_recipes_fit_every_size():
  for method in options.METHODS:
    for size in (1, 2, 455, 999, 2000, 8000, 50_000):
      for kind in (dict(images=True), dict(), dict(model='orthogonal'), *(
          dict(features=name) for name in options.FEATURES)):
        recipe = recipes.recipe(method, num_train=size, **kind)
        assert 1 <= recipe['batch_size'] <= size


@pytest.mark.slow
def test_runs_trained_together_equal_runs_alone():
  configs = [dataclasses.replace(_CONFIG, seed=seed, epsilon=epsilon,
                                 noise_seed=seed)
             for seed in (0, 1) for epsilon in (1.0, 2.0)]
  joint = training.train(configs)[2]
  alone, = training.train([configs[2]])
  assert alone.test_accuracy == joint.test_accuracy
  assert alone.joint_noise_multiplier == pytest.approx(
      joint.joint_noise_multiplier)
  # The noise is rounded to 1/256 of itself, so one point apart at most.
  for a, b in zip(jax.tree.leaves(alone.params),
                  jax.tree.leaves(joint.params), strict=True):
    np.testing.assert_allclose(a, b, atol=2e-2, rtol=2e-2)


def test_groups_may_differ_in_seed_and_epsilon_only():
  for changes in (dict(clip_norm=2.0), dict(noise_seed=0)):
    with pytest.raises(ValueError, match='seeds and epsilon only'):
      training.train([_CONFIG, dataclasses.replace(_CONFIG, **changes)])


def test_noise_is_not_shared_between_configurations():
  resolved = run_keys.reproducible(
      configuration.resolve(_CONFIG, num_available=455))
  keys = {
      tuple(np.asarray(jax.random.key_data(run_keys.run_key(config))))
      for config in (resolved, dataclasses.replace(resolved, epsilon=2.0),
                     dataclasses.replace(resolved, method='lip_dp_sgd'),
                     dataclasses.replace(resolved, seed=1),
                     dataclasses.replace(resolved, noise_seed=1))
  }
  assert len(keys) == 5
  first, second = (training.split_rows(config, _DATA) for config in (
      resolved, dataclasses.replace(resolved, method='sgd')))
  np.testing.assert_array_equal(first.train, second.train)


def _params(result):
  return np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(
      result.params)])


@pytest.mark.every(8)
def test_keys_of_the_system_are_used_once_for_one_thing():
  """A secret key depends on configuration, records and draw.

  The initial parameters depend on the seed alone.
  """
  secret = run_keys.new_keys(2)
  resolved = configuration.resolve(_CONFIG, num_available=455)
  used = lambda configs, keys, records=_DATA.records: {
      tuple(np.asarray(jax.random.key_data(key)).tolist())
      for key in run_keys.draw(configs, keys, records)}
  moved = _DATA.records._replace(
      x=_DATA.records.x.at[3, 4].add(jax.numpy.float32(1e-3)))
  key_sets = [used([resolved], secret[:1]), used([resolved], secret[1:]),
              used([resolved], secret[:1], moved), used([resolved], None),
              used([resolved] * 2, None),
              used([dataclasses.replace(resolved, epsilon=2.0)], secret[:1])]
  assert len(set().union(*key_sets)) == 7
  assert used([resolved], secret[:1]) == key_sets[0]
  keys = set().union(*key_sets)
  assert all(len(key) == 8 and len(set(key)) == 8 for key in keys)
  # The seed sets the initial parameters, whatever draws the noise.
  starts = [run_keys.init_key(dataclasses.replace(
      resolved, seed=seed, noise_seed=noise_seed))
      for seed, noise_seed in ((3, None), (3, 3), (3, 8), (4, 3))]
  data = [jax.random.key_data(key).tolist() for key in starts]
  assert data[0] == data[1] == data[2] != data[3]
  assert data[1] == jax.random.key_data(states.streams(run_keys.run_key(
      dataclasses.replace(resolved, seed=3, noise_seed=3))).init).tolist()
  with pytest.raises(ValueError, match='cannot be reproduced'):
    run_keys.run_key(resolved)


@pytest.mark.parametrize('config, num_keys, message', [
    (run_keys.reproducible(_CONFIG), 1, 'derive their keys from it'),
    (_CONFIG, 2, '1 runs without a noise_seed need as many secret keys')])
def test_keys_that_do_not_fit_are_refused(config, num_keys, message):
  with pytest.raises(ValueError, match=message):
    training.train([config], keys=run_keys.new_keys(num_keys))
  if num_keys == 2:
    with pytest.raises(ValueError, match=message):
      training.train([config], keys=jax.random.split(jax.random.key(0), 1))


@pytest.mark.slow
def test_runs_of_the_system_are_releases_of_their_own(monkeypatch):
  first, second = (training.train([_CONFIG])[0] for _ in range(2))
  assert not np.isclose(_params(first), _params(second)).any()
  keys = run_keys.new_keys(1)
  third, = training.train([_CONFIG], keys=keys)
  with pytest.raises(ValueError, match='used by another fit'):
    training.train([_CONFIG], keys=keys)
  monkeypatch.setattr(used_keys, '_USED', set())
  fourth, = training.train([_CONFIG], keys=keys)
  np.testing.assert_array_equal(_params(third), _params(fourth))


@pytest.mark.slow
def test_the_plan_is_announced_before_training():
  seen = []
  training.train([_CONFIG], on_plans=lambda plans: seen.extend(plans))
  (config, plan), = seen
  assert plan.epsilon(config.delta) <= config.epsilon
  assert config.batch_size == 455


@pytest.mark.parametrize('change, message', [
    (dict(optimizer='lamb'), 'optimizer must be one of adam, momentum, noise'),
    (dict(clip_blocks='rows'), 'clip_blocks must be one of layers, whole'),
    (dict(schedule='step'), 'schedule must be one of'),
    (dict(adjacency='zero_out'), 'adjacency must be one of'),
    (dict(accountant='prv'), 'accountant must be one of pld, rdp'),
    (dict(allocation='best'), 'allocation must be one of'),
    (dict(test_fraction=1.0), 'test_fraction must lie strictly'),
    (dict(logit_clip=0.0), 'logit_clip must be a positive'),
    (dict(microbatch_size=0), 'microbatch_size must be an integer >= 1'),
    (dict(split_seed=-1), 'split_seed must be an integer >= 0'),
    (dict(fold=5), 'fold must be an integer from 0 to 4, got 5'),
    (dict(num_folds=1), 'num_folds must be an integer >= 2'),
    (dict(pool='median'), 'pool must be one of average, max, none'),
    (dict(pixels='grey'), 'pixels must be one of signed, unsigned'),
    (dict(compute_dtype='float16'), 'compute_dtype must be one of bfloat16, f'),
    (dict(method='layer_clipped', compute_dtype='bfloat16'),
     'layer_clipped is bounded in float32 only; with compute_dtype = bfloat16'),
    (dict(recertify_every=0), 'recertify_every must be an integer >= 1'),
    (dict(method='dp_sgd', recertify_every=2),
     'free and a method of lip_dp_sgd, lip_propagated, lip_norm'),
    (dict(noise='laplace'), 'noise must be one of gaussian, lattice_gaussian'),
    (dict(noise='lattice_gaussian', method='sgd'), 'sgd has no Gaussian noise'),
    (dict(noise='lattice_gaussian', method='lip_k_norm'), 'lip_k_norm has no'),
    (dict(kernel_size=0), 'kernel_size must be an integer >= 1'),
    (dict(channels=(4, -1)), 'channels must be an integer >= 1'),
])
def test_bad_configurations_are_refused(change, message):
  with pytest.raises(ValueError, match=message):
    configuration.check(dataclasses.replace(_CONFIG, **change))


@pytest.mark.slow
@pytest.mark.parametrize('change', [
    dict(optimizer='adam', learning_rate=0.1, schedule='constant'),
    dict(optimizer='noise_corrected_adam', learning_rate=0.1, average='ema'),
    dict(method='lip_dp_sgd', optimizer='noise_corrected_adam',
         learning_rate=0.05),
    dict(method='dp_sgd_adaptive', clip_blocks='layers'),
    dict(optimizer='momentum', microbatch_size=32, max_batch_size=50),
    pytest.param(dict(compute_dtype='bfloat16', weights='standardised'),
                 marks=pytest.mark.slow),
    dict(adjacency='replace_one'),
    pytest.param(dict(method='lip_dp_sgd', allocation='equal',
                      accountant='rdp'), marks=pytest.mark.slow),
    dict(method='lip_dp_sgd', activation='relu', depth=2, recertify_every=7),
    dict(method='fix_lip_dp_sgd', depth=0),
])
def test_every_option_runs_within_its_budget(change):
  with jax.numpy_dtype_promotion('standard'):  # optax.adam is not strict
    result, = training.train([dataclasses.replace(_CONFIG, **change)])
  assert 0.3 < result.test_accuracy <= 1
  assert result.epsilon <= 1.0
  assert result.joint_noise_multiplier >= (
      result.plan.noise_multiplier * (1 - 1e-6))


def test_keys_of_published_rows_stay_what_they_were():
  """Keys of published rows stay what they were.

  They were pinned before `split_seed`, `fold` and `num_folds` existed.
  """
  resolved = configuration.resolve(
      configuration.TrainingConfig(dataset='breast_cancer', method='dp_sgd'),
      num_available=455)

  def key(**changes):
    run_key = run_keys.run_key(run_keys.reproducible(
        dataclasses.replace(resolved, **changes)))
    return jax.random.key_data(run_key).tolist()

  assert key() == [1973122803, 3299492099]
  assert key(split_seed=None, fold=None, num_folds=5) == key()
  assert key(channels=None, pixels='signed', compute_dtype='float32') == key()
  others = [key(fold=0), key(fold=1), key(split_seed=0), key(num_folds=4),
            key(channels=(8,)), key(pixels='unsigned'), key(use_bias=False),
            key(compute_dtype='bfloat16'), key(recertify_every=2),
            key(noise='lattice_gaussian')]
  assert key(noise='gaussian') == key()
  assert len({*map(tuple, others), tuple(key())}) == 11


@pytest.mark.every(3)
@pytest.mark.parametrize('method', options.IN_ANY_DTYPE)
def test_networks_are_computed_in_what_the_configuration_says(method):
  config = configuration.resolve(
      dataclasses.replace(_CONFIG, method=method, compute_dtype='bfloat16'),
      num_available=455)
  model = building.make_model(config, _DATA)
  bounder = building.make_method(config, model, _DATA).bounder
  bounder = bounders.at_radii(
      bounder, bounder.adaptive.init if bounder.adaptive else ())
  batch = jax.tree.map(lambda leaf: leaf[:3], _DATA.records)
  assert 'bf16' in str(jax.make_jaxpr(bounder.sums)(
      model.init(jax.random.key(0)), batch, jax.numpy.ones([3], bool)))


def test_images_are_prepared_as_the_configuration_says():
  dataset = registry.load('digits')
  config = configuration.TrainingConfig(
      dataset='digits', method='sgd', downsample=2, pixels='unsigned')
  prepared = building.prepare(config, dataset)
  assert prepared.image_shape == (4, 4, 1) and prepared.records.x.min() == 0
  assert building.prepare(_CONFIG, _DATA) is _DATA
  plain = building.prepare(dataclasses.replace(
      config, downsample=1, pixels='signed'), dataset)
  np.testing.assert_array_equal(plain.records.x, dataset.records.x)


@pytest.mark.slow
def test_folds_are_cut_from_the_training_part():
  """Folds never use a record of the held-out fifth (HPO-01)."""
  held_out = set(training.split_rows(configuration.resolve(
      _CONFIG, num_available=455), _DATA).test.tolist())
  for fold in range(5):
    config = dataclasses.replace(_CONFIG, fold=fold, split_seed=0, seed=7)
    resolved = configuration.resolve(
        config, num_available=training.num_available(config, _DATA))
    assert resolved.num_examples == 364
    split = training.split_rows(resolved, _DATA)
    assert split.train.shape == (364,) and split.test.shape == (91,)
    used = set(split.train.tolist()) | set(split.test.tolist())
    assert len(used) == 455 and not used & held_out


@pytest.mark.slow
def test_folds_are_trained_together():
  configs = [dataclasses.replace(_CONFIG, fold=fold, split_seed=0)
             for fold in (0, 3)]
  first, second = training.train(configs)
  assert first.num_train == second.num_train == 364
  assert first.num_test == 91 and first.plan == second.plan
  with pytest.raises(ValueError, match='the fold that they leave out'):
    training.train([_CONFIG, configs[0]])


@pytest.mark.parametrize('change, message', [
    (dict(max_batch_size=51), 'must be a multiple of the 2 devices of the '
     'mesh, got 51; 52 is one'),
    (dict(method='lip_printed', allow_unsound=True), 'train it on one device')])
def test_what_cannot_be_divided_is_refused_before_data_is_read(change,
                                                               message):
  config = dataclasses.replace(_CONFIG, dataset='adult', **change)
  with pytest.raises(ValueError, match=message):
    training.train([config], data_dir='nowhere', mesh=sharding.data_mesh(2))
