"""These tests check that bounds are computed in float32, whatever users allow.

Accelerators round the inputs of products unless they are asked not to. The
tests only trace, in a context in which all products may be rounded.
"""

import functools

import jax
from jax.extend import core
import jax.numpy as jnp
import pytest

from dpjax.grads import ball
from dpjax.grads import per_example
from dpjax.grads import quantiles
from dpjax.lipschitz import adaptive
from dpjax.lipschitz import bounder
from dpjax.lipschitz import convolution
from dpjax.lipschitz import k_norm
from dpjax.lipschitz import layers
from dpjax.lipschitz import losses
from dpjax.lipschitz import norms
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import primitives
from dpjax.lipschitz import projection
from dpjax.lipschitz import rules
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.typing import Batch
from experiments.methods.training import induced_chains
from experiments.methods.training import randomised
from experiments.methods.training import spectral_projections

LOSS = losses.cross_entropy()
SHAPE = convolution.ConvShape((6, 5), (2, 1))
MATRIX, KERNEL = jnp.ones([7, 5]), jnp.ones([3, 3, 2, 4])
IMAGES, SITES = jnp.ones([3, 6, 5, 2]), jnp.ones([3, 3, 5, 4])


def _rounded(item) -> int:
  """Returns the number of products that may round, in loops and calls too."""
  if isinstance(item, core.ClosedJaxpr):
    item = item.jaxpr
  if isinstance(item, core.Jaxpr):
    return sum(map(_rounded, item.eqns))
  if isinstance(item, (tuple, list)):
    return sum(map(_rounded, item))
  if not isinstance(item, core.JaxprEqn):
    return 0
  highest = (jax.lax.Precision.HIGHEST,) * 2
  own = item.primitive.name in ('dot_general', 'conv_general_dilated') and (
    item.params['precision'] != highest)
  return own + sum(map(_rounded, item.params.values()))


def _traced(function, *args) -> int:
  with jax.default_matmul_precision('bfloat16'):
    return _rounded(jax.make_jaxpr(function)(*args))


def _perceptron(*nodes):
  return Network(root=Chain(name='root', nodes=(
    layers.Dense(name='first', width=4, bias_norm=1.0), *nodes,
    layers.Dense(name='last', width=3))), input_shape=(5,), input_radius=1.0)


def _convnet():
  return Network(root=Chain(name='root', nodes=(
    layers.Conv(name='first', channels=4, bias_norm=1.0),
    layers.Affine(name='middle', bias_norm=1.0), pointwise.flatten(),
    layers.Dense(name='last', width=3))), input_shape=(6, 5, 2),
                 input_radius=1.0)


BALL = pointwise.Ball(name='ball', radius=1.0)
DENSE = _perceptron(BALL)
ADAPTIVE = _perceptron(pointwise.Ball(name='ball', radius=1.0, adaptive=True))
BOUNDED = _perceptron(pointwise.bounded_activation('relu', 1.0))

BOUNDS = {
  'spectral': (norms.spectral_upper_bound, MATRIX),
  'complex': (norms.spectral_upper_bound, MATRIX.astype(jnp.complex64)),
  'long sums': (norms.spectral_upper_bound, jnp.ones([1100, 3])),
  'power iteration': (functools.partial(
    norms.power_iteration, num_iterations=2), MATRIX, jnp.ones([5])),
  'torus': (lambda k: convolution.fourier_upper_bound(k, SHAPE), KERNEL),
  'powers of a convolution': (lambda k: convolution.power_iteration(
    k, SHAPE, IMAGES[0], num_iterations=2), KERNEL),
  'reshaped': (lambda k: convolution.reshape_upper_bound(k, SHAPE), KERNEL),
  'gradients of kernels': (lambda x, d: convolution.kernel_gradients(
    x, d, (3, 3), SHAPE), IMAGES, SITES),
  'two to one': (induced_chains.bound_2_1, MATRIX),
  'orthogonal': (lambda w: spectral_projections.orthogonal_weights(
    w, weight_norm=1.0, num_iterations=2), MATRIX),
  'spectral ball': (
    lambda w: spectral_projections.project_spectral_ball(w, 1.0), MATRIX),
  'randomised': (lambda w: randomised.randomised_upper_bound(
    lambda x: jnp.matmul(w, x, precision='highest'), jax.random.key(0), (5,),
    num_iterations=2, failure_prob=0.1), MATRIX),
  'ball': (lambda x: ball.project_ball(x, 1.0), MATRIX),
  'clipped weights': (projection.clip_weights(
    _convnet(), weight_norm=1.0).constrain, _convnet().init(
      jax.random.key(0))),
}
BOUNDERS = {
  'certified': (bounder.certified(DENSE, LOSS, weight_norm=1.0), DENSE),
  'layers': (bounder.certified(_convnet(), LOSS, weight_norm=1.0,
                               rule=rules.clipped_layers(clip_norm=1.0)),
             _convnet()),
  'adaptive': (adaptive.adaptively_certified(
    ADAPTIVE, LOSS, weight_norm=1.0, make_adaptive=functools.partial(
      quantiles.geometric, target_quantile=0.5, learning_rate=0.2,
      noise_stddev=5.0)), ADAPTIVE),
  'K-norm': (k_norm.certified(BOUNDED, LOSS, order=1), BOUNDED)}


