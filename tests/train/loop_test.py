"""These tests train whole runs and check noise, learning and grouping."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.privacy import blocks
from dpjax.privacy import keys
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import evaluate
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train import plan as plans
from dpjax.train import state as states
from dpjax.train import step as steps
from dpjax.typing import Batch

ADD = Adjacency.ADD_OR_REMOVE_ONE
SAMPLER = PoissonSampler(num_examples=40, batch_size=5, max_batch_size=4)
NUM_STEPS = 40
OPTIMIZER = optax.sgd(0.5, momentum=0.9)
KEYS = jax.random.split(jax.random.key(11), 3)
MULTIPLIERS = (0.8, 1.6, 3.2)
ROWS = jnp.asarray(np.stack([
  np.random.default_rng(seed).permutation(60)[:40] for seed in range(3)]),
  jnp.int32)


def _plan(multiplier=1., **changes):
  settings = {'sampler': SAMPLER, 'num_steps': NUM_STEPS, 'adjacency': ADD,
              'noise_multiplier': multiplier}
  return plans.TrainingPlan(**{**settings, **changes})


def _flat(values, run=0):
  return np.concatenate([np.ravel(np.float64(leaf[run]))
                         for leaf in jax.tree.leaves(values)])


@pytest.fixture(name='fit', scope='module')
def _fit(make_model, make_method, records):
  """Returns a function that fits lip_dp_sgd to some of the three runs above."""
  model = make_model(True)
  method = make_method('lip_dp_sgd', model)

  def fit(runs, **changes):
    runs = list(runs)
    settings = {
      'plans': [_plan(MULTIPLIERS[run]) for run in runs], 'model': model,
      'method': method, 'optimizer': OPTIMIZER, 'records': records,
      'rows': ROWS[np.array(runs)]}
    return loop.fit(KEYS[np.array(runs)], **{**settings, **changes})

  return fit


@pytest.fixture(name='three', scope='module')
def _three(fit):
  return fit([0, 1, 2])


def test_chunks_cover_the_run():
  for num_steps in range(1, 1500):
    lengths = loop.chunk_lengths(num_steps)
    assert sum(lengths) == num_steps and min(lengths) > 0
    assert len(lengths) <= 20 and len(set(lengths)) <= 2
    assert len(set(lengths[:-1])) <= 1
    assert lengths[-1] <= lengths[0]
  for num_steps in (20, 100, 360, 1000):
    assert len(set(loop.chunk_lengths(num_steps))) == 1


@pytest.mark.every(5)
def test_key_decides_and_neighbours_do_not(fit, three):
  others = fit([2, 1, 0], plans=[_plan(9.), _plan(MULTIPLIERS[1]), _plan(7.)])
  np.testing.assert_array_equal(_flat(others.state.params, 1),
                                _flat(three.state.params, 1))
  jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:, 1], b[:, 1]),
               others.info, three.info)
  # With the same key and rows, another noise level draws the same batches.
  np.testing.assert_array_equal(others.info.batch_size[:, 2],
                                three.info.batch_size[:, 0])
  assert not np.array_equal(three.info.batch_size[:, 0],
                            three.info.batch_size[:, 1])
  assert np.mean(np.isclose(_flat(three.state.params, 0),
                            _flat(three.state.params, 1), atol=1e-4)) < 0.1


@pytest.mark.slow
def test_groups_of_runs_equal_all_at_once_by_one_program(fit, three, caplog):
  progress = []
  with jax.log_compiles(), caplog.at_level(logging.WARNING):
    grouped = fit([0, 1, 2], max_parallel=2,
                  on_progress=lambda *done: progress.append(done))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
    (grouped.state.params, grouped.info), (three.state.params, three.info))
  assert grouped.joint_noise_multipliers.shape == (3,)
  # There are two groups of 20 chunks of 2 steps.
  assert progress == [(2 * i, 80) for i in range(1, 41)]
  compiled = [record.getMessage() for record in caplog.records
              if record.getMessage().startswith('Compiling')]
  assert sum('run' in message.split()[1] for message in compiled) == 1
  # JAX compiles the start, the chunk and small helpers such as slices.
  assert len(compiled) <= 40
  with pytest.raises(ValueError, match='max_parallel must be an integer'):
    fit([0, 1, 2], max_parallel=-1)


@pytest.mark.every(2)
def test_many_runs_are_each_a_loop_of_steps(three, make_model, make_method,
                                            records):
  model = make_model(True)
  method = make_method('lip_dp_sgd', model)
  transform_of = lambda key: steps.make_transform(
    method, SAMPLER, OPTIMIZER, key=key, noise_multiplier=MULTIPLIERS[1],
    allocation='optimal')
  state = jax.jit(lambda key: steps.init_state(
    key, model=model, method=method, transform_of=transform_of))(KEYS[1])
  step = jax.jit(steps.make_step(method=method, sampler=SAMPLER,
                                 transform_of=transform_of))
  for index in range(NUM_STEPS):
    state, info = step(state, records, ROWS[1])
    assert int(info.batch_size) == three.info.batch_size[index, 1]
  np.testing.assert_allclose(
    np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.params)]),
    _flat(three.state.params, 1), atol=1e-5)


def test_batches_of_all_records_are_not_copied(fit, monkeypatch):
  """Nor does it matter: each run has its own records, in its own order."""
  whole = PoissonSampler(num_examples=40, batch_size=40)
  assert whole.takes_all and not SAMPLER.takes_all
  assert not PoissonSampler(num_examples=40, batch_size=40,
                            max_batch_size=30).takes_all
  assert not PoissonSampler(num_examples=40, batch_size=39.9).takes_all
  run = lambda: fit([0, 1], plans=[_plan(sampler=whole, num_steps=3)] * 2)
  direct = run()
  monkeypatch.setattr(PoissonSampler, 'takes_all', False)
  copied = run()
  assert (direct.info.batch_size == 40).all()
  jax.tree.map(np.testing.assert_array_equal, direct.state.params,
               copied.state.params)
  assert np.abs(_flat(direct.state.params, 0) -
                _flat(direct.state.params, 1)).max() > 0.01


@pytest.mark.every(2)
def test_initial_parameters_have_keys_of_their_own(fit, three, make_model,
                                                   make_method):
  """Initial parameters can have keys of any generator.

  No other random draw depends on these keys.
  """
  own = jax.vmap(lambda key: states.streams(key).init)(KEYS)
  same = fit([0, 1, 2], init_keys=own)
  jax.tree.map(np.testing.assert_array_equal, (same.state.params, same.info),
               (three.state.params, three.info))
  secret = keys.system_keys(3)
  runs = [fit([0, 1, 2], optimizer=optax.sgd(0.0), init_keys=each)
          for each in (own, secret)]
  model = make_model(True)
  constrain = make_method('lip_dp_sgd', model).constraint.constrain
  initial = jax.jit(jax.vmap(lambda key: constrain(model.init(key))[0]))(own)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3),
               runs[0].state.params, initial)
  assert np.abs(_flat(runs[0].state.params) -
                _flat(runs[1].state.params)).max() > 0.1
  np.testing.assert_array_equal(runs[0].info.batch_size,
                                runs[1].info.batch_size)
  with pytest.raises(ValueError, match=r'init_keys must be typed keys \[3\]'):
    fit([0, 1, 2], init_keys=own[:2])


def test_what_is_reported(three):
  assert three.events == tuple(_plan(z).event for z in MULTIPLIERS)
  measured = three.joint_noise_multipliers
  assert np.all(measured >= np.array(MULTIPLIERS) * (1 - 1e-6))
  np.testing.assert_allclose(measured, MULTIPLIERS, rtol=1e-5)
  assert three.info.l2_sensitivity.shape == (NUM_STEPS, 3, 2)
  assert three.info.batch_size.shape == (NUM_STEPS, 3)
  assert three.info.batch_size.max() > SAMPLER.part_size
  np.testing.assert_array_equal(three.state.step, [NUM_STEPS] * 3)
  assert three.compile_seconds > 0 and three.train_seconds > 0


def test_final_weights_keep_their_norms(three):
  for name, layer in three.state.params.items():
    for run in range(3):
      norm = np.linalg.norm(np.float64(layer['kernel'][run]), 2)
      assert norm <= min(0.9, float(three.state.certificate[name][run]))


@pytest.mark.every(3)
@pytest.mark.parametrize('changes, message', [
  ({'plans': [_plan()]}, r'keys must be typed keys \[1\]'),
  ({'rows': ROWS}, r'rows must be integers \[2, 40\].* got int32 \[3, 40\]'),
  ({'plans': [_plan(), _plan(num_steps=5)]}, 'in their noise multiplier only'),
  ({'plans': [_plan(), _plan(adjacency=Adjacency.REPLACE_ONE)]},
   'in their noise multiplier only'),
  ({'plans': [_plan(), _plan(sampler=PoissonSampler(
    num_examples=40, batch_size=6, max_batch_size=4))]},
   'in their noise multiplier only'),
  ({'plans': [_plan(None)] * 2}, 'lip_dp_sgd needs a private plan'),
  ({'plans': [_plan(), _plan(None)]}, 'lip_dp_sgd needs a private plan'),
  ({'rows': ROWS[:2, :39]}, r'rows must be integers \[2, 40\].* got int32 \[2, 39\]')])
def test_refuses_before_anything_is_spent(fit, changes, message):
  with pytest.raises(ValueError, match=message) as caught:
    fit([0, 1], **changes)
  assert '\n' not in str(caught.value)


def test_non_private_method_refuses_a_private_plan(fit, make_model,
                                                   make_method):
  model = make_model(False)
  with pytest.raises(ValueError, match='sgd needs a non-private plan'):
    fit([0], model=model, method=make_method('sgd', model))


def test_lip_dp_sgd_refuses_a_model_without_bounds(make_model, make_method):
  for name in ('lip_dp_sgd', 'fix_lip_dp_sgd'):
    with pytest.raises(ValueError, match='has no finite gradient bound'):
      make_method(name, make_model(False))


@pytest.mark.every(4)
@pytest.mark.parametrize('factor', [0.99, jnp.nan])
def test_fault_less_noise_than_planned(fit, monkeypatch, factor):
  honest = blocks.allocate
  monkeypatch.setattr(blocks, 'allocate', lambda *args, **kwargs: jnp.float32(
    factor) * honest(*args, **kwargs))
  with pytest.raises(ValueError, match='less than the planned 0.8'):
    fit([0])


@pytest.fixture(name='separable', scope='module')
def _separable():
  """Returns 2500 records in the unit ball, with a gap between the classes."""
  rng = np.random.default_rng(1)
  x = rng.normal(size=(6000, 3))
  x = x / np.linalg.norm(x, axis=1, keepdims=True)
  side = x @ np.array([0.6, -0.8, 0.])
  x, side = x[np.abs(side) > 0.2][:2500], side[np.abs(side) > 0.2][:2500]
  return Batch(jnp.asarray(x, jnp.float32), jnp.asarray(side > 0, jnp.int32))


@pytest.mark.slow
@pytest.mark.parametrize('name, at_least', [
  ('sgd', 0.95), ('dp_sgd', 0.9), ('lip_dp_sgd', 0.9)])
def test_learns(separable, name, at_least):
  loss = losses.cross_entropy()
  settings = {'num_examples': 2000, 'batch_size': 100, 'num_steps': 120,
              'adjacency': ADD}
  if name == 'sgd':
    plan = plans.non_private_plan(**settings)
  else:
    plan = plans.private_plan(epsilon=8., delta=1e-5, accountant='rdp',
                              **settings)
    assert plan.epsilon(1e-5) <= 8.
  bounded = name == 'lip_dp_sgd'
  radii = {'input_radius': 1., 'hidden_radius': 1.} if bounded else {}
  model = mlp.mlp(num_features=3, num_classes=2, depth=0 if bounded else 1,
                  width=4, **radii)
  method = {
    'sgd': lambda: methods.sgd(model, loss),
    'dp_sgd': lambda: methods.dp_sgd(model, loss, clip_norm=1.),
    'lip_dp_sgd': lambda: methods.lip_dp_sgd(model, loss, weight_norm=1.)}
  runs = jnp.tile(jnp.arange(2000, dtype=jnp.int32), (2, 1))
  result = loop.fit(
    jax.random.split(jax.random.key(0), 2), plans=[plan] * 2, model=model,
    method=method[name](), optimizer=optax.sgd(2.),
    records=separable, rows=runs)
  held_out = jnp.tile(jnp.arange(2000, 2500, dtype=jnp.int32), (2, 1))
  scores = evaluate.accuracies(model.apply, result.state.params, separable,
                               held_out)
  assert np.min(scores) > at_least
