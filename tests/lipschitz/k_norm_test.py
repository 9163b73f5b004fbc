"""These tests compare vector p-norms of gradients with bounds (LDP-03)."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import k_norm
from dpjax.lipschitz import losses
from dpjax.lipschitz import pointwise
from dpjax.lipschitz.layers import Dense
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.models import mlp
from dpjax.typing import Batch

LOSS = losses.cross_entropy()
ORDERS = [1., math.inf]


def _norms(model, bounder, params, x, y, order):
  """Returns vector p-norms [records, layers], layers in order of names."""
  def one(x, y):
    total = bounder.sums(params, Batch(x[None], y[None]),
                         jnp.ones([1], jnp.bool_)).total
    flat = [jnp.concatenate([leaf.ravel() for leaf in total[name].values()])
            for name in sorted(total)]
    return jnp.stack([jnp.linalg.norm(v, order) for v in flat])
  return jax.jit(jax.vmap(one))(x, y)


def _random(model, rng):
  shapes = jax.eval_shape(model.init, jax.random.key(0))
  return jax.tree.map(lambda leaf: jnp.asarray(
    rng.normal(size=leaf.shape) * 2, jnp.float32), shapes)


def check_bounds(bounds_of, order):
  """Checks that no record exceeds its bound and
  one comes near in the last layer."""
  best = 0.
  # With inputs shorter than 1 the bias has the largest gradient.
  for depth, radius in ((0, 2.), (0, 0.2), (1, 0.2), (2, 2.)):
    model = mlp.mlp(num_features=4, num_classes=2, depth=depth, width=3,
                    input_radius=radius, hidden_radius=0.75 * radius)
    bounder = k_norm.certified(model.network, LOSS, order=order)
    constrain = k_norm.clip_weights(model.network, weight_norm=1.2,
                                    order=order).constrain
    rng = np.random.default_rng(depth)
    for _ in range(3):
      params, certificate = constrain(_random(model, rng))
      limits = bounds_of(bounder, certificate)
      limits = np.array([float(limits[name]) for name in sorted(limits)])
      x = rng.normal(size=(64, 4)) * np.logspace(-3, 20, 64)[:, None]
      x[:8] = np.sign(x[:8])
      norms = _norms(model, bounder, params, jnp.asarray(x, jnp.float32),
                     jnp.asarray(np.arange(64) % 2, jnp.int32), order)
      ratios = np.asarray(norms) / limits
      assert ratios.max() <= 1 + 1e-6
      best = max(best, ratios[:, -1].max())
  assert best > 0.4


@pytest.mark.sound
@pytest.mark.parametrize('order', ORDERS)
def test_no_gradient_exceeds_its_bound(order):
  check_bounds(lambda bounder, c: bounder.l2_sensitivity(c), order)


@pytest.mark.parametrize('order', ORDERS)
def test_weights_keep_the_norm_that_sends_cotangents_back(order):
  """The constraint holds ||W||_{p->p} of the map delta -> W delta.

  The map x -> x W has another norm.
  """
  model = mlp.mlp(num_features=4, num_classes=3, depth=1, width=5,
                  input_radius=1., hidden_radius=1.)
  params, certificate = k_norm.clip_weights(
    model.network, weight_norm=0.7, order=order).constrain(
      _random(model, np.random.default_rng(0)))
  for name, bound in certificate.items():
    exact = np.linalg.norm(np.float64(params[name]['kernel']), order)
    assert exact <= float(bound) <= 0.7 * (1 + 3e-5)


def test_bounds_by_hand():
  model = mlp.mlp(num_features=4, num_classes=2, depth=1, width=4,
                  input_radius=2., hidden_radius=1.)
  certificate = {'dense_00': 3., 'dense_01': 0.5}
  root = math.sqrt(2)
  sensitivities = k_norm.certified(model.network, LOSS,
                                   order=1.).l2_sensitivity(certificate)
  # The cotangent has l1 norm sqrt(2) sqrt(2 classes); ||x||_1 <= 2 ||x||_2.
  assert float(sensitivities['dense_01']) == pytest.approx(
      2 * (2 + 1), rel=1e-4)
  assert float(sensitivities['dense_00']) == pytest.approx(
      2 * 0.5 * (4 + 1), rel=1e-4)
  sensitivities = k_norm.certified(model.network, LOSS,
                                   order=math.inf).l2_sensitivity(certificate)
  assert float(sensitivities['dense_01']) == pytest.approx(root, rel=1e-4)
  assert float(sensitivities['dense_00']) == pytest.approx(
      root * 0.5 * 2, rel=1e-4)


@pytest.mark.parametrize('order, factor', [(1., 2 * 0.1 + 1), (math.inf, 1)])
def test_the_bias_of_short_inputs_counts(order, factor):
  """The bias counts for short inputs: ||(x, 1)||_inf is 1, not 0.1."""
  model = mlp.mlp(num_features=4, num_classes=2, depth=0, input_radius=0.1)
  sensitivities = k_norm.certified(model.network, LOSS,
                                   order=order).l2_sensitivity({'dense_00': 1.})
  cotangent = math.sqrt(2) * (math.sqrt(2) if order == 1 else 1)
  assert float(sensitivities['dense_00']) == pytest.approx(
      cotangent * factor, rel=1e-4)


@pytest.mark.parametrize('order', ORDERS)
def test_constants_of_activations_count(order):
  """Steep activations raise the sensitivity and flat ones lower it."""
  for activation, constant, ceiling in (
      (pointwise.tempered_sigmoid(2.0, 6.0, 1.0), 3.0, 1.0),
      (pointwise.activation('sigmoid'), 0.25, 1.0)):
    network = Network(input_shape=(4,), input_radius=2.0, root=Chain(
      name='net', nodes=(Dense(name='a', width=9), activation,
                         Dense(name='b', width=2))))
    sensitivities = k_norm.certified(network, LOSS, order=order).l2_sensitivity(
      {'a': 5.0, 'b': 0.7})
    # Nine numbers of at most the ceiling have length 3, or 9 in l1.
    cotangent, entering, first = (
      (2, 9 * ceiling + 1, 5) if order == 1 else (math.sqrt(2), 3 * ceiling, 2))
    assert float(sensitivities['b']) == pytest.approx(cotangent * entering,
                                                      rel=1e-4)
    assert float(sensitivities['a']) == pytest.approx(
      cotangent * 0.7 * constant * first, rel=1e-4)


def test_refuses_what_has_no_constant_in_the_norm():
  """Layers without a constant in the norm are refused (E13)."""
  network = Network(input_shape=(4,), input_radius=1., root=Chain(
    name='net', nodes=(Dense(name='a', width=3),
                       pointwise.Ball(name='ball', radius=1.),
                       Dense(name='b', width=2))))
  with pytest.raises(ValueError, match="'ball' has no constant in l1"):
    k_norm.certified(network, LOSS, order=1.)
  pairs = mlp.mlp(num_features=4, num_classes=2, depth=1, input_radius=1.,
                  hidden_radius=1., activation='maxmin')
  with pytest.raises(ValueError, match='has no constant in l1'):
    k_norm.certified(pairs.network, LOSS, order=1.)
  plain = mlp.mlp(num_features=4, num_classes=2, depth=1, input_radius=1.,
                  activation='relu')
  with pytest.raises(ValueError, match="for the input of layer 'dense_01'"):
    k_norm.certified(plain.network, LOSS, order=1.)


def test_fault_bias_forgotten():
  def wrong(bounder, certificate):
    sensitivities = bounder.l2_sensitivity(certificate)
    last = max(sensitivities)
    return {**sensitivities, last: sensitivities[last] * 0.3}
  with pytest.raises(AssertionError):
    check_bounds(wrong, 1.)