@pytest.mark.parametrize('name', BOUNDS)
@pytest.mark.sound
def test_bounds_are_in_float32(name):
  assert not _traced(*BOUNDS[name])


@pytest.mark.parametrize('name', BOUNDERS)
@pytest.mark.sound
def test_networks_whose_constants_are_certified_are_in_float32(name):
  bounder, network = BOUNDERS[name]
  radii = () if bounder.adaptive is None else (bounder.adaptive.init,)
  batch = Batch(jnp.ones([3, *network.input_shape]), jnp.zeros([3], jnp.int32))
  assert not _traced(lambda params: bounder.sums(
    params, batch, jnp.ones([3], bool), *radii), network.init(
      jax.random.key(0)))


OPERATIONS = {
  'dense': lambda x, kernel, bias, rule: primitives.dense(
    x.reshape((3, -1)), jnp.tile(kernel.reshape((-1, 4)), (4, 1))[:60], bias,
    rule),
  'conv': lambda x, kernel, bias, rule: primitives.conv(
    x, kernel, bias, SHAPE, rule),
  'few sites': lambda x, kernel, bias, rule: primitives.conv(
    x[:, 2:4, 1:3], jnp.tile(kernel, (1, 1, 1, 8)), jnp.tile(bias, 8),
    convolution.ConvShape((2, 2)), rule),
  'scale': lambda x, kernel, bias, rule: primitives.scale_shift(
    x, kernel[0, 0, :, 0], bias[:2], rule)}


@pytest.mark.parametrize('name', OPERATIONS)
@pytest.mark.sound
def test_rules_measure_in_float32(name):
  """Rules add no rounded product to an ordinary backward pass."""
  ordinary = rules.WeightRule('', lambda known: 1 + 0 * known.inputs,
                              lambda cotangent, factor: factor, False)
  counts = [_traced(jax.grad(lambda k, x, b, rule=rule: jnp.sum(OPERATIONS[name](
    x, k, b, rule)), argnums=(0, 2)), KERNEL, IMAGES, jnp.ones([4]))
            for rule in (ordinary, rules.clipped_layers(clip_norm=1.0))]
  assert counts[0] == counts[1]


@pytest.mark.parametrize('kernel', per_example.KERNELS)
def test_clipping_measures_and_sums_in_float32(kernel):
  """Clipping measures and sums in float32, also where the network does not."""
  apply = lambda params, x: jnp.sum(x * params['scale'] + params['shift'], 1)
  with jax.numpy_rank_promotion('allow'):
    bounder = per_example.clipped(apply, lambda logits, y: jnp.sum(logits, 1),
                                  clip_norm=1.0, kernel=kernel)
    assert not _traced(
      lambda params, x: bounder.sums(params, Batch(x, jnp.zeros(
        [3], jnp.int32)), jnp.ones([3], bool)),
      {'scale': jnp.ones([4, 5]), 'shift': jnp.ones([5])},
      jnp.ones([3, 4, 5]))
