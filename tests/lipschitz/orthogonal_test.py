"""Björck's iteration and the projection on the spectral ball.

Item SPEC-08, SPEC-10, BIAS-03; errata E10, E18 (projection).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from dpjax.lipschitz import convolution
from dpjax.lipschitz import norms
from dpjax.lipschitz import orthogonal


def _values(matrix):
  return np.linalg.svd(np.float64(matrix), compute_uv=False)


@pytest.mark.parametrize('before, after', [
  (1.2, .936), (1.7, .0935), (1.8, -.216), (1.99, -.9553)])
def test_step_on_a_number(before, after):
  step = orthogonal.bjorck_step(jnp.full([1, 1], before))
  assert float(step[0, 0]) == pytest.approx(after, abs=5e-5)


def test_unguarded_iteration_has_a_domain():
  """E10: +1 below sqrt 3, -1 up to 2, a cycle at sqrt 5, then it diverges."""
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
  """||W|| <= 2 gives norm at most 1 after one step; 2.1 does not."""
  rng = np.random.default_rng(0)
  for _ in range(50):
    matrix = rng.normal(size=(8, 5))
    matrix *= rng.uniform(0.1, 2) / np.linalg.norm(matrix, 2)
    step = orthogonal.bjorck_step(jnp.asarray(matrix, jnp.float32))
    assert _values(step)[0] <= 1 + 1e-6
  stepped = orthogonal.bjorck_step(jnp.full([1, 1], 2.1))
  assert abs(float(stepped[0, 0])) > 1


@pytest.mark.every(2)
def test_certificates_are_those_of_the_transposed_weights():
  """Rounding in one step costs the smaller side, whichever that is."""
  wide = jnp.asarray(np.random.default_rng(0).normal(size=(3, 40)), jnp.float32)
  bounds = [float(orthogonal.orthogonal_weights(
      weights, weight_norm=1.0, num_iterations=2)[1])
            for weights in (wide, wide.T)]
  assert bounds[0] == bounds[1] > 1


@pytest.mark.every(2)
def test_published_convergence():
  """64 x 100 Gaussian over its norm: .125 -> .187, .767, 1."""
  left, values, right = np.linalg.svd(
    np.random.default_rng(0).normal(size=(64, 100)), full_matrices=False)
  # Our draw has another least value; the published one in its place.
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


def test_norms_never_exceed_the_target_on_the_way():
  rng = np.random.default_rng(0)
  for steps in (1, 2, 3, 8, 30):
    make = jax.jit(lambda w, t=steps: orthogonal.orthogonal_weights(
      w, weight_norm=2.5, num_iterations=t))
    for _ in range(20):
      matrix = rng.normal(size=(12, 7)) * 10**rng.uniform(-6, 6)
      weights, bound = make(jnp.asarray(matrix, jnp.float32))
      assert _values(weights)[0] <= float(bound) <= 2.5 * (1 + 2e-5)
  np.testing.assert_allclose(_values(weights), 2.5, rtol=1e-5)


def test_orthogonal_weights_fail_closed():
  for bad in (np.nan, np.inf):
    matrix = jnp.ones([3, 3]).at[0, 1].set(bad)
    _, bound = orthogonal.orthogonal_weights(matrix, weight_norm=1.,
                                             num_iterations=3)
    assert not np.isfinite(bound)
  for value in (0., -1., np.inf):
    with pytest.raises(ValueError, match='weight_norm must be a positive'):
      orthogonal.orthogonal_weights(jnp.eye(2), weight_norm=value,
                                    num_iterations=3)
  with pytest.raises(ValueError, match='num_iterations must be an integer'):
    orthogonal.bjorck(jnp.eye(2), num_iterations=0)


def test_erratum_clipped_weights_diverge_without_the_guard():
  """E10 (i), (ii): after ClipWeights at C = 3, and what is small is lost."""
  weights = jnp.diag(jnp.asarray([3., 0.5]))
  unguarded = weights
  for _ in range(12):
    unguarded = orthogonal.bjorck_step(unguarded)
  assert not np.all(np.isfinite(unguarded))
  # Guarded it converges, but the norm below C becomes C.
  orthogonal_weights, _ = orthogonal.orthogonal_weights(weights, weight_norm=3.,
                                                        num_iterations=20)
  np.testing.assert_allclose(_values(orthogonal_weights), [3., 3.], rtol=1e-5)


@pytest.mark.every(2)
def test_erratum_an_orthogonal_kernel_is_no_orthogonal_convolution():
  """E10: the matrix has norm 1, the convolution up to sqrt(9)."""
  shape = convolution.ConvShape((12, 12))
  kernel = jnp.ones([3, 3, 1, 1]) + 0.01 * jnp.arange(9.).reshape((3, 3, 1, 1))
  matrix = orthogonal.bjorck(kernel.reshape((9, 1)), num_iterations=20)
  turned = np.asarray(matrix).reshape(kernel.shape)
  assert norms.exact_upper_bound(matrix) == pytest.approx(1, abs=1e-5)
  assert convolution.exact_upper_bound(turned, shape) > 2.99
  assert float(convolution.reshape_upper_bound(
    jnp.asarray(turned), shape)) == pytest.approx(3, rel=1e-4)


def test_fault_a_lower_bound_as_the_guard(monkeypatch):
  """With power iteration in its place the iteration can leave its domain."""
  monkeypatch.setattr(norms, 'spectral_upper_bound', lambda w: (
    norms.power_iteration(w, jnp.asarray([1., 0.01]), num_iterations=1)[0]))
  matrix = jnp.diag(jnp.asarray([1., 5.]))
  assert not np.all(np.isfinite(orthogonal.bjorck(matrix, num_iterations=20)))


# The spectral ball.


@pytest.fixture(name='project', scope='module')
def _project():
  return jax.jit(orthogonal.project_spectral_ball)


@pytest.mark.parametrize('shape', [(3, 3), (2, 5), (5, 2), (1, 4)])
def test_projection_is_optimal(project, shape):
  """An exact certificate: <W - P, X> is largest at P over the whole ball.

  The largest over the ball is radius times the nuclear norm of W - P.
  """
  rng = np.random.default_rng(0)
  for _ in range(60):
    matrix = rng.normal(size=shape) * rng.uniform(0.2, 4)
    radius = rng.uniform(0.3, 2)
    projected = np.float64(project(jnp.asarray(matrix, jnp.float32),
                                   jnp.float32(radius)))
    assert _values(projected)[0] <= radius * (1 + 1e-6)
    gap = matrix - projected
    assert (radius * _values(gap).sum() - np.sum(gap * projected)
            <= 1e-5 * (1 + np.linalg.norm(matrix)**2))


def _convex_solution(matrix, radius):
  """min ||X - W||_F^2 with u^T X v <= radius, cuts added while violated."""
  cuts, solution = [], matrix.ravel()
  for _ in range(60):
    left, values, right = np.linalg.svd(solution.reshape(matrix.shape))
    if values[0] <= radius * (1 + 1e-7):
      break
    cuts += [np.outer(left[:, i], right[i]).ravel()
             for i in np.flatnonzero(values > radius)]
    normals = np.array(cuts)
    solution = scipy.optimize.minimize(
      lambda x: 0.5 * np.sum((x - matrix.ravel())**2), solution,
      jac=lambda x: x - matrix.ravel(), method='SLSQP',
      options={'ftol': 1e-14, 'maxiter': 300}, constraints={
        'type': 'ineq', 'fun': lambda x, a=normals: radius - a @ x,
        'jac': lambda x, a=normals: -a}).x
  return solution.reshape(matrix.shape)


def test_projection_agrees_with_a_convex_solver(project):
  rng = np.random.default_rng(1)
  for _ in range(6):
    matrix = 2 * rng.normal(size=(3, 3))
    solved = _convex_solution(matrix, 1.)
    np.testing.assert_allclose(
      project(jnp.asarray(matrix, jnp.float32), 1.), solved, atol=2e-3)


def test_no_matrix_of_the_ball_is_nearer(project):
  rng = np.random.default_rng(2)
  matrix = 2 * rng.normal(size=(3, 3))
  projected = np.float64(project(jnp.asarray(matrix, jnp.float32), 1.))
  least = np.linalg.norm(matrix - projected)
  others = projected + rng.normal(size=(20000, 3, 3)) * 10**rng.uniform(
    -4, 0, (20000, 1, 1))
  others /= np.maximum(1, np.linalg.norm(others, 2, axis=(1, 2)))[:, None, None]
  assert np.min(np.linalg.norm(matrix - others, axis=(1, 2))) >= least - 1e-6


def _firm_gaps(step):
  """<P a - P b, a - b> - ||P a - P b||^2 over random pairs."""
  rng = np.random.default_rng(3)
  pairs = rng.normal(size=(2, 400, 3, 4)) * 10**rng.uniform(
    -1, 1, (2, 400, 1, 1))
  # And pairs that differ in one singular value.
  pairs[1, 200:] = pairs[0, 200:]
  left, _, right = np.linalg.svd(pairs[0, 200:], full_matrices=False)
  pairs[1, 200:] += 0.1 * left[:, :, :1] * right[:, :1]
  pairs = np.float32(pairs)
  stepped = [np.float64(jax.vmap(step)(side)) for side in pairs]
  apart = stepped[0] - stepped[1]
  start = np.float64(pairs[0]) - np.float64(pairs[1])
  return np.sum(apart * start, (1, 2)) - np.sum(apart**2, (1, 2))


def _rescale(matrix):
  return matrix / jnp.maximum(1.0, jnp.linalg.norm(matrix, 2))


@pytest.mark.every(2)
def test_projection_is_firmly_non_expansive():
  project = lambda w: orthogonal.project_spectral_ball(w, 1.0)
  assert _firm_gaps(project).min() >= -1e-5
  # Planted: rescaling is not.
  assert _firm_gaps(_rescale).min() < -1e-4


def test_projection_leaves_the_ball_alone_and_fails_closed(project):
  matrix = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)),
                       jnp.float32)
  inside = 0.99 * matrix / np.float32(_values(matrix)[0])
  np.testing.assert_array_equal(project(inside, 1.), inside)
  assert not np.any(project(jnp.zeros([4, 3]), 1.))
  assert np.isnan(project(matrix.at[0, 0].set(jnp.nan), 1.)).any()


def test_erratum_rescaling_misses_the_optimum():
  """E18, BIAS-03: min 1/2 ||W - diag(2, 1)||_F^2 with ||W||_2 <= 1."""
  target = jnp.diag(jnp.asarray([2., 1.]))

  def descend(constrain, start):
    step = jax.jit(lambda value: constrain(value - 0.5 * (value - target)))
    for _ in range(60):
      start = step(start)
    return start, 0.5 * float(jnp.sum(jnp.square(start - target)))

  start = jnp.asarray([[0.1, 0.2], [-0.3, 0.1]])
  rescaled, value = descend(_rescale, start)
  assert value == pytest.approx(0.625, abs=1e-5)
  np.testing.assert_allclose(rescaled, np.diag([1., 0.5]), atol=1e-5)
  projected, value = descend(
    lambda w: orthogonal.project_spectral_ball(w, 1.0), start)
  assert value == pytest.approx(0.5, abs=1e-5)
  np.testing.assert_allclose(projected, np.eye(2), atol=1e-5)
