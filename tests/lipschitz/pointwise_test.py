"""These tests check constants of parameterless layers.

They cover NET-03, LDP-05, LIP-00, E11 and E15.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import pointwise
from dpjax.lipschitz.node import Context

# These activations act on each number; maxmin acts on pairs.
CONSTANTS = {'relu': 1., 'tanh': 1., 'sigmoid': 0.25}


@pytest.mark.parametrize('name', CONSTANTS)
def test_activation_constant_is_the_supremum_of_the_slope(name):
  activation = pointwise.activation(name)
  constant = activation.lipschitz((1,))
  assert constant == CONSTANTS[name]
  grid = jnp.arange(-20000., 20001.) / 1000.  # 0 is in it.
  slopes = np.abs(jax.jit(jax.vmap(jax.grad(activation.function)))(grid))
  assert slopes.max() <= constant * (1 + 1e-6)
  assert slopes.max() >= constant * (1 - 1e-6)
  # Secants are tried too, because a kink has no slope.
  values = np.float64(activation.function(grid))
  secants = np.abs(np.diff(values)) / np.diff(np.float64(grid))
  assert secants.max() <= constant * (1 + 1e-2)


@pytest.mark.every(3)
@pytest.mark.parametrize('name', CONSTANTS)
@pytest.mark.parametrize('radius', [0.3, 1., 5.])
def test_bounded_activation_keeps_radius_and_constant(name, radius):
  activation = pointwise.bounded_activation(name, radius)
  x = jnp.asarray(np.random.default_rng(0).normal(size=(400, 7))
                  * np.logspace(-3, 37, 400)[:, None], jnp.float32)
  norms = np.linalg.norm(np.float64(activation.function(x)), axis=1)
  assert norms.max() <= radius * (1 + 1e-6)
  assert activation.ceiling(9., (7,)) == radius
  grid = jnp.arange(-20000., 20001.)[:, None] / 1000.
  slopes = jax.vmap(jax.grad(
    lambda z: activation.function(z[None, None])[0, 0]))(grid[:, 0])
  constant = activation.lipschitz((1,))
  assert constant == CONSTANTS[name]
  assert np.max(np.abs(slopes)) <= constant * (1 + 1e-6)
  values = np.float64(activation.function(grid))[:, 0]
  assert np.max(np.abs(np.diff(values)) / np.diff(np.float64(grid[:, 0]))) <= (
    constant * (1 + 1e-2))
  # A record whose units are all large attains the ceiling.
  assert np.linalg.norm(activation.function(
    jnp.full([1, 7], 3e38))) == pytest.approx(radius, rel=1e-5)


@pytest.mark.parametrize('name', pointwise.ACTIVATIONS)
def test_values_and_slopes_of_finite_inputs_are_finite(name):
  """Activations and slopes of finite inputs are finite.

  A record whose activation is NaN would show in every sum.
  """
  largest = np.finfo(np.float32).max
  x = jnp.asarray([[0., 1e-45, largest, -largest, 1e38, -1e-30, 1.]])
  for layer in (pointwise.activation(name),
                pointwise.bounded_activation(name, 1e-12),
                pointwise.bounded_activation(name, 1.0)):
    values, pullback = jax.vjp(layer.function, x)
    assert np.isfinite(values).all()
    assert np.isfinite(pullback(jnp.ones_like(x))[0]).all()


@pytest.mark.parametrize('width', [1, 2, 5, 8])
def test_maxmin_permutes_units_and_cotangents(width):
  """Maxmin permutes units, so norms stay exact,
  with ties and odd widths too."""
  assert {*CONSTANTS, 'maxmin'} == set(pointwise.ACTIVATIONS)
  x = np.random.default_rng(0).normal(size=(30, width)).astype(np.float32)
  x[:2], x[2, -1] = [[0.0], [7.0]], np.nan
  outputs = np.asarray(pointwise.maxmin(jnp.asarray(x)))
  half = width // 2
  np.testing.assert_array_equal(np.sort(outputs), np.sort(x))
  assert not np.any(outputs[3:, :half] < outputs[3:, half:2 * half])
  np.testing.assert_array_equal(outputs[:, 2 * half:], x[:, 2 * half:])
  jacobians = np.asarray(jax.vmap(jax.jacobian(pointwise.maxmin))(x))
  assert np.isin(jacobians, [0, 1]).all()
  np.testing.assert_array_equal(jacobians.sum(1), 1)
  np.testing.assert_array_equal(jacobians.sum(2), 1)


@pytest.mark.parametrize('radius', [0.3, 5.])
def test_bounded_maxmin_sorts_what_is_clipped(radius):
  layer = pointwise.bounded_activation('maxmin', radius)
  assert layer.ceiling(9., (7,)) == radius and layer.lipschitz((7,)) == 1
  assert not layer.elementwise
  x = jnp.asarray(np.random.default_rng(0).normal(size=(400, 7))
                  * np.logspace(-3, 37, 400)[:, None], jnp.float32)
  outputs = np.float64(layer.function(x))
  norms = np.linalg.norm(outputs, axis=1)
  assert 0.99 * radius < norms.max() <= radius * (1 + 1e-6)
  # Short records are only sorted.
  np.testing.assert_array_equal(outputs[:10], pointwise.maxmin(x[:10]))


@pytest.mark.parametrize('scale, temperature, offset', [
  (1., 1., 0.), (2., 2., 1.), (2., 5., 1.), (0.5, 3., -0.2)])
def test_tempered_sigmoid(scale, temperature, offset):
  """The tempered sigmoid has slope s T / 4 and attains its ceiling (NET-03)."""
  layer = pointwise.tempered_sigmoid(scale, temperature, offset)
  grid = jnp.arange(-20000., 20001.) / 1000.  # 0 is in it.
  slopes = np.abs(jax.jit(jax.vmap(jax.grad(layer.function)))(grid))
  constant = scale * temperature / 4
  assert layer.lipschitz((9,)) == constant
  assert slopes.max() == pytest.approx(constant, abs=1e-6)
  expected = scale / (1 + np.exp(-temperature * np.float64(grid))) - offset
  np.testing.assert_allclose(layer.function(grid), expected, atol=1e-6)
  # The ceiling is attained in a corner of the ball or at its far end.
  for radius in (1e-3, 0.5, 3., 1e4):
    record = np.full([1, 9], radius / 3)
    norm = max(np.linalg.norm(layer.function(jnp.asarray(
      sign * record, jnp.float32))) for sign in (1, -1))
    assert norm <= layer.ceiling(radius, (9,)) * (1 + 1e-6)
  assert norm >= layer.ceiling(math.inf, (9,)) * (1 - 1e-6)


def test_tempered_identities():
  """(2, 2, 1) gives tanh and (1, 1, 0) the sigmoid, in float64 (NET-03)."""
  with jax.enable_x64(True):
    grid = jnp.linspace(-30, 30, 4001)
    np.testing.assert_allclose(
      pointwise.tempered_sigmoid(2., 2., 1.).function(grid), jnp.tanh(grid),
      rtol=0, atol=1e-12)
    np.testing.assert_allclose(
      pointwise.tempered_sigmoid(1., 1., 0.).function(grid),
      1 / (1 + np.exp(-np.float64(grid))), rtol=0, atol=1e-12)


def test_ceilings_of_sigmoids_with_any_offset():
  """The ceiling uses the end of [-o, s - o] that is further from zero."""
  for scale, offset in itertools.product((0.5, 2.0), (-1.0, 0.0, 0.3, 1.0, 3.0)):
    layer = pointwise.tempered_sigmoid(scale, 4.0, offset)
    # Nine equal numbers are far from zero for long records, near for short.
    far = 3 * max(abs(offset), abs(scale - offset))
    near = 3 * abs(scale / 2 - offset)
    for radius, wanted in ((1e9, far), (1e-9, near)):
      assert layer.ceiling(radius, (9,)) == pytest.approx(wanted, abs=1e-5)
    for radius in (0.1, 1.0, 4.0):
      ends = [scale / (1 + math.exp(-sign * 4 * radius / 3)) - offset
              for sign in (1, -1)]
      assert 3 * max(map(abs, ends)) <= layer.ceiling(radius, (9,))


@pytest.mark.every(3)
@pytest.mark.parametrize('layer', [
  *(pointwise.activation(kind) for kind in pointwise.ACTIVATIONS),
  *(pointwise.bounded_activation(kind, 1.5) for kind in pointwise.ACTIVATIONS),
  pointwise.tempered_sigmoid(2., 3., 0.7), pointwise.Ball(name='b', radius=1.5),
  pointwise.flatten()], ids=lambda layer: layer.name)
def test_no_record_leaves_further_than_the_ceiling(layer):
  """No record of a ball leaves a layer above
  its ceiling, at any radius (LIP-02)."""
  rng = np.random.default_rng(0)
  directions = rng.normal(size=(200, 5)) * rng.integers(0, 2, (200, 5))
  directions[:2] = [[1] * 5, [-1] * 5]
  directions /= np.linalg.norm(directions, axis=1, keepdims=True) + 1e-30
  for radius in (1e-2, 1., 4., 1e6):
    x = np.concatenate([directions * radius, directions * radius * 0.3])
    norms = np.linalg.norm(np.float64(layer.apply(
      {}, jnp.asarray(x, jnp.float32), Context())), axis=1)
    limit = layer.output_bound({}, radius, (5,))
    assert norms.max() <= limit * (1 + 1e-6)
    traced = jax.jit(lambda r: layer.output_bound({}, r, (5,)))(jnp.float32(radius))
    assert float(traced) == pytest.approx(float(limit), rel=1e-6)


def test_ball_is_a_projection_with_a_public_radius():
  """A ball caps norms at B and leaves records within it unchanged (LDP-05)."""
  x = jnp.asarray(np.random.default_rng(0).normal(size=(50, 3, 3, 2))
                  * np.logspace(-3, 18, 50)[:, None, None, None], jnp.float32)
  layer = pointwise.Ball(name='b', radius=2.)
  flat = lambda x: np.linalg.norm(np.float64(x).reshape(50, -1), axis=1)
  norms = flat(layer.apply({}, x, Context()))
  assert norms.max() <= 2 * (1 + 1e-6)
  np.testing.assert_allclose(norms, np.minimum(flat(x), 2), rtol=1e-6)
  far = pointwise.Ball(name='b', radius=1e12)
  inside = flat(x) < 1e12
  assert 20 < inside.sum() < 50
  np.testing.assert_array_equal(far.apply({}, x, Context())[inside], x[inside])


@pytest.mark.every(2)
def test_adaptive_ball_takes_the_radius_of_now():
  """An adaptive ball uses the traced radius that was released last.

  The observer sees norms before the projection.
  """
  layer = pointwise.Ball(name='b', radius=2., adaptive=True)
  x = jnp.asarray([[3., 4.], [0.3, 0.4]])

  @jax.jit
  def apply(radius):
    seen = {}
    context = Context(radii={'b': radius}, observe=seen.__setitem__)
    return layer.apply({}, x, context), seen['b']

  outputs, seen = apply(jnp.float32(1))
  np.testing.assert_allclose(outputs, [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)
  np.testing.assert_allclose(seen, [5., 0.5], rtol=1e-6)
  assert np.all(np.isnan(apply(jnp.float32(np.nan))[0]))
  # Before any radius is released, function and bound use the initial one.
  start = layer.apply({}, x, Context())
  np.testing.assert_allclose(np.linalg.norm(start, axis=1), [2., 0.5],
                             rtol=1e-6)
  assert layer.output_bound({}, math.inf, (2,)) == 2.
  assert float(layer.output_bound(jnp.float32(0.7), math.inf, (2,))) == (
    pytest.approx(0.7))
  assert float(layer.output_bound(jnp.float32(0.7), 0.1, (2,))) == pytest.approx(0.1)


def test_an_opaque_layer_states_nothing():
  layer = pointwise.opaque(jnp.sin, name='x')
  assert layer.lipschitz((3,)) == math.inf == layer.ceiling(1., (3,))


@pytest.mark.parametrize('make', [
  lambda: pointwise.activation('gelu'),
  lambda: pointwise.bounded_activation('tanh', 0.),
  lambda: pointwise.bounded_activation('gelu', 1.),
  lambda: pointwise.tempered_sigmoid(0., 1., 0.),
  lambda: pointwise.tempered_sigmoid(1., -1., 0.),
  lambda: pointwise.Ball(name='b', radius=math.nan)])
def test_refused(make):
  with pytest.raises(ValueError, match='must be'):
    make()


@pytest.mark.every(3)
@pytest.mark.parametrize('function, size, constant', [
  (jnp.abs, 1, 1.), (jax.nn.relu, 3, 1.), (jnp.tanh, 3, 1.),
  (jax.nn.sigmoid, 2, 0.25), (jnp.sin, 2, 1.)])
def test_search_from_below_finds_known_constants(oracles, function, size,
                                                 constant):
  """The search finds known constants closely and never from above (LIP-00)."""
  lower = oracles.lip_lower(function, jax.random.key(0), 64, size=size)
  assert constant * 0.98 <= lower <= constant * (1 + 1e-5)


def test_search_from_below_finds_the_largest_singular_value(oracles):
  """The search finds the largest singular value of a linear map (LIP-00)."""
  rng = np.random.default_rng(0)
  for shape in ((5, 5), (7, 3)):
    matrix = jnp.asarray(rng.normal(size=shape), jnp.float32)
    exact = np.linalg.norm(np.float64(matrix), 2)
    lower = oracles.lip_lower(lambda x, m=matrix: m @ x, jax.random.key(1), 16,
                              size=shape[1])
    assert lower == pytest.approx(exact, rel=1e-4) and lower <= exact * 1.00001


@pytest.mark.every(3)
@pytest.mark.parametrize('layer', [
  pointwise.activation('tanh'), pointwise.bounded_activation('relu', 3.),
  pointwise.Ball(name='b', radius=1.), pointwise.tempered_sigmoid(2., 5., 1.)],
  ids=['tanh', 'bounded', 'ball', 'tempered'])
def test_search_from_below_stays_below_the_constant(oracles, layer):
  """The search stays below the constants that layers state (LIP-00)."""
  function = lambda x: layer.apply({}, x[None], Context())[0]
  sent, _ = layer.backward({}, 1.0, math.inf, (4,), None)
  lower = oracles.lip_lower(function, jax.random.key(0), 64, size=4)
  assert 0.95 * sent <= lower <= sent * (1 + 1e-5)
