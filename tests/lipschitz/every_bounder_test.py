"""These tests check what every bounder refuses and where radii are used."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.grads import quantiles
from dpjax.lipschitz import adaptive
from dpjax.lipschitz import bounder
from dpjax.lipschitz import k_norm
from dpjax.lipschitz import layers
from dpjax.lipschitz import losses
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import reparametrisation
from dpjax.lipschitz import rules
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.residual import Residual
from dpjax.typing import Batch

LOSS = losses.cross_entropy()
DENSE = functools.partial(layers.Dense, width=3)
MAKE = functools.partial(quantiles.geometric, target_quantile=0.5,
                         learning_rate=0.2, noise_stddev=5.0)
CAPPED = pointwise.bounded_activation('relu', 1.0)
BALL = functools.partial(pointwise.Ball, adaptive=True)

# Each maps (network, loss, weight_norm) to a bounder.
BOUNDERS = {
  'certified': bounder.certified,
  'normalised': functools.partial(bounder.certified, rule=rules.normalised()),
  'layers': functools.partial(bounder.certified,
                              rule=rules.clipped_layers(clip_norm=1.0)),
  'adaptive': functools.partial(adaptive.adaptively_certified,
                                make_adaptive=MAKE),
  'l1': lambda network, loss, weight_norm: k_norm.certified(
    network, loss, order=1)}


def _chain(name, *nodes):
  return Chain(name=name, nodes=nodes)


def _network(name, *nodes, **settings):
  """Returns a network of two dense layers with the given nodes between."""
  if name == 'adaptive':
    nodes = (*nodes, BALL(name='ball', radius=1.0))
  return Network(root=_chain('root', DENSE(name='first'), *nodes, CAPPED,
                             DENSE(name='last')),
                 input_shape=(2,), **{'input_radius': 1.0} | settings)


def _elementwise(function, lipschitz=1.0):
  return pointwise.Fixed(
    name='given', function=function, lipschitz=lambda shape: lipschitz,
    ceiling=lambda radius, shape: radius, elementwise=True)


@pytest.mark.parametrize('name', BOUNDERS)
@pytest.mark.sound
def test_layers_that_mix_records_are_refused(name):
  mixing = _elementwise(lambda x: (x - jnp.mean(x, 0, keepdims=True)) / 2)
  network = _network(name, mixing)
  bounder = BOUNDERS[name](network, LOSS, weight_norm=1.0)
  radii = () if bounder.adaptive is None else (bounder.adaptive.init,)
  batch = Batch(jnp.ones([4, 2]), jnp.zeros([4], jnp.int32))
  with pytest.raises(ValueError, match='mixes records'):
    bounder.sums(network.init(jax.random.key(0)), batch, jnp.ones([4], bool),
                 *radii)


@pytest.mark.parametrize('name', sorted(set(BOUNDERS) - {'layers'}))
@pytest.mark.sound
def test_what_has_no_bound_is_refused_before_it_runs(name):
  """Every bounder refuses a layer, input or loss without a constant."""
  unknown = pointwise.opaque(lambda x: x, name='strange')
  with pytest.raises(ValueError, match='first|strange'):
    BOUNDERS[name](_network(name, unknown), LOSS, weight_norm=1.0)
  if name != 'normalised':
    with pytest.raises(ValueError, match='first'):
      BOUNDERS[name](_network(name, input_radius=None), LOSS, weight_norm=1.0)
  if name != 'l1':
    with pytest.raises(ValueError, match='constant'):
      BOUNDERS[name](_network(name), losses.squared_error(), weight_norm=1.0)
    small = _network(name, _elementwise(lambda x: 1e-20 * x, 1e-20))
    large = _network(name, _elementwise(lambda x: 1e20 * x, 1e20))
    for network in (small, large):
      with pytest.raises(ValueError, match='float32'):
        BOUNDERS[name](network, LOSS, weight_norm=1.0)


def test_adaptive_radii_are_used_wherever_their_balls_are():
  """Adaptive radii give the bounds of balls that are fixed at these radii."""
  radii = {'a': 0.3, 'b': 0.5, 'c': 0.7, 'd': 0.9}

  def network(ball):
    both = Residual(
      name='both', branch=_chain('branch', DENSE(name='in', bias_norm=1.0),
                                 ball('b'), DENSE(name='out', bias_norm=1.0)),
      shortcut=_chain('shortcut', ball('c'), DENSE(name='in', bias_norm=1.0)))
    return Network(root=_chain(
      'root', ball('a'), DENSE(name='first', bias_norm=2.0), _chain(
        'inner', both, ball('d')), DENSE(name='last')), input_shape=(2,),
                   input_radius=1.0)

  bounds = [jax.tree.map(float, each.gradient_bounds(
    each.fill(0.8), loss_lipschitz=1.5, radii=given)) for each, given in (
      (network(lambda name: BALL(name=name, radius=9.0)),
       jax.tree.map(jnp.float32, radii)),
      (network(lambda name: pointwise.Ball(name=name, radius=radii[name])),
       None))]
  assert jax.tree.structure(bounds[0]).num_leaves == 5
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
               *bounds)


def test_balls_that_adapt_have_names_of_their_own():
  """An adaptive ball must have its own name.

  Otherwise a radius would be taken for the norm of weights.
  """
  for nodes in ((DENSE(name='x'), BALL(name='x', radius=1.0)),
                (BALL(name='x', radius=1.0), DENSE(name='x')),
                (BALL(name='x', radius=1.0), BALL(name='x', radius=2.0))):
    with pytest.raises(ValueError, match="repeat.*'x', 'x'"):
      _chain('root', *nodes)


def test_a_fixed_ball_may_share_its_name_with_weights():
  """A fixed ball may share a name with weights,
  because its radius is its own."""
  bounds = []
  for name in ('first', 'other'):
    network = Network(root=_chain(
      'root', DENSE(name='first', bias_norm=1.0),
      pointwise.Ball(name=name, radius=0.125), DENSE(name='last')),
                      input_shape=(2,), input_radius=1.0)
    bounds.append(jax.tree.map(float, network.gradient_bounds(
      {'first': jnp.float32(3.0), 'last': jnp.float32(2.0)},
      loss_lipschitz=1.0)))
  assert bounds[0] == bounds[1]
  assert bounds[0]['last'] == pytest.approx((0.125**2 + 1)**0.5)


def test_pullbacks_are_transposed_jacobians():
  """A pullback multiplies by the transposed
  Jacobian at the step's parameters."""
  matrix = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)),
                       jnp.float32)
  linear = reparametrisation.pullback(lambda params: {
    'w': matrix @ params['w'], 'b': params['b'] ** 2 / 2})
  params = {'w': jnp.ones([4]), 'b': jnp.array([2.0, 3.0])}
  updates = {'w': jnp.arange(6.0), 'b': jnp.array([1.0, -1.0])}
  state = linear.init(params)
  assert isinstance(state, optax.EmptyState)
  pulled, state = linear.update(updates, state, params)
  np.testing.assert_allclose(pulled['w'], matrix.T @ updates['w'], rtol=1e-5)
  np.testing.assert_allclose(pulled['b'], [2.0, -3.0], rtol=1e-6)
