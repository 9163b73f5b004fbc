"""These tests check that every bound runs as many iterations as asked for.

For an identity of rank r the bound after t iterations is exactly r^(1/2^(t+1)).
"""

import jax
import jax.numpy as jnp
import pytest

from dpjax.lipschitz import convolution
from dpjax.lipschitz import layers
from dpjax.lipschitz import norms
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import projection
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network

RANK = 8
IDENTITY = jnp.eye(RANK)
KERNEL = IDENTITY[None, None]
SHAPE = convolution.ConvShape((2, 3))
NETWORK = Network(input_shape=(2, 3, RANK), root=Chain(name='root', nodes=(
  layers.Conv(name='conv', channels=RANK, kernel_size=(1, 1)),
  pointwise.flatten(), layers.Dense(name='dense', width=2))))
PARAMS = {'conv': {'kernel': KERNEL, 'bias': jnp.zeros([RANK])},
          'dense': {'kernel': jnp.eye(6 * RANK, 2), 'bias': jnp.zeros([2])}}


def _shrunk(make, **settings):
  """Returns the factor by which a constraint divides an identity kernel."""
  held, _ = make(NETWORK, weight_norm=1.0, **settings).constrain(PARAMS)
  return 1 / held['conv']['kernel'][0, 0, 0, 0]


# Settings map to a bound of the identity's norm and the default number.
BOUNDS = {
  'spectral': (lambda **s: norms.spectral_upper_bound(IDENTITY, **s), 6),
  'ordinary': (lambda **s: norms.spectral_upper_bound(
    IDENTITY, any_scale=False, **s), 6),
  'torus': (lambda **s: convolution.fourier_upper_bound(
    KERNEL, SHAPE, **s), 6),
  'reshaped': (lambda **s: convolution.reshape_upper_bound(
    KERNEL, SHAPE, **s), 6),
  'drifted': (lambda **s: convolution.drifted_bound(
    jnp.float32(0), 0 * KERNEL, KERNEL, SHAPE, **s), 2),
  'clipped': (lambda **s: _shrunk(projection.clip_weights, **s), 4),
  'fixed': (lambda **s: _shrunk(projection.fix_weights, **s), 4),
}


@pytest.mark.parametrize('name', BOUNDS)
@pytest.mark.sound
def test_bounds_are_those_of_their_iterations(name):
  bound, default = BOUNDS[name]
  bounds = jax.jit(lambda: [bound(num_iterations=1), bound()])()
  for value, number in zip(bounds, (1, default), strict=True):
    assert float(value) == pytest.approx(RANK**0.5**(number + 1), rel=1e-4)
