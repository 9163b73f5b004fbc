"""Tests of infinite clip norms, and of parameters that are scalars."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.grads import per_example
from dpjax.grads import privatizer
from dpjax.grads import weighted
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train import plan as plans
from dpjax.typing import Batch

_SIZE = 9
_KERNELS = tuple(per_example.KERNELS)


def _apply(params, x):
  hidden = jnp.tanh(x @ params['kernel'] * params['scale'] + params['shift'])
  return params['power'] * hidden


def _loss(logits, labels):
  return jnp.sum(jnp.square(logits), -1) * labels


def _params():
  draw = np.random.default_rng(0).normal
  return {'kernel': jnp.asarray(draw(size=(4, 3)), jnp.float32),
          'scale': jnp.float32(1.5), 'shift': 0.25, 'power': jnp.float32(-2)}


def _batch():
  rng = np.random.default_rng(1)
  return Batch(jnp.asarray(rng.normal(size=(_SIZE, 4)), jnp.float32),
               jnp.asarray(rng.random(_SIZE), jnp.float32))


_MASK = jnp.arange(_SIZE) != 2


def _gradients():
  """Returns the gradients [b, ...] of all records in float64."""
  with jax.enable_x64(True):
    double = lambda values: jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.float64), values)
    return jax.tree.map(np.asarray, per_example.per_example_gradients(
        _apply, _loss, double(_params()), double(_batch()))[1])


def _record_loss(params, record):
  x, y = record
  return _loss(_apply(params, x[None]), y[None])[0]


def _bounders(kernel, clip_norm):
  """Returns sums of the same losses by a network and by a loss of a record."""
  network = per_example.clipped(_apply, _loss, clip_norm=clip_norm,
                                kernel=kernel)
  record = weighted.of_record_loss(_record_loss, clip_norm=clip_norm,
                                   kernel=kernel)
  return (lambda batch: network.sums(_params(), batch, _MASK),
          lambda batch: record.sums(
              jax.tree.map(jnp.float32, _params()),
              Batch(tuple(batch), batch.y), _MASK))


@pytest.mark.parametrize('kernel', _KERNELS)
@pytest.mark.parametrize('clip_norm', [
    0.4, {'kernel': 0.4, 'scale': 0.1, 'shift': 0.3, 'power': 0.2}])
def test_parameters_may_be_scalars(kernel, clip_norm):
  gradients = _gradients()
  for sums in _bounders(kernel, clip_norm):
    total = jax.jit(sums)(_batch()).total
    norm = lambda leaf: np.sqrt((leaf.reshape(_SIZE, -1)**2).sum(1))
    norms = {name: norm(leaf) for name, leaf in gradients.items()}
    if isinstance(clip_norm, float):
      norms = dict.fromkeys(norms, np.sqrt(sum(
          np.square(each) for each in norms.values())))
    for name, leaf in gradients.items():
      bound = clip_norm if isinstance(clip_norm, float) else clip_norm[name]
      weights = np.minimum(1, bound / norms[name]) * np.asarray(_MASK)
      assert weights.min() < 1 and total[name].shape == leaf.shape[1:]
      np.testing.assert_allclose(total[name], np.tensordot(weights, leaf, 1),
                                 rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('kernel', _KERNELS)
@pytest.mark.parametrize('infinity', [np.inf, np.float32(np.inf)])
def test_an_infinite_clip_norm_clips_nothing(kernel, infinity):
  bounder = per_example.clipped(_apply, _loss, clip_norm=infinity,
                                kernel=kernel)
  sums = jax.jit(bounder.sums)(_params(), _batch(), _MASK)
  jax.tree.map(lambda leaf, total: np.testing.assert_allclose(
      total, np.tensordot(np.asarray(_MASK, np.float64), leaf, 1), rtol=1e-4,
      atol=1e-5), _gradients(), sums.total)
  assert bounder.l2_sensitivity(()) == np.inf


@pytest.mark.every(2)
def test_no_noise_makes_unclipped_sums_private():
  bounder = per_example.clipped(_apply, _loss, clip_norm=np.inf)
  transform = privatizer.gaussian_privatizer(
      jax.random.key(0), noise_multiplier=1.0, expected_batch_size=5)
  total = jax.jit(bounder.sums)(_params(), _batch(), _MASK).total
  mean, state = jax.jit(transform.update)(
      total, transform.init(total), l2_sensitivity=bounder.l2_sensitivity(()))
  assert not any(np.any(np.isfinite(leaf)) for leaf in jax.tree.leaves(mean))
  assert np.isnan(state.joint_noise_multiplier)
  plan = plans.TrainingPlan(
      sampler=PoissonSampler(num_examples=_SIZE, batch_size=3), num_steps=1,
      noise_multiplier=1.0, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  model = mlp.mlp(num_features=4, num_classes=2, depth=0)
  with pytest.raises(ValueError, match='joint multiplier nan, less than'):
    loop.fit(
        jax.random.key(1)[None], plans=[plan], model=model,
        method=methods.dp_sgd(model, losses.cross_entropy(), clip_norm=np.inf),
        optimizer=optax.sgd(0.1), rows=jnp.arange(_SIZE)[None],
        records=Batch(_batch().x, jnp.zeros(_SIZE, jnp.int32)))


@pytest.mark.parametrize('make', [
    lambda clip: per_example.clipped(_apply, _loss, clip_norm=clip),
    lambda clip: weighted.of_record_loss(_record_loss, clip_norm=clip)])
def test_one_layer_alone_cannot_be_unclipped(make):
  with pytest.raises(ValueError, match='must be the only clip norm'):
    make({'kernel': np.inf, 'scale': 1.0, 'shift': 1.0, 'power': 1.0})
