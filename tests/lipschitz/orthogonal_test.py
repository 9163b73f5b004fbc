"""These tests check Björck's iteration (item SPEC-08, erratum E10)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

from dpjax.lipschitz import convolution
from dpjax.lipschitz import layers
from dpjax.lipschitz import norms
from dpjax.lipschitz import orthogonal
from dpjax.lipschitz import projection
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network


def _values(matrix):
  return np.linalg.svd(np.float64(matrix), compute_uv=False)


@pytest.mark.parametrize('before, after', [
  (1.2, .936), (1.7, .0935), (1.8, -.216), (1.99, -.9553)])
def test_step_on_a_number(before, after):
  step = orthogonal.bjorck_step(jnp.full([1, 1], before))
  assert float(step[0, 0]) == pytest.approx(after, abs=5e-5)


def test_unguarded_iteration_has_a_domain():
  """Unguarded iteration gives +1 below sqrt 3, -1 up to 2, then diverges (E10).

  It has a cycle at sqrt 5.
  """
  limits = {}
  for start in (0.05, 1.7, 1.8, 1.99, 2.24):
    x = jnp.full([1, 1], start)
    for _ in range(20):
      x = orthogonal.bjorck_step(x)
    limits[start] = float(x[0, 0])
  assert [limits[s] for s in (0.05, 1.7, 1.8, 1.99)] == pytest.approx(
    [1, 1, -1, -1], abs=1e-5)
  assert not np.isfinite(limits[2.24])
  root = np.float64(5)**0.5
  assert root * (3 - root**2) / 2 == pytest.approx(-root)


def test_free_certificate():
  """After one step from ||W|| <= 2 the norm is
  at most 1; from 2.1 it is not."""
  rng = np.random.default_rng(0)
  for _ in range(50):
    matrix = rng.normal(size=(8, 5))
    matrix *= rng.uniform(0.1, 2) / np.linalg.norm(matrix, 2)
    step = orthogonal.bjorck_step(jnp.asarray(matrix, jnp.float32))
    assert _values(step)[0] <= 1 + 1e-6
  stepped = orthogonal.bjorck_step(jnp.full([1, 1], 2.1))
  assert abs(float(stepped[0, 0])) > 1


@pytest.mark.every(2)
def test_published_convergence():
  """The least singular value converges as published: .187, .767, 1 (from .125).

  The matrix is a 64 x 100 Gaussian over its norm.
  """
  left, values, right = np.linalg.svd(
    np.random.default_rng(0).normal(size=(64, 100)), full_matrices=False)
  # Our draw has another least value, so the published one is put in.
  values = np.maximum(values / values[0], .125)
  matrix = jnp.asarray((left * values) @ right, jnp.float32)
  smallest = [_values(orthogonal.bjorck(matrix, num_iterations=steps))[-1]
              for steps in (1, 5, 10)]
  # The certified norm is a little above 1.
  np.testing.assert_allclose(smallest, [.187, .767, 1.], rtol=0.01)
  steps = matrix
  for golden in (.187, .277, .404, .573, .766):
    steps = orthogonal.bjorck_step(steps)
    assert _values(steps)[-1] == pytest.approx(golden, abs=1e-3)


def test_a_small_value_needs_25_steps():
  matrix = jnp.diag(jnp.asarray([1., 0.001]))
  assert _values(orthogonal.bjorck(matrix, num_iterations=12))[-1] < 0.2
  assert _values(orthogonal.bjorck(matrix, num_iterations=25))[-1] > 0.99


@pytest.mark.every(2)
@pytest.mark.parametrize('shape', [(3, 3), (20, 6), (6, 20), (1, 5)])
def test_guarded_iteration_at_every_scale(shape):
  rng = np.random.default_rng(0)
  turn = jax.jit(lambda w: orthogonal.bjorck(w, num_iterations=25))
  for scale in (1e-20, 1e-3, 1., 3., 1e20):
    turned = turn(jnp.asarray(rng.normal(size=shape) * scale, jnp.float32))
    np.testing.assert_allclose(_values(turned), 1, atol=2e-6)
  assert not np.any(turn(jnp.zeros(shape)))
  assert np.all(np.isnan(turn(jnp.ones(shape).at[0, 0].set(jnp.nan))))


def test_no_iteration_at_all_is_refused():
  with pytest.raises(ValueError, match='num_iterations must be an integer'):
    orthogonal.bjorck(jnp.eye(2), num_iterations=0)


def test_erratum_clipped_weights_diverge_without_the_guard():
  """Weights clipped at C = 3 diverge without the guard (E10 i, ii).

  With the guard, singular values below C become C.
  """
  weights = jnp.diag(jnp.asarray([3., 0.5]))
  unguarded = weights
  for _ in range(12):
    unguarded = orthogonal.bjorck_step(unguarded)
  assert not np.all(np.isfinite(unguarded))
  # With the guard it converges, but singular values below C become C.
  guarded = 3 * orthogonal.bjorck(weights, num_iterations=20)
  np.testing.assert_allclose(_values(guarded), [3., 3.], rtol=1e-5)


@pytest.mark.every(2)
def test_erratum_an_orthogonal_kernel_is_no_orthogonal_convolution():
  """An orthogonal kernel matrix gives a convolution of norm near 3 (E10)."""
  shape = convolution.ConvShape((12, 12))
  kernel = jnp.ones([3, 3, 1, 1]) + 0.01 * jnp.arange(9.).reshape((3, 3, 1, 1))
  matrix = orthogonal.bjorck(kernel.reshape((9, 1)), num_iterations=20)
  turned = np.asarray(matrix).reshape(kernel.shape)
  assert norms.exact_upper_bound(matrix) == pytest.approx(1, abs=1e-5)
  assert convolution.exact_upper_bound(turned, shape) > 2.99
  assert float(convolution.reshape_upper_bound(
    jnp.asarray(turned), shape)) == pytest.approx(3, rel=1e-4)


def test_fault_a_lower_bound_as_the_guard(monkeypatch):
  """A guard by power iteration fails: the iteration can leave its domain."""
  monkeypatch.setattr(norms, 'spectral_upper_bound', lambda w: (
    norms.power_iteration(w, jnp.asarray([1., 0.01]), num_iterations=1)[0]))
  matrix = jnp.diag(jnp.asarray([1., 5.]))
  assert not np.all(np.isfinite(orthogonal.bjorck(matrix, num_iterations=20)))


def _cases(rng):
  """Yields matrices: orthogonal ones with noise, and others of any size."""
  for rows, columns in ((1, 1), (7, 1), (1, 6), (8, 8), (40, 24), (24, 40),
                        (64, 64), (300, 16)):
    square = np.linalg.qr(rng.normal(size=(max(rows, columns),) * 2))[0]
    orthogonal_ = square[:rows, :columns]
    for noise in (0, 1e-6, 1e-3, 0.05, 0.3, 2.0):
      yield orthogonal_ + noise * rng.normal(size=orthogonal_.shape)
    yield 1.9999 * orthogonal_
    yield 50 * rng.normal(size=(rows, columns))
    yield np.ones((rows, columns))
  for scale in (0.01, 1 / 8, 0.24, 3.0):
    yield scale * linalg.hadamard(64)


def test_the_norm_of_retracted_weights_is_bounded():
  """No float64 norm is above the bound, and the bound is close to 1."""
  for matrix in _cases(np.random.default_rng(4)):
    for steps in (1, 3):
      weights, bound = orthogonal.retract(jnp.asarray(matrix, jnp.float32),
                                          num_steps=steps)
      assert weights.shape == matrix.shape
      assert _values(weights)[0] <= float(bound) <= 1.002


def test_retracted_weights_stay_near_orthogonal():
  rng = np.random.default_rng(5)
  start = np.linalg.qr(rng.normal(size=(32, 32)))[0]
  for noise in (1e-3, 1e-2, 3e-2):
    moved = start + noise * rng.normal(size=start.shape)
    weights, _ = orthogonal.retract(jnp.asarray(moved, jnp.float32))
    off = np.abs(_values(moved) - 1).max()
    # s (3 - s^2) / 2 = 1 - 3/2 e^2 - e^3 / 2 at s = 1 + e.
    assert np.abs(_values(weights) - 1).max() <= 1.5 * off**2 + off**3 + 1e-5


def test_the_retraction_keeps_the_tangent_part_of_noise():
  """Half of the energy of noise on a square matrix remains."""
  rng = np.random.default_rng(6)
  start = np.linalg.qr(rng.normal(size=(64, 64)))[0]
  noise = 1e-3 * rng.normal(size=start.shape)
  tangent = noise - start @ (start.T @ noise + noise.T @ start) / 2
  weights, _ = orthogonal.retract(jnp.asarray(start + noise, jnp.float32))
  np.testing.assert_allclose(weights, start + tangent, atol=1e-4)
  share = np.square(tangent).sum() / np.square(noise).sum()
  assert share == pytest.approx((64 - 1) / (2 * 64), abs=0.03)


@pytest.mark.parametrize('entry', [np.nan, np.inf, 1e30])
def test_weights_without_a_norm_have_no_bound(entry):
  weights = jnp.eye(4).at[1, 2].set(entry)
  assert not float(orthogonal.retract(weights)[1]) < np.inf


def test_large_weights_are_scaled_down_before_the_step():
  """Otherwise the norm of a step from 3 is 9."""
  weights = 3 * jnp.eye(5)
  assert _values(orthogonal.retract(weights)[0])[0] <= 1.001
  assert _values(orthogonal.bjorck_step(weights))[0] == pytest.approx(9)


def test_orthogonal_layers_stay_so_and_do_not_make_bounds_grow():
  """Sixteen layers have the gradient bounds of one, whatever weight_norm is."""
  network = Network(input_shape=(6,), input_radius=1.0, root=Chain(
      name='root', nodes=(*(layers.Dense(
          name=f'd{number}', width=6, use_bias=False, orthogonal=True)
                            for number in range(16)),
                          layers.Dense(name='head', width=3, use_bias=False))))
  network.check_bounds(weight_norm=50.0, loss_lipschitz=1.0)
  rng = np.random.default_rng(0)
  params = jax.tree.map(lambda leaf: jnp.asarray(
      rng.normal(size=leaf.shape), jnp.float32), network.init(
          jax.random.key(0)))
  held, certificate = projection.clip_weights(network, weight_norm=50.0
                                              ).constrain(params)
  largest = [np.linalg.norm(np.float64(held[f'd{number}']['kernel']), 2)
             for number in range(16)]
  assert all(norm <= float(certificate[f'd{number}']) < 1.001
             for number, norm in enumerate(largest))
  bounds = network.gradient_bounds(certificate, loss_lipschitz=1.0)
  head = float(certificate['head'])
  assert [float(bounds[f'd{number}']) for number in range(16)] == pytest.approx(
      [head] * 16, rel=0.01)


@pytest.mark.parametrize('shape', [(64, 64), (100, 7), (3, 40), (1, 1)])
def test_random_matrices_are_orthogonal(shape):
  matrix = orthogonal.random_orthogonal(jax.random.key(3), shape)
  assert matrix.shape == shape
  np.testing.assert_allclose(_values(matrix), 1.0, atol=1e-5)
  other = orthogonal.random_orthogonal(jax.random.key(4), shape)
  assert shape == (1, 1) or np.abs(matrix - other).max() > 0.1


def test_programs_of_random_matrices_call_no_library():
  """Joint programs of QR decompositions can hang on CPUs."""
  keys = jax.random.split(jax.random.key(0), 3)
  program = jax.jit(jax.vmap(lambda key: orthogonal.random_orthogonal(
    key, (8, 8)))).lower(keys).as_text()
  assert 'custom_call' not in program
