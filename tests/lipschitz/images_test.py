"""These tests check constants of layers on oblong images."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import convolution
from dpjax.lipschitz import layers
from dpjax.lipschitz import norms
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import projection
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Context
from dpjax.lipschitz.residual import Residual

IMAGE = (4, 6, 2)
# The last number counts the places at which each bias entry is added.
SHIFTED = {
  'dense': (layers.Dense(name='x', width=3, bias_norm=0.5), (5,), 1),
  'conv': (layers.Conv(name='x', channels=3, strides=(1, 2), bias_norm=0.5),
           IMAGE, 12),
  'affine': (layers.Affine(name='x', bias_norm=0.5), IMAGE, 24)}


@pytest.mark.parametrize('name', SHIFTED)
@pytest.mark.sound
def test_biases_reach_as_far_as_they_do(name):
  """A bias at its limit adds what the output
  bound allows, with zero kernels."""
  node, shape, places = SHIFTED[name]
  params = node.init(jax.random.key(0), shape)
  bias = params['bias'] + 3.0
  held, certificate = node.constrain(
    {'kernel': 0 * params['kernel'], 'bias': bias}, shape,
    projection.clip_limits(1.0))
  x = jnp.ones([1, *shape])
  norm = float(jnp.linalg.norm(node.apply(held, x, Context())))
  assert norm == pytest.approx(0.5 * math.sqrt(places), rel=1e-5)
  output_bound = float(
      node.output_bound(certificate, float(jnp.linalg.norm(x)), shape))
  assert norm <= output_bound <= norm * (1 + 1e-3)


@pytest.mark.parametrize('kind', pointwise.ACTIVATIONS)
@pytest.mark.sound
def test_bounded_activations_of_images_stay_in_the_ball(kind):
  layer = pointwise.bounded_activation(kind, 2.0)
  largest = jnp.linalg.norm(layer.function(jnp.full([1, *IMAGE], 1e4)))
  assert float(largest) == pytest.approx(2.0, rel=1e-5)
  assert layer.ceiling(9.0, IMAGE) == 2.0


def test_initial_weights_are_drawn_for_each_layer():
  """Every layer's initial weights use a key of their own.

  This includes equal names inside different blocks.
  """
  dense = lambda name: layers.Dense(name=name, width=4)
  chain = lambda name, *nodes: Chain(name=name, nodes=nodes)
  network = Network(input_shape=(4,), root=chain(
    'root', dense('first'), dense('second'),
    Residual(name='residual', branch=chain('branch', dense('a'), dense('b')),
             shortcut=chain('shortcut', dense('a'))),
    Residual(name='other', branch=chain('branch', dense('a')),
             shortcut=chain('shortcut', dense('a')))))
  draws = [network.init(jax.random.key(seed)) for seed in (0, 1)]
  kernels = [np.ravel(leaf) for leaf in jax.tree.leaves(draws)
             if leaf.ndim == 2]
  assert len(kernels) == 14
  # There are 91 pairs of 16 numbers; |r| >= 0.9 has probability 2e-6 for each.
  correlations = np.corrcoef(kernels) - np.eye(14)
  assert np.abs(correlations).max() < 0.9


@pytest.mark.every(2)
def test_rounding_of_a_convolution_is_that_of_its_transpose_too():
  """A convolution and its transpose get the same allowance for rounding.

  Forward sums run over inputs, backward sums over outputs.
  """
  kernel = jnp.ones([3, 3, 2, 8])
  for padding in ('valid', 'zero'):
    shape = convolution.ConvShape(IMAGE[:2], padding=padding)
    grown = [float(convolution.as_computed(
      jnp.float32(0), each, shape, input_roundoff=0.0))
             for each in (kernel, jnp.swapaxes(kernel, 2, 3))]
    assert grown[0] == grown[1]
    # The allowance is (9 c + 1) 2^-23 of 3 times the norm, for the larger c.
    assert grown[0] == pytest.approx(
      73 * 2.0**-23 * 3 * math.sqrt(kernel.size), rel=1e-4)


@pytest.mark.parametrize('kernel_size, strides', [
  ((4, 1), (1, 3)), ((1, 4), (3, 1)), ((3, 2), (2, 1)), ((2, 5), (1, 2))])
def test_gradients_of_kernels_count_the_windows_of_a_pixel(kernel_size,
                                                           strides):
  """Kernel gradients count the windows that see a pixel, also if oblong."""
  size, windows = (13, 11), np.zeros((13, 11))
  for i in range(0, size[0] - kernel_size[0] + 1, strides[0]):
    for j in range(0, size[1] - kernel_size[1] + 1, strides[1]):
      windows[i:i + kernel_size[0], j:j + kernel_size[1]] += 1
  node = layers.Conv(name='x', channels=3, kernel_size=kernel_size,
                     strides=strides, padding='valid', use_bias=False)
  for radius in (0.5, 2.0):
    sent, bound = node.backward(1.5, 0.7, radius, (*size, 2), None)
    assert sent == pytest.approx(0.7 * 1.5)
    assert bound == pytest.approx(0.7 * radius * windows.max()**0.5, rel=1e-5)


def test_bounds_are_rounded_up():
  """Bounds are rounded up by more than float32 rounds, but hardly cost more."""
  for node, shape, _ in SHIFTED.values():
    shift = float(node.output_bound(jnp.float32(0.0), 2.0, shape))
    output_bound = float(node.output_bound(jnp.float32(3.0), 2.0,
                                           shape)) - shift
    assert 5e-7 < output_bound / 6.0 - 1 < 2e-6
  for bound in (norms.exact_upper_bound(np.diag([1.0, 3.0])),
                convolution.exact_upper_bound(
                  np.full([1, 1, 1, 1], 3.0), convolution.ConvShape((2, 2)))):
    assert 5e-11 < bound / 3.0 - 1 < 1e-9
