"""Tests that networks and losses that mix records are refused."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import ball
from dpjax.grads import bounder as bounders
from dpjax.grads import isolation
from dpjax.grads import per_example
from dpjax.grads import quantiles
from dpjax.grads import weighted
from dpjax.lipschitz import losses
from dpjax.models import convnet
from dpjax.models import mlp
from dpjax.models.bounding import Bounding
from dpjax.typing import Batch

LOSS = losses.cross_entropy().values
BATCH = Batch(jnp.ones([6, 5]), jnp.zeros([6], jnp.int32))
WEIGHTS = jnp.ones([5, 3])
KEY = jax.random.key(3)
RADIUS = quantiles.geometric(1.0, target_quantile=0.5, learning_rate=0.2,
                             noise_stddev=1.0)


class Normalised(nn.Module):
  """A dense layer, a normalisation, relu and a dense layer."""
  norm: nn.Module

  @nn.compact
  def __call__(self, x):
    return nn.Dense(3)(nn.relu(self.norm(nn.Dense(8)(x))))


def _flax(norm):
  """Returns (apply, parameters) with all other variables frozen."""
  module = Normalised(norm)
  variables = module.init(KEY, BATCH.x)
  params = variables.pop('params')
  return lambda params, x: module.apply(
    {'params': params, **variables}, x, mutable=['batch_stats'])[0], params


def _ghost(w, x):
  """Subtracts the mean of each pair of records, as ghost normalisation does."""
  z = (x @ w).reshape((-1, 2, 3))
  return (z - z.mean(1, keepdims=True)).reshape((-1, 3))


def _attention(w, x):
  z = x @ w
  return jax.nn.softmax(z @ z.T, -1) @ z


def _sigmoids(x):
  """Applies twelve sigmoids, after which float32 holds nothing of the input."""
  for _ in range(12):
    x = jax.nn.sigmoid(x / 8)
  return x


MIXING = {
  'statistics before many layers': lambda w, x: _sigmoids(
    x - x.mean(0, keepdims=True)) @ w,
  'statistics without a gradient': lambda w, x: _sigmoids(
    x - jax.lax.stop_gradient(x.mean(0, keepdims=True))) @ w,
  'not a number': lambda w, x: jnp.log(-jnp.abs(
    (x - x.mean(0, keepdims=True)) @ w)),
  'as many places as records': lambda w, x: (x + jnp.roll(x, 4, 0)) @ w,
  'as many as other records': lambda w, x: (x + jnp.roll(x, 7, 0)) @ w,
  'backwards': lambda w, x: x[::-1] @ w,
  'every other one': lambda w, x: jnp.concatenate([x[::2], x[1::2]]) @ w,
  'a transform': lambda w, x: jnp.abs(jnp.fft.fft(x, axis=0)) @ w,
  'if all are small': lambda w, x: jax.lax.cond(
    jnp.all(x < 1e9), lambda x: x, jnp.zeros_like, x) @ w,
  'a callback': lambda w, x: jax.pure_callback(
    lambda a: a - np.mean(a, 0, keepdims=True),
    jax.ShapeDtypeStruct(x.shape, x.dtype), x) @ w,
  'statistics of the batch': lambda w, x: (x - x.mean(0, keepdims=True)) @ w,
  'largest of the batch': lambda w, x: x @ w / jnp.max(jnp.abs(x)),
  'pairs': _ghost,
  'attention': _attention,
  'the next record': lambda w, x: jnp.roll(x, 1, 0) @ w,
  'running sum': lambda w, x: jnp.cumsum(x, 0) @ w,
  'the first record': lambda w, x: (x + x[:1]) @ w,
  'only where features are large': lambda w, x: x @ w + jnp.where(
    jnp.max(x) > 100, 1.0, 0.0),
}
APART = {
  'linear': lambda w, x: x @ w,
  'one mask for all records': lambda w, x: jnp.where(
    jax.random.bernoulli(KEY, 0.5, x[:1].shape), x, 0.0) @ w,
  'nan': lambda w, x: jnp.log(-jnp.abs(x @ w)),
  'many layers': lambda w, x: _sigmoids(x) @ w,
  'a callback of each': lambda w, x: jax.pure_callback(
    np.tanh, jax.ShapeDtypeStruct(x.shape, x.dtype), x) @ w,
  'overflow': lambda w, x: jnp.exp(1e3 * x) @ w,
  'bfloat16': lambda w, x: jnp.float32(jnp.bfloat16(x) @ jnp.bfloat16(w)),
}


def _check(apply, params=WEIGHTS, loss=LOSS, batch=BATCH):
  isolation.checker(apply, loss)(params, batch)


@pytest.mark.every(1)
@pytest.mark.parametrize('name', MIXING)
def test_refuses_networks_that_mix_records(name):
  with pytest.raises(ValueError, match='mixes records: .* group or layer norm'
                     ) as caught:
    _check(MIXING[name])
  assert '\n' not in str(caught.value)


@pytest.mark.every(1)
@pytest.mark.parametrize('name', APART)
def test_takes_networks_that_keep_them_apart(name):
  _check(APART[name])


def test_batch_normalisation_is_refused_by_name_and_frozen_is_not():
  apply, params = _flax(nn.BatchNorm(use_running_average=False))
  with pytest.raises(ValueError, match='first in .*norm.*use_running_average'):
    _check(apply, params)
  for norm in (nn.BatchNorm(use_running_average=True), nn.LayerNorm(),
               nn.GroupNorm(num_groups=2)):
    _check(*_flax(norm))


@jax.custom_vjp
def _scaled(z):
  """Returns the logits; its gradient is divided by the norm over the batch."""
  return z


_scaled.defvjp(lambda z: (z, None), lambda _, c: (c / jnp.linalg.norm(c),))


@pytest.mark.every(1)
@pytest.mark.parametrize('loss, message', [
  (lambda z, y: jnp.mean(LOSS(z, y)), r'one value for each record.* shape \[\]'),
  (lambda z, y: z, r'one value for each record.* shape \[4, 3\]'),
  (lambda z, y: LOSS(_scaled(z), y), 'gradients .* mixes records'),
  (lambda z, y: LOSS(z, y) + jnp.sum(z), 'mixes records'),
  (lambda z, y: LOSS(z, y) + jnp.sum(y).astype(jnp.float32), 'mixes records')])
def test_refuses_losses_that_are_not_of_one_record(loss, message):
  with pytest.raises(ValueError, match=message):
    _check(APART['linear'], loss=loss)


@pytest.mark.every(1)
@pytest.mark.parametrize('mixed', [
  lambda x: jnp.any(x == 5), lambda x: jnp.any(x > 100), lambda x: x.sum() > 9])
def test_rare_integers_are_followed_as_well(mixed):
  tokens = Batch(jnp.zeros([6, 9], jnp.int32), BATCH.y)
  table = jnp.ones([7, 3])
  _check(lambda w, x: w[x].sum(1), table, batch=tokens)
  with pytest.raises(ValueError, match='mixes records'):
    _check(lambda w, x: w[x].sum(1) + jnp.where(mixed(x), 1.0, 0.0), table,
           batch=tokens)
  with pytest.raises(ValueError, match='mixes records'):
    _check(APART['linear'], loss=lambda z, y: LOSS(z, y) + jnp.where(
      mixed(y), 1.0, 0.0))


@pytest.mark.parametrize('apply, error, message', [
  (lambda w, x: x @ w if x.sum() > 0 else -x @ w, TypeError,
   'may not branch on values.* jax.lax.cond'),
  (lambda w, x: np.tanh(np.asarray(x)) @ w, TypeError, 'may not .* NumPy'),
  (lambda w, x: x[x[:, 0] > 0] @ w, TypeError, 'may not branch'),
  (lambda w, x: x @ w * jnp.arange(int(x[0, 0])).sum(), TypeError,
   'Python numbers'),
  (lambda w, x: (x.reshape((-1, 6, 5)) - x.reshape((-1, 6, 5)).mean(
    1, keepdims=True)).reshape((-1, 5)) @ w, ValueError,
   'any number of records, each on its own.* ghost batch norm.* 4 records'),
  # Errors of any batch keep their own message.
  (lambda w, x: x[:, :4] @ w, TypeError, r'^dot_general requires')])
def test_networks_that_cannot_be_traced_are_refused(apply, error, message):
  with pytest.raises(error, match=message) as caught:
    _check(apply)
  assert '\n' not in str(caught.value)


def test_callbacks_that_fail_are_named():
  def fails(a):
    raise OSError('no such file')

  with pytest.raises(ValueError, match='operation pure_callback .* failed'
                     ) as caught:
    _check(lambda w, x: jax.pure_callback(
      fails, jax.ShapeDtypeStruct(x.shape, x.dtype), x) @ w)
  assert '\n' not in str(caught.value)


def test_nothing_is_compiled(monkeypatch):
  monkeypatch.setattr(jax.stages.Lowered, 'compile', None)
  _check(*_flax(nn.LayerNorm()))


@pytest.mark.parametrize('apply, message', [
  (lambda w, x: jnp.mean(x @ w, 0), r'one row for each record.* \[3\]'),
  (lambda w, x: (x @ w, {}), 'it gave a tuple'),
  (lambda w, x: jnp.where(jax.random.bernoulli(KEY, 0.5, x.shape), x, 0.0) @ w,
   'depends on its place in the batch')])
def test_refuses_other_outputs(apply, message):
  with pytest.raises(ValueError, match=message):
    _check(apply)


def test_the_models_of_the_package_keep_records_apart():
  for bounding in (Bounding(), Bounding(kind='normalised', affine=True)):
    model = convnet.convnet(input_shape=(6, 6, 2), num_classes=3, width=4,
                            channels=(16, 16), bounding=bounding)
    _check(model.apply, jax.eval_shape(model.init, KEY),
           batch=Batch(jnp.ones([2, 6, 6, 2]), BATCH.y[:2]))
  model = mlp.mlp(num_features=5, num_classes=3, input_radius=1.0,
                  hidden_radius=1.0)
  _check(model.apply, jax.eval_shape(model.init, KEY),
         batch=Batch(ball.project_records(BATCH.x, 1.0), BATCH.y))


@pytest.mark.every(4)
def test_traced_values_and_transformations_are_no_hindrance():
  def sums(apply):
    def run(scale, key):
      bounder = per_example.clipped(
        lambda w, x: scale * apply(w, x) * jax.random.uniform(key), LOSS,
        clip_norm=1.0)
      return bounder.sums(WEIGHTS, BATCH, jnp.ones([6], jnp.bool_)).total
    return run

  honest, mixing = sums(APART['linear']), sums(MIXING['statistics of the batch'])
  expected = honest(2.0, KEY)
  np.testing.assert_allclose(jax.jit(honest)(2.0, KEY), expected, rtol=1e-5)
  draws = jax.vmap(honest, (0, None))(jnp.array([2.0, 3.0]), KEY)
  np.testing.assert_allclose(draws[0], expected, rtol=1e-5)
  for transformed in (jax.jit(mixing), mixing,
                      lambda scale, key: jax.vmap(mixing, (0, None))(
                        jnp.full([2], scale), key)):
    with pytest.raises(ValueError, match='mixes records'):
      transformed(2.0, KEY)


@pytest.mark.every(3)
def test_checks_without_jit():
  with jax.disable_jit():
    sums = per_example.clipped(
        lambda weights, x: x @ weights, LOSS, clip_norm=1.0).sums(
            WEIGHTS, BATCH, jnp.ones(6, jnp.bool_))
    with pytest.raises(ValueError, match='mixes records'):
      isolation.checker(lambda weights, x: x @ weights / jnp.max(x), LOSS)(
          WEIGHTS, BATCH)
  assert jnp.isfinite(sums.total).all()


@pytest.mark.every(2)
def test_each_shape_is_looked_at_once(monkeypatch):
  calls = []
  monkeypatch.setattr(isolation, 'check_isolated',
                      lambda *args: calls.append(args))
  bounder = per_example.clipped(APART['linear'], LOSS, clip_norm=1.0)
  for size in (6, 6, 3):
    jax.eval_shape(
      bounder.sums, WEIGHTS, jax.tree.map(lambda leaf, n=size: leaf[:n], BATCH),
      jnp.ones([size], jnp.bool_))
  assert len(calls) == 1
  bounder.sums(jnp.ones([5, 2]), BATCH, jnp.ones([6], jnp.bool_))
  assert len(calls) == 2


@pytest.mark.every(1)
@pytest.mark.parametrize('make', [
  lambda apply: per_example.clipped(apply, LOSS, clip_norm=1.0),
  lambda apply: per_example.clipped(apply, LOSS, clip_norm=1.0, kernel='vmap'),
  lambda apply: per_example.normalized(apply, LOSS, clip_norm=1.0,
                                       stabilizer=0.1),
  lambda apply: bounders.at_radii(per_example.adaptively_clipped(
    apply, LOSS, adaptive=RADIUS), RADIUS.init),
  lambda apply: per_example.summed(apply, LOSS)])
def test_every_bounder_refuses(make):
  with pytest.raises(ValueError, match='mixes records'):
    make(_attention).sums(WEIGHTS, BATCH, jnp.ones([6], jnp.bool_))


@pytest.mark.every(2)
def test_a_loss_of_one_record_has_nothing_to_mix():
  """Attention over a batch is attention over one record at a time."""
  x = jnp.float32(np.random.default_rng(0).normal(size=(6, 5)))
  bounder = weighted.of_record_loss(lambda w, record: LOSS(
    _attention(w, record[0][None]), record[1][None])[0], clip_norm=1.0)
  total = lambda mask: bounder.sums(
    WEIGHTS, Batch((x, BATCH.y), BATCH.y), jnp.asarray(mask)).total
  alone = [total(np.arange(6) == i) for i in range(6)]
  np.testing.assert_allclose(total(np.ones(6, bool)), sum(alone), atol=1e-6)


@pytest.mark.every(4)
def test_fault_what_the_engine_would_train_of_batch_normalisation(monkeypatch):
  """Without the check, batch normalisation on single
  records trains only biases."""
  monkeypatch.setattr(isolation, 'check_isolated', lambda *args: None)
  apply, params = _flax(nn.BatchNorm(use_running_average=False))
  rng = np.random.default_rng(0)
  batch = Batch(jnp.float32(rng.normal(size=(6, 5))), BATCH.y)
  total = per_example.clipped(apply, LOSS, clip_norm=1.0).sums(
    params, batch, jnp.ones([6], jnp.bool_)).total
  # The last layer is created first.
  for name in ('Dense_0', 'Dense_1'):
    assert not np.any(total[name]['kernel'])
  assert np.any(total['Dense_0']['bias'])
