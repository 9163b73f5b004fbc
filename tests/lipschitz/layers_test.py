"""Constants of parameterless layers by grids and brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import layers


@pytest.mark.parametrize('name', sorted(layers.ACTIVATIONS))
def test_activation_constant_is_the_supremum_of_the_slope(name):
  activation = layers.ACTIVATIONS[name]
  grid = jnp.linspace(-20, 20, 40001)
  slopes = np.abs(jax.jit(jax.vmap(jax.grad(activation.apply)))(grid))
  assert slopes.max() <= activation.lipschitz * (1 + 1e-6)
  assert slopes.max() >= activation.lipschitz * (1 - 1e-6)
  # Secants, too: a kink has no slope.
  values = np.float64(activation.apply(grid))
  secants = np.abs(np.diff(values)) / np.diff(np.float64(grid))
  assert secants.max() <= activation.lipschitz * (1 + 1e-2)


def test_all_names_are_known():
  assert set(layers.ACTIVATIONS) == {'relu', 'tanh', 'sigmoid'}


@pytest.mark.parametrize('name', sorted(layers.ACTIVATIONS))
@pytest.mark.parametrize('radius', [0.3, 1., 5.])
def test_bounded_activation_keeps_radius_and_constant(name, radius):
  x = jnp.asarray(np.random.default_rng(0).normal(size=(400, 7))
                  * np.logspace(-3, 37, 400)[:, None], jnp.float32)
  values = layers.bounded_activation(name, x, radius)
  norms = np.linalg.norm(np.float64(values), axis=1)
  assert norms.max() <= radius * (1 + 1e-6)
  grid = jnp.linspace(-20, 20, 40001)[:, None]
  slopes = jax.vmap(jax.grad(
    lambda z: layers.bounded_activation(name, z[None, None], radius)[0, 0]))(
      grid[:, 0])
  constant = layers.ACTIVATIONS[name].lipschitz
  assert np.max(np.abs(slopes)) <= constant * (1 + 1e-6)
  values = np.float64(layers.bounded_activation(name, grid, radius))[:, 0]
  assert np.max(np.abs(np.diff(values)) / np.diff(np.float64(grid[:, 0]))) <= (
    constant * (1 + 1e-2))
  # Reached by a record whose units are all large.
  assert np.linalg.norm(layers.bounded_activation(
    name, jnp.full([1, 7], 1e4), radius)) == pytest.approx(radius, rel=1e-5)


def test_dense_is_the_affine_map_with_its_gradients():
  rng = np.random.default_rng(0)
  x, kernel, bias, pull = (jnp.asarray(rng.normal(size=shape), jnp.float32)
                           for shape in ((9, 4), (4, 3), (3,), (9, 3)))
  plain = lambda x, kernel, bias: x @ kernel + bias[None]
  found, found_pull = jax.vjp(layers.dense, x, kernel, bias)
  expected, expected_pull = jax.vjp(plain, x, kernel, bias)
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5,
                                                       atol=1e-6),
               found_pull(pull), expected_pull(pull))
