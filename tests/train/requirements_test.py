"""These tests check what `fit` refuses and which other forms it accepts."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.grads import privatizer
from dpjax.lipschitz import losses
from dpjax.models.model import Model
from dpjax.privacy import keys as keys_lib
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train import plan as plans
from dpjax.train import requirements
from dpjax.train import state as states
from dpjax.typing import Batch

LOSS = losses.cross_entropy()
KEYS = jax.random.split(jax.random.key(4), 2)
SAMPLER = PoissonSampler(num_examples=20, batch_size=5)
ROWS = np.stack([np.arange(20), np.arange(29, 9, -1)])
RNG = np.random.default_rng(2)
RECORDS = Batch(jnp.float32(RNG.normal(size=(30, 3))),
                jnp.int32(RNG.integers(0, 2, 30)))


def _plan(multiplier=1.0, num_steps=3):
  return plans.TrainingPlan(sampler=SAMPLER, num_steps=num_steps,
                            noise_multiplier=multiplier,
                            adjacency=Adjacency.ADD_OR_REMOVE_ONE)


def _model(apply=lambda p, x: x @ p['w'], **more):
  return Model(init=lambda key: {
    'w': 0.1 * jax.random.normal(key, [3, 2]), **more}, apply=apply,
               network=None)


def _fit(model=_model(), loss=LOSS, **changes):
  settings = dict(
    keys=KEYS, plans=[_plan(1.0), _plan(2.0)], model=model, records=RECORDS,
    method=methods.dp_sgd(model, loss, clip_norm=1.0), rows=ROWS,
    optimizer=optax.sgd(0.5))
  settings.update(changes)
  return loop.fit(settings.pop('keys'), **settings)


@pytest.fixture(name='honest', scope='module')
def _honest():
  return _fit()


def _same(fitted, honest):
  jax.tree.map(np.testing.assert_array_equal, fitted.state.params['w'],
               honest.state.params['w'])


def _one_row(run, place, number):
  rows = ROWS.copy()
  rows[run, place] = number
  return rows


@pytest.mark.every(1)
@pytest.mark.parametrize('rows, message', [
  (np.zeros_like(ROWS), r'run 0 has record 0 20 times'),
  (_one_row(1, 3, 29), r'run 1 has record 29 2 times'),
  (_one_row(1, 0, 30), r'in \[0, 30\).* run 1 has 30'),
  (_one_row(0, 5, -1), r'in \[0, 30\).* run 0 has -1'),
  (_one_row(0, 5, 2**31), r'run 0 has 2147483648'),
  (ROWS.astype(np.float32), r'must be integers \[2, 20\].* float32'),
  (ROWS[0], r'must be integers \[2, 20\].* \[20\]'),
  (ROWS[:, :19], r'must be integers \[2, 20\].* \[2, 19\]'),
  (ROWS > 3, r'must be integers \[2, 20\].* bool')])
def test_rows_are_numbers_of_records_each_once(rows, message):
  with pytest.raises(ValueError, match=message) as caught:
    _fit(rows=rows)
  assert '\n' not in str(caught.value)


def test_rows_of_many_records_are_checked_at_once():
  size = 10**6
  numbers = np.random.default_rng(0).permutation(size)[None]
  checked = requirements.check_rows(numbers, num_runs=1, num_examples=size,
                                    num_records=size)
  assert checked.dtype == np.int32
  np.testing.assert_array_equal(checked, numbers)
  numbers[0, -1] = numbers[0, 0]
  with pytest.raises(ValueError, match=f'has record {numbers[0, 0]} 2 times'):
    requirements.check_rows(numbers, num_runs=1, num_examples=size,
                            num_records=size)


@pytest.mark.every(4)
def test_runs_that_share_a_key_would_give_exact_sums_away(monkeypatch):
  """Without the key check, two runs that share a key reveal an exact sum.

  Twice one step minus the other has no noise in it.
  """
  monkeypatch.setattr(requirements, 'check_keys', lambda *args: None)
  step = lambda multiplier: _fit(
    keys=KEYS[:1], rows=ROWS[:1], plans=[_plan(multiplier, 1)],
    optimizer=optax.sgd(1.0)).state.params['w'][0]
  init = _model().init(states.streams(KEYS[0]).init)['w']
  one, two = step(0.5), step(1.0)
  # -mean = sum / 5 + noise / 5: twice the one less the other is the sum.
  exact = (2 * (one - init) - (two - init)) * 5
  chosen = np.asarray(SAMPLER.draw(jax.random.fold_in(
    states.streams(KEYS[0]).batch, 0)).rows)
  count = int(SAMPLER.draw(jax.random.fold_in(
    states.streams(KEYS[0]).batch, 0)).num_selected)
  part = jax.tree.map(lambda leaf: leaf[chosen[:count]], RECORDS)
  total = methods.dp_sgd(_model(), LOSS, clip_norm=1.0).bounder.sums(
    {'w': init}, part, jnp.ones([count], jnp.bool_)).total['w']
  np.testing.assert_allclose(exact, -total, atol=0.05)


def _chained(key):
  return jnp.stack([key, states.streams(key).noise])


@pytest.mark.every(1)
@pytest.mark.parametrize('keys, message', [
  (jnp.stack([KEYS[1], KEYS[1]]), 'runs 0 and 1 have equal keys'),
  (_chained(KEYS[0]), 'runs 0 and 1 .* derived from'),
  (_chained(KEYS[0])[::-1], 'runs 0 and 1 .* derived from'),
  (jax.random.key_data(KEYS), r'typed keys \[2\].* got uint32 \[2, 2\]'),
  (KEYS[:1], r'typed keys \[2\].* got key<fry> \[1\]'),
  (KEYS[0], r'typed keys \[2\].* got key<fry> \[\]'), (None, 'got a NoneType'),
  (list(KEYS), 'got a list; jnp.stack makes')])
def test_keys_are_typed_and_all_different(keys, message):
  with pytest.raises(ValueError, match=message) as caught:
    _fit(keys=keys)
  assert '\n' not in str(caught.value)


@pytest.mark.every(1)
@pytest.mark.parametrize('init_keys, message', [
  (KEYS, 'init_key of run 0 counts as public'),
  (KEYS[::-1], 'init_key of run 0'),
  (jnp.stack([jax.random.key(9), states.streams(KEYS[0]).noise]),
   'init_key of run 1'),
  (jnp.stack([jax.random.key(4)] * 2), 'init_key of run 0 .* derived from it'),
  (list(KEYS), 'got a list; jnp.stack makes'),
  (jax.random.key_data(KEYS), r'typed keys \[2\].* got uint32 \[2, 2\]'),
  (jnp.zeros([2], jnp.uint32), r'typed keys \[2\].* got uint32 \[2\]')])
def test_keys_of_initial_parameters_tell_of_no_secret(init_keys, message):
  with pytest.raises(ValueError, match=message) as caught:
    _fit(init_keys=init_keys)
  assert '\n' not in str(caught.value)


@pytest.mark.every(2)
def test_keys_of_initial_parameters_may_be_public():
  for init_keys in (jax.vmap(states.streams)(KEYS).init,
                    jnp.stack([jax.random.key(5)] * 2),
                    keys_lib.system_keys(2)):
    requirements.check_init_keys(init_keys, KEYS)
    requirements.check_init_keys(init_keys, keys_lib.system_keys(2))


def test_initial_parameters_of_the_secret_key_would_give_noise_away():
  """Bits drawn from a secret key reveal the XOR of words of its stream keys.

  So published initial parameters need a key of their own.

  The check of keys prevents this.
  """
  key = jax.random.key(1234)
  published = jax.random.bits(key, (4,))
  left, right = jax.random.key_data(jax.random.split(key, 4)).T
  np.testing.assert_array_equal(published, left ^ right)


def test_preparation_takes_each_record_alone():
  scaled = _model()._replace(prepare=lambda x: x / 3)
  requirements.check_preparation(scaled, RECORDS)
  standardised = _model()._replace(
    prepare=lambda x: x - jnp.mean(x, 0, keepdims=True))
  with pytest.raises(ValueError, match='Model.prepare must take each record'):
    _fit(model=standardised)


def _views(draw):
  """Returns DP-SGD on one view per record, drawn by draw(key, numbers, x)."""
  method = methods.dp_sgd(_model(lambda p, x: x[:, 0] @ p['w']), LOSS,
                          clip_norm=1.0)
  return method._replace(bounder=method.bounder._replace(
    views=lambda key, numbers, x: draw(key, numbers, x)[:, None]))


def _jittered(key, numbers, x):
  keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(numbers)
  return x + jax.vmap(lambda key: jax.random.normal(key, (3,)))(keys)


@pytest.mark.every(1)
@pytest.mark.parametrize('draw, message', [
  (lambda key, numbers, x: 0.9 * x + 0.1 * jnp.roll(x, 1, 0), 'mixes records'),
  # This draw is the identity on batches of four.
  (lambda key, numbers, x: 0.9 * x + 0.1 * jnp.roll(x, 4, 0), 'mixes records'),
  (lambda key, numbers, x: _jittered(key, jnp.arange(numbers.size), x),
   'depends on its place in the batch'),
  (lambda key, numbers, x: x + jax.random.normal(key, x.shape),
   'depends on its place in the batch'),
  (lambda key, numbers, x: _jittered(key, numbers[::-1], x), 'mixes records'),
  (lambda key, numbers, x: x[:1], r'one row for each record.* \[1, 1, 3\]')])
def test_views_that_mix_records_are_refused(draw, message):
  with pytest.raises(ValueError, match=f'views of a bounder .*{message}|'
                     f'{message}.* views of a bounder') as caught:
    _fit(method=_views(draw))
  assert '\n' not in str(caught.value)


def test_views_of_each_record_alone_are_taken():
  requirements.check_views(_views(_jittered).bounder, _model(), RECORDS)


def test_keys_of_other_generators_are_compared_too():
  for name in ('rbg', 'unsafe_rbg'):
    keys = jax.random.split(jax.random.key(0, impl=name), 3)
    requirements.check_keys(keys, 3)
    with pytest.raises(ValueError, match='runs 1 and 2 have equal keys'):
      requirements.check_keys(keys[jnp.array([0, 1, 1])], 3)


def test_streams_of_runs_and_of_parts_of_a_run_are_distinct():
  """No two keys of batches or noise coincide across runs, steps and streams."""
  num_runs, num_steps = 20, 200
  streams = jax.vmap(states.streams)(jax.random.split(jax.random.key(7),
                                                      num_runs))
  steps = jnp.arange(num_steps, dtype=jnp.int32)
  fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
  words = [jax.random.key_data(fold(each, steps)) for each in streams]
  words += [jax.random.key_data(each)[:, None] for each in streams]
  words = np.concatenate([np.reshape(each, (-1, 2)) for each in words])
  assert len(np.unique(words, axis=0)) == len(words) == (
    4 * num_runs * (num_steps + 1))


def test_an_optimizer_with_a_privatizer_is_refused():
  noisy = privatizer.gaussian_privatizer(
    jax.random.key(0), noise_multiplier=1.0, expected_batch_size=5)
  for chain in ((noisy, optax.sgd(1.0)), (optax.adam(0.1), noisy), (noisy,)):
    with pytest.raises(ValueError, match='the optimizer has a privatizer'):
      _fit(optimizer=optax.chain(*chain))


@pytest.mark.every(1)
@pytest.mark.parametrize('optimizer', [
  optax.sgd(float('nan')), optax.sgd(float('inf'), momentum=0.9),
  optax.sgd(lambda step: 1.0 / step.astype(jnp.float32)),
  optax.chain(optax.clip(1.0), optax.scale(float('nan')))])
def test_optimizers_that_step_by_no_number_are_refused(optimizer):
  with pytest.raises(ValueError, match=r"steps by NaN .* at \['w'\].*rate"
                     ) as caught:
    _fit(optimizer=optimizer)
  assert '\n' not in str(caught.value)


def test_optimizers_with_a_first_rate_of_zero_are_not():
  def update(updates, state, params=None, *, value):
    return jax.tree.map(lambda leaf: leaf * value, updates), state

  for optimizer in (
      optax.sgd(lambda step: jnp.minimum(1.0, step.astype(jnp.float32) / 9)),
      optax.chain(optax.normalize_by_update_norm(), optax.sgd(0.0)),
      # This optimizer is not tried, because it asks for a value.
      optax.GradientTransformationExtraArgs(
        lambda params: optax.EmptyState(), update)):
    requirements.check_optimizer(_model(), optimizer)


def test_parameters_are_floating_numbers():
  for value in (3, jnp.arange(2)):
    model = _model(depth=value)
    with pytest.raises(TypeError, match=r"got int\d+ at \['depth'\]"):
      _fit(model)


@pytest.mark.every(2)
def test_python_floats_are_parameters(honest):
  scaled = lambda p, x: p['scale'] * (x @ p['w'])
  fitted = _fit(_model(scaled, scale=1.0))
  assert fitted.state.params['scale'].shape == (2,)
  assert fitted.state.params['scale'].dtype == jnp.float32
  assert (fitted.state.params['scale'] != 1.0).all()
  assert fitted.state.params['w'].shape == honest.state.params['w'].shape


@pytest.mark.every(4)
def test_pairs_trees_and_numpy_are_records(honest):
  _same(_fit(records=tuple(RECORDS)), honest)
  _same(_fit(records=tuple(map(np.asarray, RECORDS))), honest)
  x, y = RECORDS
  model = _model(lambda p, x: jnp.concatenate([x['a'], x['b']], 1) @ p['w'])
  _same(_fit(model, records=({'a': x[:, :1], 'b': x[:, 1:]}, y)), honest)
  for records, message in (({'x': x, 'y': y}, 'got a dict of 2'),
                           ((x, y[:-1]), r'shapes \[30, 3\], \[29\]')):
    with pytest.raises(ValueError, match=message):
      _fit(records=records)


def test_losses_and_networks_that_mix_records_are_refused():
  mean = losses.LipschitzLoss(lambda z, y: jnp.mean(LOSS.values(z, y)), 2.0)
  with pytest.raises(ValueError, match='one value for each record'):
    _fit(loss=mean)

  class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
      return nn.Dense(2)(nn.BatchNorm(use_running_average=False)(x))

  network = Network()
  variables = network.init(jax.random.key(0), RECORDS.x)
  statistics = variables['batch_stats']
  model = Model(
    init=lambda key: network.init(key, RECORDS.x)['params'], network=None,
    apply=lambda p, x: network.apply({'params': p, 'batch_stats': statistics},
                                     x, mutable=['batch_stats'])[0])
  with pytest.raises(ValueError, match='mixes records.*first in .*BatchNorm_0'):
    _fit(model)


def test_no_plan_is_refused():
  with pytest.raises(ValueError, match='at least one plan'):
    _fit(plans=[])
