"""Constants of parameterless layers by grids: NET-03, LDP-05, E11, E15."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import pointwise

CONSTANTS = {'relu': 1., 'tanh': 1., 'sigmoid': 0.25}


@pytest.mark.parametrize('name', pointwise.ACTIVATIONS)
def test_activation_constant_is_the_supremum_of_the_slope(name):
  activation = pointwise.activation(name)
  constant = activation.lipschitz((1,))
  assert constant == CONSTANTS[name]
  grid = jnp.linspace(-20, 20, 40001)
  slopes = np.abs(jax.jit(jax.vmap(jax.grad(activation.function)))(grid))
  assert slopes.max() <= constant * (1 + 1e-6)
  assert slopes.max() >= constant * (1 - 1e-6)
  # Secants, too: a kink has no slope.
  values = np.float64(activation.function(grid))
  secants = np.abs(np.diff(values)) / np.diff(np.float64(grid))
  assert secants.max() <= constant * (1 + 1e-2)


@pytest.mark.parametrize('name', pointwise.ACTIVATIONS)
@pytest.mark.parametrize('radius', [0.3, 1., 5.])
def test_bounded_activation_keeps_radius_and_constant(name, radius):
  activation = pointwise.bounded_activation(name, radius)
  x = jnp.asarray(np.random.default_rng(0).normal(size=(400, 7))
                  * np.logspace(-3, 37, 400)[:, None], jnp.float32)
  norms = np.linalg.norm(np.float64(activation.function(x)), axis=1)
  assert norms.max() <= radius * (1 + 1e-6)
  assert activation.ceiling(9., (7,)) == radius
  grid = jnp.linspace(-20, 20, 40001)[:, None]
  slopes = jax.vmap(jax.grad(
    lambda z: activation.function(z[None, None])[0, 0]))(grid[:, 0])
  constant = activation.lipschitz((1,))
  assert constant == CONSTANTS[name]
  assert np.max(np.abs(slopes)) <= constant * (1 + 1e-6)
  values = np.float64(activation.function(grid))[:, 0]
  assert np.max(np.abs(np.diff(values)) / np.diff(np.float64(grid[:, 0]))) <= (
    constant * (1 + 1e-2))
  # Reached by a record whose units are all large.
  assert np.linalg.norm(activation.function(
    jnp.full([1, 7], 1e4))) == pytest.approx(radius, rel=1e-5)
