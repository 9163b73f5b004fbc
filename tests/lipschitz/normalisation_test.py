"""These tests compare normalisation layers with dense Jacobians.

They cover NET-06, NET-07, REG-01, LDP-08, E13 and E17.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import normalisation
from dpjax.lipschitz.node import Context


def _images(rng, count, shape=(3, 3, 4)):
  """Returns images of sizes from 1e-6 to 1e6, constant and sparse ones."""
  x = rng.normal(size=(count, *shape))
  x[::5] *= rng.random((len(x[::5]), *shape)) < 0.1
  x += rng.normal(size=(count, 1, 1, 1)) * (rng.random((count, 1, 1, 1)) < 0.3)
  x *= 10**rng.uniform(-6, 6, (count, 1, 1, 1))
  x[0] = 7.0
  x[1] = 0.0
  return x


def test_canonical_vector():
  """(0, 0, 0, 4) is normalised to (-1, -1, -1,
  3) / sqrt 3, of norm 2 (NET-07)."""
  x = jnp.asarray([0., 0., 0., 4.]).reshape((1, 2, 2, 1))
  normalised = normalisation.lipschitz(num_groups=1,
                                       alpha=1.0).function(x).ravel()
  np.testing.assert_allclose(normalised, np.array([-1, -1, -1, 3]) / 3**0.5,
                             rtol=1e-6)
  assert np.linalg.norm(normalised) == pytest.approx(2, rel=1e-6)
  # Equation (5.2.1): below alpha it divides by alpha.
  small = normalisation.lipschitz(num_groups=1, alpha=4.0).function(x).ravel()
  np.testing.assert_allclose(small, np.array([-1, -1, -1, 3]) / 4, rtol=1e-6)


@pytest.mark.every(3)
@pytest.mark.parametrize('num_groups', [1, 2, 4])
@pytest.mark.parametrize('alpha', [0.01, 1.0, 30.0])
def test_lipschitz_constant_in_l2(oracles, num_groups, alpha):
  """Normalisation has l2 constant 1 / alpha, which images attain (NET-07)."""
  layer = normalisation.lipschitz(num_groups=num_groups, alpha=alpha)
  records = _images(np.random.default_rng(num_groups), 120)
  norms = oracles.norms(oracles.input_jacobians(layer, {}, records))
  assert layer.lipschitz((3, 3, 4)) == 1 / alpha
  assert norms.max() <= 1 / alpha * (1 + 1e-9)
  assert norms.max() >= 1 / alpha * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize('size, expected', [(16, 2.38), (64, 4.44), (256, 8.47)])
def test_claim_fails_outside_l2(oracles, size, expected):
  """Outside l2 the constant fails: near sd =
  alpha it is about sqrt(m) / 2 (E13)."""
  layer = normalisation.lipschitz(num_groups=1, alpha=1.0)
  # One pixel has half of the variance, at a deviation a little above alpha.
  signs = np.sign(np.random.default_rng(0).normal(size=size))
  worst = 0.0
  for part in (0.3, 0.5, 0.7):
    signs[0] = 0
    u = math.sqrt(part) * np.eye(size)[0] + math.sqrt(
      (1 - part) / (size - 1)) * signs
    u -= u.mean()
    x = (u / u.std() * 1.0001).reshape((1, size, 1, 1))
    jacobian = oracles.input_jacobians(layer, {}, x)[0]
    assert oracles.norms(jacobian) <= 1 + 1e-9
    worst = max(worst, np.abs(jacobian).sum(1).max())
    assert np.abs(jacobian).sum(0).max() == pytest.approx(
      np.abs(jacobian).sum(1).max())
  # The norm is far above the claimed 1, near the largest that is known.
  assert worst > max(1.5, 0.8 * expected)
  # Below alpha the norm is that of centring: 2 - 2 / m in l1 and l_inf.
  jacobian = oracles.input_jacobians(layer, {}, 0 * x)[0]
  assert np.abs(jacobian).sum(1).max() == pytest.approx(2 - 2 / size)
  assert np.abs(jacobian).sum(0).max() == pytest.approx(2 - 2 / size)


@pytest.mark.every(3)
@pytest.mark.parametrize('make', [
  lambda: normalisation.lipschitz(num_groups=2, alpha=0.5),
  lambda: normalisation.standard('layer', kappa=0.25),
  lambda: normalisation.standard('instance', kappa=1e-5)])
def test_what_leaves_is_bounded_by_its_size(make):
  """Outputs have norm at most sqrt(h w c), which is attained (LDP-08).

  For small inputs the bound is radius / alpha.
  """
  layer = make()
  x = _images(np.random.default_rng(1), 400)
  out = layer.apply({}, jnp.asarray(x, jnp.float32), Context())
  norms = np.linalg.norm(np.float64(out).reshape(400, -1), axis=1)
  assert layer.output_bound({}, math.inf, (3, 3, 4)) == 6.0
  assert norms.max() <= 6 * (1 + 1e-6) and norms.max() >= 6 * (1 - 1e-3)
  radii = np.linalg.norm(x.reshape(400, -1), axis=1)
  limits = np.array([layer.output_bound({}, float(r), (3, 3, 4)) for r in radii])
  # Centring large constants leaves their rounding errors.
  noise = 4e-7 * radii * layer.lipschitz((3, 3, 4))
  assert np.all(norms <= limits * (1 + 1e-6) + np.minimum(noise, 6e-6 + noise))


def test_alpha_of_the_thesis_makes_the_constant_useless():
  """The thesis's alpha in [0.1 / m, 1 / m]
  gives constants of 6.3e3 to 6.3e4 (E17).

  This is for each layer of Table 5.2.
  """
  m = 28 * 28 * 8
  constants = [normalisation.lipschitz(num_groups=1, alpha=a / m).lipschitz(
    (28, 28, 8)) for a in (1.0, 0.1)]
  assert constants == pytest.approx([6272, 62720])


@pytest.mark.every(3)
@pytest.mark.parametrize('kind, options, axes', [
  ('layer', {}, (1, 2, 3)), ('instance', {}, (1, 2))])
def test_standard_forms_by_hand(kind, options, axes):
  """Standard normalisation equals Definition 2.4.4 in NumPy (NET-06)."""
  x = np.random.default_rng(0).normal(size=(5, 3, 4, 6)) * 3 + 1
  expected = (x - x.mean(axes, keepdims=True)) / np.sqrt(
    x.var(axes, keepdims=True) + 1e-3)
  normalised = normalisation.standard(kind, kappa=1e-3, **options).function(
    jnp.asarray(x, jnp.float32))
  np.testing.assert_allclose(normalised, expected, rtol=1e-4, atol=1e-5)


def test_groups_lie_between_layer_and_instance():
  """One group is layer normalisation, one per channel instance's (NET-06)."""
  x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3, 4, 6)),
                  jnp.float32)
  of = lambda kind, groups=None: normalisation.standard(
    kind, num_groups=groups).function(x)
  np.testing.assert_allclose(of('group', 1), of('layer'), atol=1e-6)
  np.testing.assert_allclose(of('group', 6), of('instance'), atol=1e-6)
  # Two groups have channels 0 to 2 and 3 to 5, each alone.
  halves = [normalisation.standard('layer').function(part)
            for part in (x[..., :3], x[..., 3:])]
  np.testing.assert_allclose(of('group', 2), jnp.concatenate(halves, -1),
                             atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('layer', [
  normalisation.standard('layer'), normalisation.standard('group', num_groups=2),
  normalisation.lipschitz(num_groups=2, alpha=0.1)],
  ids=['layer', 'group', 'lipschitz'])
def test_records_do_not_meet(layer):
  """Normalising records in a batch or alone is the same (NET-06).

  This does not hold for batch normalisation.
  """
  x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 3, 3, 4)),
                  jnp.float32)
  alone = jax.vmap(lambda row: layer.function(row[None])[0])(x)
  np.testing.assert_allclose(layer.function(x), alone, rtol=1e-6, atol=1e-6)
  poisoned = layer.function(x.at[2].set(jnp.nan))
  np.testing.assert_array_equal(poisoned[3:], layer.function(x)[3:])
  batch_norm = lambda x: (x - jnp.mean(x, (0, 1, 2), keepdims=True)) / jnp.std(
    x, (0, 1, 2), keepdims=True)
  apart = jax.vmap(lambda row: batch_norm(row[None])[0])(x)
  assert np.max(np.abs(apart - batch_norm(x))) > 0.1


