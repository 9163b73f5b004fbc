"""Constants of layers on images that are neither square nor vectors."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import convolution
from dpjax.lipschitz import layers
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import projection
from dpjax.lipschitz.network import Chain, Network, Residual
from dpjax.lipschitz.node import Context

IMAGE = (4, 6, 2)
# With how many places each entry of the bias counts.
SHIFTED = {
  'dense': (layers.Dense(name='x', width=3, bias_norm=0.5), (5,), 1),
  'conv': (layers.Conv(name='x', channels=3, strides=(1, 2), bias_norm=0.5),
           IMAGE, 12),
  'affine': (layers.Affine(name='x', bias_norm=0.5), IMAGE, 24)}


@pytest.mark.parametrize('name', SHIFTED)
@pytest.mark.sound
def test_biases_reach_as_far_as_they_do(name):
  """Of kernels of zero a bias at its limit is all that leaves."""
  node, shape, places = SHIFTED[name]
  params = node.init(jax.random.key(0), shape)
  bias = params['bias'] + 3.0
  held, certificate = node.constrain(
    {'kernel': 0 * params['kernel'], 'bias': bias}, shape,
    projection.clip_limits(1.0))
  x = jnp.ones([1, *shape])
  norm = float(jnp.linalg.norm(node.apply(held, x, Context())))
  assert norm == pytest.approx(0.5 * math.sqrt(places), rel=1e-5)
  reach = float(node.reach(certificate, float(jnp.linalg.norm(x)), shape))
  assert norm <= reach <= norm * (1 + 1e-3)


@pytest.mark.parametrize('kind', pointwise.ACTIVATIONS)
@pytest.mark.sound
def test_bounded_activations_of_images_stay_in_the_ball(kind):
  layer = pointwise.bounded_activation(kind, 2.0)
  largest = jnp.linalg.norm(layer.function(jnp.full([1, *IMAGE], 1e4)))
  assert float(largest) == pytest.approx(2.0, rel=1e-5)
  assert layer.ceiling(9.0, IMAGE) == 2.0


def test_initial_weights_are_drawn_for_each_layer():
  """No key is used twice, in whatever a layer is a part of."""
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
  # 91 pairs of 16 numbers; |r| >= 0.9 has probability 2e-6 for each.
  correlations = np.corrcoef(kernels) - np.eye(14)
  assert np.abs(correlations).max() < 0.9


def test_rounding_of_a_convolution_is_that_of_its_transpose_too():
  """Forward sums run over inputs and backward ones over outputs."""
  kernel = jnp.ones([3, 3, 2, 8])
  for padding in ('valid', 'zero'):
    shape = convolution.ConvShape(IMAGE[:2], padding=padding)
    grown = [float(convolution.as_computed(
      jnp.float32(0), each, shape, input_roundoff=0.0))
             for each in (kernel, jnp.swapaxes(kernel, 2, 3))]
    assert grown[0] == grown[1]
    # (9 c + 1) 2^-23 of 3 times the norm of all entries, for the larger c.
    assert grown[0] == pytest.approx(
      73 * 2.0**-23 * 3 * math.sqrt(kernel.size), rel=1e-4)
