"""These tests check orthogonal weights and the spectral ball.

They cover SPEC-08, SPEC-10, BIAS-03 and erratum E18 (projection).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from experiments.methods.training import spectral_projections


def _values(matrix):
  return np.linalg.svd(np.float64(matrix), compute_uv=False)


@pytest.mark.every(2)
def test_certificates_are_those_of_the_transposed_weights():
  """Certificates are equal for transposed weights.

  Rounding in a step costs the smaller side.
  """
  wide = jnp.asarray(np.random.default_rng(0).normal(size=(3, 40)), jnp.float32)
  bounds = [float(spectral_projections.orthogonal_weights(
      weights, weight_norm=1.0, num_iterations=2)[1])
            for weights in (wide, wide.T)]
  assert bounds[0] == bounds[1] > 1


def test_norms_never_exceed_the_target_on_the_way():
  rng = np.random.default_rng(0)
  for steps in (1, 2, 3, 8, 30):
    make = jax.jit(lambda w, t=steps: spectral_projections.orthogonal_weights(
      w, weight_norm=2.5, num_iterations=t))
    for _ in range(20):
      matrix = rng.normal(size=(12, 7)) * 10**rng.uniform(-6, 6)
      weights, bound = make(jnp.asarray(matrix, jnp.float32))
      assert _values(weights)[0] <= float(bound) <= 2.5 * (1 + 2e-5)
  np.testing.assert_allclose(_values(weights), 2.5, rtol=1e-5)


def test_orthogonal_weights_fail_closed():
  for bad in (np.nan, np.inf):
    matrix = jnp.ones([3, 3]).at[0, 1].set(bad)
    _, bound = spectral_projections.orthogonal_weights(
      matrix, weight_norm=1., num_iterations=3)
    assert not np.isfinite(bound)
  for value in (0., -1., np.inf):
    with pytest.raises(ValueError, match='weight_norm must be a positive'):
      spectral_projections.orthogonal_weights(
        jnp.eye(2), weight_norm=value, num_iterations=3)


# The tests below check the spectral ball.


@pytest.fixture(name='project', scope='module')
def _project():
  return jax.jit(spectral_projections.project_spectral_ball)


@pytest.mark.parametrize('shape', [(3, 3), (2, 5), (5, 2), (1, 4)])
def test_projection_is_optimal(project, shape):
  """The projection is optimal: <W - P, X> is largest at P over the ball.

  The largest value is the radius times the nuclear norm of W - P.
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
  """Returns the projection by a convex
  programme with cuts u^T X v <= radius."""
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
  """Returns <P a - P b, a - b> - ||P a - P b||^2 over random pairs."""
  rng = np.random.default_rng(3)
  pairs = rng.normal(size=(2, 400, 3, 4)) * 10**rng.uniform(
    -1, 1, (2, 400, 1, 1))
  # The second half of the pairs differs in one singular value.
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
  project = lambda w: spectral_projections.project_spectral_ball(w, 1.0)
  assert _firm_gaps(project).min() >= -1e-5
  # Rescaling, a planted fault, is not firmly nonexpansive.
  assert _firm_gaps(_rescale).min() < -1e-4


def test_projection_leaves_the_ball_alone_and_fails_closed(project):
  matrix = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)),
                       jnp.float32)
  inside = 0.99 * matrix / np.float32(_values(matrix)[0])
  np.testing.assert_array_equal(project(inside, 1.), inside)
  assert not np.any(project(jnp.zeros([4, 3]), 1.))
  assert np.isnan(project(matrix.at[0, 0].set(jnp.nan), 1.)).any()


def test_erratum_rescaling_misses_the_optimum():
  """Rescaling misses the optimum that projection reaches (E18, BIAS-03)."""
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
    lambda w: spectral_projections.project_spectral_ball(w, 1.0), start)
  assert value == pytest.approx(0.5, abs=1e-5)
  np.testing.assert_allclose(projected, np.eye(2), atol=1e-5)
