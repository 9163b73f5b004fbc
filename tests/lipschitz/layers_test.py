"""Constants of parameterless layers by grids and brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import layers


def _records(rng):
  """[40, 5]: scales from 1e-12 to 1e30, the origin and an axis point."""
  x = rng.normal(size=(40, 5)) * np.logspace(-12, 30, 40)[:, None]
  x[0] = 0
  x[1] = np.eye(5)[0]
  return jnp.asarray(x, jnp.float32)


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


@pytest.mark.parametrize('radius', [1e-3, 1., 7.5])
def test_norms_after_projection(radius):
  x = _records(np.random.default_rng(0))
  found = np.float64(layers.project_ball(x, radius))
  norms = np.linalg.norm(found, axis=1)
  assert norms.max() <= radius * (1 + 1e-6)
  before = np.linalg.norm(np.float64(x), axis=1)
  inside = before < radius * (1 - 1e-6)
  assert inside.any() and not inside.all()
  np.testing.assert_array_equal(found[inside], np.float64(x)[inside])
  # Of what float32 can square, the direction is kept and the norm reached.
  squarable = ~inside & (before < 1e18)
  np.testing.assert_allclose(norms[squarable], radius, rtol=1e-6)
  np.testing.assert_allclose(
    found[squarable] / radius,
    np.float64(x)[squarable] / before[squarable, None], atol=1e-6)


def test_records_do_not_meet():
  x = _records(np.random.default_rng(2))
  before = layers.project_ball(x, 1.)
  for bad in (1e30, jnp.inf, jnp.nan):
    after = layers.project_ball((x * 7).at[3].set(bad).at[20].set(x[20]), 1.)
    np.testing.assert_array_equal(before[20], after[20])
  alone = jnp.concatenate([layers.project_ball(row[None], 1.) for row in x])
  np.testing.assert_allclose(before, alone, rtol=1e-6)


def test_derivative_is_that_of_the_formula():
  rng = np.random.default_rng(4)
  # Inside, outside and far outside.
  x = np.concatenate([rng.normal(size=(9, 3)) * s for s in (0.1, 5., 1e4)])
  cotangents = rng.normal(size=x.shape)
  norms = np.linalg.norm(x, axis=1, keepdims=True)
  scale = np.minimum(1, 2. / norms)
  radial = np.sum(x * cotangents, 1, keepdims=True) * x / norms**2
  expected = scale * (cotangents - np.where(norms > 2., radial, 0.))
  pull = jax.vjp(lambda x: layers.project_ball(x, 2.),
                 jnp.asarray(x, jnp.float32))[1]
  found = pull(jnp.asarray(cotangents, jnp.float32))[0]
  np.testing.assert_allclose(found / scale, expected / scale, rtol=1e-4,
                             atol=1e-5)


def test_jacobian_norm_is_at_most_one():
  rng = np.random.default_rng(3)
  x = np.concatenate([rng.normal(size=(60, 4)) * scale
                      for scale in (1e-6, 0.4, 0.6, 3., 1e6)])
  unit = rng.normal(size=(20, 4))
  x = np.concatenate([x, unit / np.linalg.norm(unit, axis=1)[:, None]])
  project = lambda row: layers.project_ball(row[None], 1.)[0]
  jacobians = jax.jit(jax.vmap(jax.jacrev(project)))(
    jnp.asarray(x, jnp.float32))
  assert np.all(np.isfinite(jacobians))
  spectral = np.linalg.norm(np.float64(jacobians), 2, axis=(1, 2))
  assert spectral.max() <= 1 + 2e-6
  # And by differences of pairs, which a wrong derivative cannot hide.
  pairs = jnp.asarray(rng.normal(size=(2, 3000, 4)) * 1.5, jnp.float32)
  left, right = (np.float64(layers.project_ball(p, 1.)) for p in pairs)
  moved = np.linalg.norm(left - right, axis=1)
  apart = np.linalg.norm(np.float64(pairs[0]) - np.float64(pairs[1]), axis=1)
  assert np.max(moved / apart) <= 1 + 1e-5


def test_gradient_is_finite_everywhere():
  total = lambda x: jnp.sum(layers.project_ball(x, 1.))
  for x in (jnp.zeros([2, 3]), jnp.full([2, 3], 1e-30), jnp.full([2, 3], 1e15),
            jnp.full([2, 3], 1e30)):
    assert np.all(np.isfinite(jax.grad(total)(x)))
  np.testing.assert_array_equal(jax.grad(total)(jnp.zeros([2, 3])),
                                np.ones([2, 3]))
