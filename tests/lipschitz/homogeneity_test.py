"""These tests check that every norm bound scales by |c| with the map."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import convolution
from dpjax.lipschitz import induced
from dpjax.lipschitz import layers
from dpjax.lipschitz import norms
from dpjax.lipschitz import projection
from dpjax.lipschitz.node import Limits
from experiments.methods.training import induced_chains

_SHAPE = convolution.ConvShape((5, 4), (1, 2), 'zero')
_UNSCALED = Limits(rescale=jnp.ones_like,
                   certify=lambda bound, scale: bound * scale,
                   num_iterations=4, any_scale=True)


def _certificate(layer, kernel, shape):
  return layer.constrain({'kernel': kernel, 'bias': jnp.zeros(
    kernel.shape[-1:])}, shape, _UNSCALED)[1]


# Each name maps to (bound, shape of the kernel).
BOUNDS = {
  'spectral': (norms.spectral_upper_bound, (6, 5)),
  'two columns': (norms.spectral_upper_bound, (6, 2)),
  'one row': (norms.spectral_upper_bound, (1, 7)),
  'torus': (lambda k: convolution.fourier_upper_bound(k, _SHAPE), (3, 3, 2, 4)),
  'grid': (lambda k: convolution.fourier_upper_bound(k, _SHAPE, grid=4),
           (3, 3, 2, 4)),
  'reshaped': (lambda k: convolution.reshape_upper_bound(k, _SHAPE),
               (3, 3, 2, 4)),
  'dense l1': (lambda k: induced_chains.dense_norm(k, 1), (6, 5)),
  'dense sup': (lambda k: induced_chains.dense_norm(k, math.inf), (6, 5)),
  'entries': (lambda k: induced.induced_norm(k, 1, math.inf), (6, 5)),
  'rows': (lambda k: induced.induced_norm(k, 2, math.inf), (6, 5)),
  'columns': (lambda k: induced.induced_norm(k, 1, 2), (6, 5)),
  'from l2 to l1': (induced_chains.bound_2_1, (6, 5)),
  'conv l1': (lambda k: induced_chains.conv_norm(k, _SHAPE, 1), (3, 3, 2, 4)),
  'conv sup': (lambda k: induced_chains.conv_norm(k, _SHAPE, math.inf),
               (3, 3, 2, 4)),
  'affine layer': (lambda k: _certificate(
    layers.Affine(name='a'), k, (5, 4, 6)), (6,)),
  'dense layer': (lambda k: _certificate(
    layers.Dense(name='d', width=5), k, (6,)), (6, 5)),
  'conv layer': (lambda k: _certificate(layers.Conv(
    name='c', channels=4, strides=(1, 2)), k, (5, 4, 2)), (3, 3, 2, 4)),
}


@pytest.mark.every(1)
@pytest.mark.parametrize('name', BOUNDS)
def test_signs_do_not_matter_and_scales_factor_out(name):
  """Signs do not change a bound, and scales from 2^-40 to 2^40 factor out.

  One entry of the kernel is zero and some are tiny.
  """
  bound, shape = BOUNDS[name]
  rng = np.random.default_rng(0)
  kernel = rng.uniform(0.1, 1, shape) * np.where(rng.uniform(size=shape) < 0.5,
                                                 1e-3, 1)
  # The largest entry of the negative kernel is 0, so it says nothing.
  kernel.flat[0] = 0
  kernels = jnp.asarray([kernel, -kernel, 2.0**-40 * kernel, -2.0**40 * kernel,
                         -kernel * 2.0**-30], jnp.float32)
  norms = np.float64(jax.jit(jax.vmap(bound))(kernels))
  np.testing.assert_allclose(
    norms / norms[0], [1, 1, 2.0**-40, 2.0**40, 2.0**-30], rtol=1e-5)
  # The largest entry is a lower bound of all of these norms.
  assert kernel.max() <= norms[0] * (1 + 1e-6)


@pytest.mark.parametrize('sign', [1, -1])
def test_weights_of_either_sign_are_held(sign):
  """The constraint scales weights of either sign back to the same limit."""
  limits = projection.clip_limits(0.5)
  for layer, kernel, shape in (
      (layers.Affine(name='a'), np.ones(3), (2, 2, 3)),
      (layers.Dense(name='d', width=2), np.ones((3, 2)), (3,))):
    params = {'kernel': jnp.asarray(4 * sign * kernel, jnp.float32),
              'bias': jnp.zeros(kernel.shape[-1:])}
    held, certificate = layer.constrain(params, shape, limits)
    size = np.abs(held['kernel']).max() * (
      1 if kernel.ndim == 1 else math.sqrt(kernel.size))
    assert 0.45 < size <= float(certificate) <= 0.5 * (1 + 1e-5)
