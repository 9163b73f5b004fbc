"""Tests of what `make_private` refuses, before anything is spent."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.grads import privatizer
from dpjax.privacy import keys
from dpjax.train import losses
from dpjax.train.private import make_private

_X = jnp.asarray(np.random.default_rng(0).normal(size=(10, 4)), jnp.float32)
_RECORDS = {'x': _X, 'y': (_X[:, 0] > 0).astype(jnp.float32)}


def _of_record(params, record):
  return (jnp.vdot(record['x'], params) - record['y'])**2


def _of_batch(params, batch):
  return (jnp.einsum('bi,i->b', batch['x'], params) - batch['y'])**2


def _of_either(params, data):
  return (jnp.einsum('...i,i->...', data['x'], params) - data['y'])**2


def _private(loss=_of_record, optimizer=None, **changed):
  given = dict(num_examples=10, batch_size=5, noise_multiplier=1.0, delta=1e-5)
  return make_private(loss, optimizer or optax.sgd(0.1), **given | changed)


def _refused(problem, private, records=None, params=None, exception=ValueError):
  """Checks that the first step is refused and costs nothing."""
  with pytest.raises(exception, match=problem):
    state = private.init(jnp.zeros(4) if params is None else params)
    private.step(state, _RECORDS if records is None else records)
  assert private.epsilon() == 0


@pytest.mark.parametrize('loss, per', [
    (_of_record, None), (_of_record, 'record'), (_of_batch, None),
    (_of_batch, 'batch'), (_of_either, None), (_of_either, 'record'),
    (_of_either, 'batch'),
])
def test_losses_of_records_and_of_batches_give_the_same_step(loss, per):
  private = _private(loss, per=per, noise_multiplier=1e-6, batch_size=10)
  state, _ = private.step(private.init(jnp.zeros(4)), _RECORDS)
  grads = jax.vmap(jax.grad(_of_record), (None, 0))(jnp.zeros(4), _RECORDS)
  norms = jnp.linalg.norm(grads, axis=1, keepdims=True)
  np.testing.assert_allclose(
      state.params, -0.1 * jnp.mean(grads / jnp.maximum(norms, 1), 0),
      atol=3e-6)


@pytest.mark.parametrize('loss, per, problem', [
    (lambda p, b: jnp.mean(_of_batch(p, b)), None, 'one number for a batch.*'
     'return the losses'),
    (lambda p, b: jnp.mean(_of_batch(p, b)), 'batch', 'return the losses'),
    (lambda p, b: jnp.mean(_of_either(p, b)), None, r"one record\).*per='rec"),
    (lambda p, b: _of_batch(p, b) - jnp.mean(b['y']), None, 'mixes records'),
    (lambda p, b: _of_batch(p, b)[::-1], 'batch', 'mixes records'),
    (lambda p, b: _of_either(p, b) + b['y'].max(), None, r"say per='record'"),
    (_of_batch, 'record', 'fails for one record'),
    (_of_record, 'batch', 'fails for a batch|one number for a batch'),
    (lambda p, b: (_of_batch(p, b), 0), None, 'nothing else beside the loss'),
    (lambda p, b: jnp.argmax(p), 'record', 'type int32'),
    (lambda p, b: b['z'], None, "fails for a batch: 'z'"),
])
def test_refused_losses(loss, per, problem):
  _refused(problem, _private(loss, per=per))


@pytest.mark.parametrize('loss, problem', [
    (3, 'must be a function'), (lambda p: 0.0, 'takes 1 arguments')])
def test_refused_functions(loss, problem):
  with pytest.raises((TypeError, ValueError), match=problem):
    _private(loss)


def test_which_functions_take_a_key():
  takes = lambda function: losses.declared(function).takes_rng
  assert takes(lambda p, r, rng: 0) and takes(lambda p, r, key=None: 0)
  assert not takes(lambda p, r: 0) and not takes(lambda p, r, train=True: 0)
  assert takes(jax.jit(lambda p, r, dropout_key: 0))


@pytest.mark.parametrize('records, problem', [
    ({'x': _X[:9], 'y': _X[:9, 0]}, 'must have 10 rows'),
    ({'x': np.zeros([10, 4]), 'y': np.array(['a'] * 10)}, 'type <U1'),
    ({'x': [1.0] * 10}, 'got a float'), ({}, 'without arrays'),
    (lambda numbers: {'x': _X[:1], 'y': _X[:1, 0]}, 'one for each number'),
])
def test_refused_records(records, problem):
  _refused(problem, _private(batch_size=9.99), records)


@pytest.mark.parametrize('changed, problem', [
    (dict(epsilon=1.0), 'give either epsilon'),
    (dict(noise_multiplier=None), 'give either epsilon'),
    (dict(noise_multiplier=None, epsilon=1.0), 'needs delta and steps'),
    (dict(noise_multiplier=None, epsilon=-1.0, steps=3), 'epsilon must be'),
    (dict(clip_norm=np.inf), 'no noise makes the run private'),
    (dict(clip_norm=0.0), 'clip_norm must be a positive'),
    (dict(clip_norm='adaptiv'), 'clip_norm must be one of adaptive'),
    (dict(clip_norm='adaptive', noise_multiplier=5.0), 'noise_stddev of 1'),
    (dict(clip_norm='adaptive', noise_multiplier=None, epsilon=np.inf),
     'adaptive clip norms need noise'),
    (dict(adjacency='neighbours'), 'adjacency must be one of'),
    (dict(per='user'), 'per must be one of'),
    (dict(batch_size=11), 'at most num_examples'),
    (dict(steps=0), 'num_steps'), (dict(accountant='zcdp'), 'accountant'),
    (dict(optimizer='adam'), 'needs a learning_rate'),
    (dict(optimizer='adam', learning_rate=0.0), 'learning_rate must be'),
    (dict(optimizer='lamb', learning_rate=0.1), 'optimizer must be one of'),
    (dict(optimizer='sgd', learning_rate=0.1, schedule='cosine'), 'needs the num'),
    (dict(schedule='cosine'), 'are for optimizers that are names'),
    (dict(average='mean'), 'average must be one of'),
    (dict(optimizer=3), 'optimizer must be'),
])
def test_refused_arguments(changed, problem):
  changed = {'delta': 1e-5} | changed
  if changed.get('epsilon') == 1.0 and 'noise_multiplier' in changed:
    changed['delta'] = None
  with pytest.raises((ValueError, TypeError), match=problem):
    _private(**changed)


@pytest.mark.parametrize('changed, problem', [
    (dict(clip_norm={'layer': 1.0}), 'tree prefix of the parameters'),
    (dict(optimizer=optax.sgd(np.nan)), 'NaN or infinity'),
    (dict(optimizer=privatizer.gaussian_privatizer(
        jax.random.key(0), noise_multiplier=1.0, expected_batch_size=5)),
     'has a privatizer'),
])
def test_refused_at_the_start(changed, problem):
  with pytest.raises(ValueError, match=problem):
    _private(**changed).init(jnp.zeros(4))


@pytest.mark.every(2)
def test_a_budget_covers_all_runs():
  private = _private(steps=3)
  one = private.init(jnp.zeros(4))
  for _ in range(2):
    one, _ = private.step(one, _RECORDS)
  two, _ = private.step(private.init(jnp.zeros(4)), _RECORDS)
  assert private.epsilon() == private.plan.epsilon(1e-5) > private.epsilon(two)
  with pytest.raises(ValueError, match='all 3 steps.*by 2 runs'):
    private.step(two, _RECORDS)
  with pytest.raises(ValueError, match='all 3 steps'):
    private.step(one, _RECORDS)


def test_a_state_is_used_once():
  private = _private()
  first = private.init(jnp.zeros(4))
  second, _ = private.step(first, _RECORDS)
  with pytest.raises(ValueError, match='step 1 of this run was made before'):
    private.step(first, _RECORDS)
  private.step(second, _RECORDS)
  key, = keys.system_keys(1)
  private.init(jnp.zeros(4), key=key)
  with pytest.raises(ValueError, match='another fit of this process'):
    _private().init(jnp.zeros(4), key=key)


@pytest.mark.every(2)
def test_a_restored_state_goes_on_and_is_accounted_for():
  private = _private(steps=3)
  state = private.init(jnp.zeros(4))
  for _ in range(2):
    state, _ = private.step(state, _RECORDS)
  leaves, structure = jax.tree.flatten(state)
  restored = jax.tree.unflatten(structure, [jnp.copy(leaf) if not jnp.issubdtype(
      leaf.dtype, jax.dtypes.prng_key) else leaf for leaf in leaves])
  other = _private(steps=3)  # As in a new process.
  with pytest.raises(ValueError, match='call init'):
    other.step(restored, _RECORDS)
  other.init(jnp.zeros(4))
  after, _ = other.step(restored, _RECORDS)
  np.testing.assert_array_equal(after.params,
                                private.step(state, _RECORDS)[0].params)
  assert other.epsilon() == private.epsilon() == private.plan.epsilon(1e-5)
  with pytest.raises(ValueError, match='all 3 steps'):
    other.step(after, _RECORDS)


@pytest.mark.every(2)
def test_a_compiled_loop_stops_at_the_plan():
  private = _private(steps=2)
  state = private.init(jnp.zeros(4))

  @jax.jit
  def loop(state):
    return jax.lax.scan(lambda state, _: private.step(state, _RECORDS), state,
                        length=4)

  after, info = loop(state)
  assert int(after.step) == 2
  assert info.batch_size.tolist()[2:] == [0, 0]
  assert private.epsilon(after) == private.plan.epsilon(1e-5)
  for _ in range(2):
    state, _ = private.step(state, _RECORDS)
  np.testing.assert_allclose(after.params, state.params, rtol=1e-6)
  with pytest.raises(ValueError, match=r'use epsilon\(state\)'):
    private.epsilon()
  with pytest.raises(ValueError, match='needs a key'):
    jax.jit(private.init)(jnp.zeros(4))


def test_a_batch_that_was_cut_off_is_refused():
  private = _private(batch_size=5, max_batch_size=2)
  state = private.init(jnp.zeros(4), key=jax.random.key(0))
  indices, mask = private.sample(state)
  assert len(indices) % 2 == 0 and 2 < sum(mask) <= len(indices)
  cut = jax.tree.map(lambda leaf: leaf[indices[:2]], _RECORDS)
  with pytest.raises(ValueError, match='must not be cut off'):
    private.update(state, cut)
  with pytest.raises(ValueError, match='multiple of 2'):
    private.update(state, jax.tree.map(lambda leaf: leaf[:3], cut | {
        'x': _X[:3], 'y': _X[:3, 0]}))
  after, _ = jax.jit(private.update)(state, cut)
  assert bool(jnp.all(jnp.isnan(after.params)))


@pytest.mark.every(2)
def test_donated_states_give_the_same_steps():
  params = jnp.zeros(4)
  results = []
  for donate in (False, True):
    private = _private(donate=donate)
    state = private.init(params, key=jax.random.key(0))
    for _ in range(2):
      before, (state, _) = state, private.step(state, _RECORDS)
    results.append(np.asarray(state.params))
    assert before.params.is_deleted() == donate and not params.is_deleted()
  np.testing.assert_array_equal(*results)