@pytest.mark.slow
def test_gradients_are_finite_where_a_group_is_constant():
  for layer in (normalisation.lipschitz(num_groups=2, alpha=1e-3),
                normalisation.standard('layer')):
    for value in (0.0, 3.0, -1e15):
      gradient = jax.grad(lambda x, f=layer.function: jnp.sum(
        jnp.square(f(x)) + f(x)))(jnp.full([1, 2, 2, 2], value))
      assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize('make, message', [
  (lambda: normalisation.standard('batch'), 'couples the records'),
  (lambda: normalisation.standard('other'), 'kind must be one of'),
  (lambda: normalisation.standard('layer', kappa=0.0), 'kappa must be'),
  (lambda: normalisation.standard('group'), 'num_groups must be an integer'),
  (lambda: normalisation.lipschitz(num_groups=0, alpha=1.0), 'num_groups must'),
  (lambda: normalisation.lipschitz(num_groups=1, alpha=0.0), 'alpha must be'),
  (lambda: normalisation.lipschitz(num_groups=3, alpha=1.0).output_shape(
    (2, 2, 4)), '3 groups need images'),
  (lambda: normalisation.standard('group', num_groups=3).output_shape(
    (2, 2, 4)), '3 groups need images'),
  (lambda: normalisation.lipschitz(num_groups=1, alpha=1.0).output_shape((4,)),
   'need images')])
def test_refused_when_built(make, message):
  with pytest.raises(ValueError, match=message):
    make()
