"""These tests check which norms no sensitivity
reads, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import quantiles
from dpjax.lipschitz import adaptive
from dpjax.lipschitz import bounder as bounders
from dpjax.lipschitz import losses
from dpjax.lipschitz import projection
from dpjax.lipschitz import rules
from dpjax.models import convnet
from dpjax.models import mlp
from dpjax.models import model as models
from dpjax.models import wide_resnet
from dpjax.models.bounding import Bounding
from dpjax.train import methods

_LOSS = losses.cross_entropy(logit_clip=0.5)


def _mlp(hidden_radius=1.5, bias_norm=None, adaptive_balls=False):
  return mlp.mlp(num_features=5, num_classes=3, depth=2, width=4,
                 activation='tanh', input_radius=2.0,
                 hidden_radius=hidden_radius, bias_norm=bias_norm,
                 adaptive=adaptive_balls)


def _images(make, **options):
  return make(input_shape=(8, 8, 1), num_classes=3, input_radius=2.0,
              bounding=Bounding(kind='ball', radius=2.0, alpha=1.0,
                                num_groups=2), **options)


MODELS = {
    'balls': _mlp,
    'propagated': lambda: _mlp(hidden_radius=None, bias_norm=1.0),
    'convnet': lambda: _images(convnet.convnet, channels=(2, 3), width=4,
                               kernel_size=3, stride=1, pool='max',
                               use_bias=True, activation='tanh'),
    'wide_resnet': lambda: _images(wide_resnet.wide_resnet, depth=10,
                                   widening=1, averaged=True),
}


def _certified(model, rule=None):
  return bounders.certified(model.network, _LOSS, weight_norm=1.0, rule=rule)


def _free(model, bounder):
  return projection.unread(bounder.l2_sensitivity,
                           model.network.fill(jnp.float32(1)))


@pytest.mark.every(3)
@pytest.mark.parametrize('rule', [None, rules.normalised()],
                         ids=['plain', 'normalised'])
@pytest.mark.parametrize('name', MODELS)
def test_free_norms_are_those_that_move_no_bound(name, rule):
  model = MODELS[name]()
  bounder = _certified(model, rule)
  ones = model.network.fill(jnp.float32(1))
  leaves, structure = jax.tree.flatten(ones)
  sensitivity = jax.jit(bounder.l2_sensitivity)
  before = np.stack(jax.tree.leaves(sensitivity(ones)))
  moves = []
  for number in range(len(leaves)):
    # Smaller weights are tried too, because a ball may hold larger ones.
    changed = [np.stack(jax.tree.leaves(sensitivity(structure.unflatten(
        [jnp.float32(value if i == number else 1)
         for i in range(len(leaves))])))) for value in (0.01, 100.0)]
    moves.append(any((after != before).any() for after in changed))
  free = jax.tree.leaves(_free(model, bounder))
  # No norm that is read is free; free layers only stand before a ball.
  assert not any(
      is_free and moves_bound for is_free, moves_bound in zip(free, moves))
  if name in ('balls', 'convnet'):
    assert [not moves_bound for moves_bound in moves] == free
    assert sum(free) == 1
  if name == 'propagated' and rule is None:
    assert not any(free)


@pytest.mark.parametrize('name', [
    'balls', pytest.param('convnet', marks=pytest.mark.slow)])
def test_between_only_free_kernels_drift(name):
  model = MODELS[name]()
  bounder = _certified(model)
  free = _free(model, bounder)
  held_by = projection.clip_weights(model.network, weight_norm=1.0)
  constraint = projection.rarely(held_by, model.network, bounder, every=3)
  params = jax.tree.map(lambda leaf: 40 * leaf + 1,
                        model.init(jax.random.key(0)))
  held, certificate = jax.jit(held_by.constrain)(params)
  loose, partial = jax.jit(constraint.between)(params)
  for path, is_free in jax.tree_util.tree_leaves_with_path(free):
    name, = (key.key for key in path)
    if is_free:
      np.testing.assert_array_equal(loose[name]['kernel'],
                                    params[name]['kernel'])
      assert partial[name] == np.inf
    else:
      np.testing.assert_array_equal(loose[name]['kernel'],
                                    held[name]['kernel'])
      assert partial[name] == certificate[name]
  # The noise is scaled to the same bounds.
  jax.tree.map(np.testing.assert_array_equal,
               bounder.l2_sensitivity(partial),
               bounder.l2_sensitivity(certificate))


def test_free_norms_are_not_computed_between():
  model = _mlp()
  bounder = _certified(model)
  constraint = projection.rarely(
      projection.clip_weights(model.network, weight_norm=1.0), model.network,
      bounder, every=3)
  params = model.init(jax.random.key(0))
  flops = [jax.jit(function).lower(params).compile().cost_analysis()['flops']
           for function in (constraint.constrain, constraint.between)]
  assert flops[1] < 0.8 * flops[0]


def test_bounded_biases_stay_bounded():
  model = _mlp(bias_norm=0.5)
  bounder = _certified(model)
  constraint = projection.rarely(
      projection.clip_weights(model.network, weight_norm=1.0), model.network,
      bounder, every=2)
  params = jax.tree.map(lambda leaf: leaf + 3, model.init(jax.random.key(0)))
  for layer in jax.jit(constraint.between)(params)[0].values():
    assert np.linalg.norm(layer['bias']) <= 0.5


def test_everything_is_held_when_it_is_due():
  model = _mlp()
  method = methods.lip_dp_sgd(model, _LOSS, weight_norm=1.0, recertify_every=3)
  params = jax.tree.map(lambda leaf: 40 * leaf, model.init(jax.random.key(0)))
  after = jax.jit(method.constraint.after_step)
  for step in range(1, 7):
    held, certificate = after(params, jnp.int32(step))
    norms = [np.linalg.norm(layer['kernel'], 2) for layer in held.values()]
    certified = np.stack(jax.tree.leaves(certificate))
    assert np.all(certified >= norms)
    assert (max(norms) <= 1) == np.all(np.isfinite(certified)) == (
        step % 3 == 0)


def test_adaptive_balls_are_balls():
  model = _mlp(adaptive_balls=True)
  bounder = adaptive.adaptively_certified(
      model.network, _LOSS, weight_norm=1.0,
      make_adaptive=lambda radii: quantiles.geometric(
          radii, target_quantile=0.9, learning_rate=0.2, noise_stddev=10.0))
  constraint = projection.clip_weights(model.network, weight_norm=1.0)
  rare = projection.rarely(constraint, model.network, bounder, every=2)
  assert rare.between is not None


def test_without_free_norms_nothing_changes():
  model = MODELS['propagated']()
  constraint = projection.clip_weights(model.network, weight_norm=1.0)
  for bounder, every in ((_certified(model), 5), (_certified(_mlp()), 1)):
    assert projection.rarely(constraint, model.network, bounder,
                             every=every) is constraint


def test_bad_settings_are_refused():
  with pytest.raises(ValueError, match='recertify_every must be an integer >= 1'):
    methods.lip_dp_sgd(_mlp(), _LOSS, weight_norm=1.0, recertify_every=0)
  with pytest.raises(ValueError, match='reparametrised'):
    methods.lip_dp_sgd(models.reparametrised(
        _mlp(), 'orthogonal', weight_norm=1.0), _LOSS, weight_norm=1.0,
                       recertify_every=2)
