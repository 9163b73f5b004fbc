"""Tests of optimisers, averages and clip norms of `make_private` by name."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.grads import clipping
from dpjax.grads import quantiles
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.privacy.adjacency import Adjacency
from dpjax.train import adam
from dpjax.train import averaging
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train import optimizers
from dpjax.train import plan as plans
from dpjax.train.private import make_private
from dpjax.typing import Batch

_SIZE, _STEPS = 40, 3
_MODEL = mlp.mlp(num_features=3, num_classes=2, depth=1, width=4)
_LOSS = losses.cross_entropy()


def _records():
  rng = np.random.default_rng(0)
  return Batch(jnp.asarray(rng.normal(size=(_SIZE, 3)), jnp.float32),
               jnp.asarray(rng.integers(2, size=_SIZE), jnp.int32))


def _loss(params, batch):
  return _LOSS.values(_MODEL.apply(params, batch.x), batch.y)


def _trained(optimizer='sgd', steps=_STEPS, **changed):
  """Returns (object, states [steps + 1]) of a run."""
  private = make_private(_loss, optimizer, **dict(
      num_examples=_SIZE, batch_size=12, noise_multiplier=0.5, per='batch',
      steps=steps, delta=1e-5, max_batch_size=8) | changed)
  states = [private.init(_MODEL.init(jax.random.key(5)), key=jax.random.key(3))]
  for _ in range(steps):
    states.append(private.step(states[-1], _records())[0])
  return private, states


def _close(left, right):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-5), left,
               right)


def _fitted(method, optimizer, **changed):
  """Returns the result of the same run by `loop.fit`."""
  plan = plans.private_plan(
      num_examples=_SIZE, batch_size=12, num_steps=_STEPS, epsilon=8.0,
      delta=1e-5, adjacency=Adjacency.ADD_OR_REMOVE_ONE, max_batch_size=8)
  return loop.fit(
      jax.random.key(3)[None], init_keys=jax.random.key(5)[None], plans=[plan],
      model=_MODEL, method=method, optimizer=optimizer, records=_records(),
      rows=jnp.arange(_SIZE, dtype=jnp.int32)[None], **changed)


@pytest.mark.every(14)
@pytest.mark.parametrize('optimizer, changed, method', [
    ('momentum', dict(schedule='cosine', average='ema'),
     methods.dp_sgd(_MODEL, _LOSS, clip_norm=1.0)),
    ('noise_corrected_adam', dict(average='polyak'),
     methods.dp_sgd_per_layer(_MODEL, _LOSS, clip_norm=1.0)),
    ('sgd', dict(clip_norm='adaptive_layers'), methods.dp_sgd_adaptive(
        _MODEL, _LOSS, clip_norm=1.0, noise_stddev=0.05 * 12,
        clip_blocks='layers')),
])
def test_the_steps_are_those_of_fit(optimizer, changed, method):
  """Batches, sums, noise, optimiser and average agree, from the same key."""
  if method.name == 'dp_sgd_per_layer':
    changed = changed | {'clip_norm': clipping.of_layers(
        _MODEL.init(jax.random.key(0)), clip_norm=1.0)}
  private, states = _trained(optimizer, noise_multiplier=None, epsilon=8.0,
                             learning_rate=0.3, **changed)
  fitted = _fitted(
      method, optimizers.named(
          optimizer, 0.3, schedule=changed.get('schedule', 'constant'),
          num_steps=_STEPS), averaging=averaging.named(changed.get('average')))
  run = jax.tree.map(lambda leaf: leaf[0], fitted.state)
  _close(states[-1].params, run.params)
  _close(states[-1].radii, run.radii)
  _close(states[-1].average, run.average)
  assert private.plan.event == fitted.events[0]


@pytest.mark.parametrize('name', averaging.NAMES)
def test_averages_are_those_of_the_states(name):
  private, states = _trained(optax.sgd(1.0), average=name)
  averager = averaging.named(name)
  expected = averager.init(states[0].params)
  for state in states[1:]:
    expected = averager.update(expected, state.params)
  averaged = private.model(states[-1], average=True)
  _close(averaged, expected.mean)
  moved = lambda params: float(np.abs(params['dense_00']['kernel'] - states[
      -1].params['dense_00']['kernel']).max())
  assert moved(averaged) > 0.01 and moved(private.model(states[-1])) == 0


def test_without_an_average_there_is_none():
  private, states = _trained(optax.sgd(1.0), steps=1)
  assert states[-1].average == ()
  with pytest.raises(ValueError, match='no average is kept'):
    private.model(states[-1], average=True)


@pytest.mark.every(6)
def test_averages_change_no_step_and_may_be_donated():
  expected = _trained(optax.sgd(1.0))[1][-1].params
  private, states = _trained(optax.sgd(1.0), average='ema', donate=True)
  _close(states[-1].params, expected)
  assert states[1].average.mean['dense_00']['kernel'].is_deleted()
  assert private.epsilon() == private.epsilon(states[-1])


@pytest.mark.parametrize('name, expected', [
    ('sgd', optax.sgd), ('adam', optax.adam),
    ('momentum', lambda rate: optax.sgd(rate, momentum=0.9)),
    ('noise_corrected_adam', lambda rate: adam.noise_corrected(
        rate, noise_stddev=0.0))])
def test_names_are_those_optimizers(name, expected):
  gradient = {'w': jnp.asarray([3.0, -0.5])}
  given, wanted = optimizers.named(name, 0.1), expected(0.1)
  states = given.init(gradient), wanted.init(gradient)
  for _ in range(2):
    with jax.numpy_dtype_promotion('standard'):  # Adam of optax needs it.
      ours, one = optax.with_extra_args_support(given).update(
          gradient, states[0], gradient, noise_stddev=jnp.float32(0))
      theirs, two = wanted.update(gradient, states[1], gradient)
    states = one, two
  _close(ours, theirs)


@pytest.mark.every(2)
def test_the_cosine_schedule_ends_at_zero():
  _, states = _trained('sgd', steps=5, learning_rate=0.4, schedule='cosine')
  _, plain = _trained('sgd', steps=5, learning_rate=0.4)
  # The first step of both has the same rate; with 4 of 5 steps done the rate
  # is (1 + cos(0.8 pi)) / 2 of that.
  _close(states[1].params, plain[1].params)
  transform = optimizers.named('sgd', 0.4, schedule='cosine', num_steps=5)
  state, rates = transform.init(jnp.float32(0)), []
  for _ in range(6):
    update, state = transform.update(jnp.float32(-1), state)
    rates.append(float(update))
  np.testing.assert_allclose(
      rates, 0.2 * (1 + np.cos(np.pi * np.arange(6) / 5)), atol=1e-6)


def test_layers_of_any_parameters():
  layer = {'bias': jnp.ones(2), 'kernel': jnp.ones([2, 2])}
  params = {'blocks': [layer, {'attention': layer, 'scale': jnp.float32(1)}],
            'token': jnp.ones(3), 'frozen': None, 'empty': {'norm': None}}
  assert clipping.of_layers(params, clip_norm=2.0) == {
      'blocks': [1.0, {'attention': 1.0, 'scale': 1.0}], 'token': 1.0,
      'frozen': None, 'empty': {'norm': None}}
  assert clipping.of_layers(layer, clip_norm=2.0) == 2.0
  assert clipping.of_layers(jnp.ones(3), clip_norm=2.0) == 2.0


def test_clip_norms_of_layers_adapt_one_by_one_for_the_price_of_one():
  """Each follows the median norm of its layer, here 0.02 and 30."""

  def loss(params, record):
    return (0.02 * params['small']['w'] + 30 * params['large']['w']) * record

  params = {'small': {'w': jnp.float32(0)}, 'large': {'w': jnp.float32(0)}}
  private = make_private(
      loss, optax.sgd(0.0), num_examples=400, batch_size=200, per='record',
      noise_multiplier=1.0, clip_norm='adaptive_layers', steps=60, delta=1e-5)
  state = private.init(params, key=jax.random.key(0))
  records = jnp.asarray(np.random.default_rng(0).permutation(
      np.linspace(0.5, 1.5, 400)), jnp.float32)
  for _ in range(60):
    state, info = private.step(state, records)
  assert float(state.radii['small']) == pytest.approx(0.02, rel=0.25)
  assert float(state.radii['large']) == pytest.approx(30, rel=0.25)
  assert info.l2_sensitivity.shape == (2,)
  # The joint multiplier, counts included, is that of the plan.
  assert float(info.joint_noise_multiplier) == pytest.approx(1.0, rel=1e-4)
  one, layers = (quantiles.gradient_noise_multiplier(1.0, each) for each in (
      quantiles.geometric(1.0, target_quantile=0.5, learning_rate=0.2,
                          noise_stddev=10.0), private.clip_norm.of(params)))
  assert layers == pytest.approx(one)
