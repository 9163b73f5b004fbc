"""These tests check Theorem 5.2.3 in balls (E18) and with batches (E19)."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.clipping_bias import batch_maximum
from experiments.clipping_bias import constraint
from experiments.clipping_bias import regression

_STARTS = jnp.array([[[1.0, 0.0], [0.0, 1.0]], [[0.3, -0.2], [0.5, 0.9]]])


@pytest.mark.slow
@pytest.mark.parametrize('method,diagonal,objective', [
    ('clip_weights', (1.0, 0.5), 0.625),
    ('spectral_projection', (1.0, 1.0), 0.5),
    ('frobenius_rescaling', (2 / 5**0.5, 1 / 5**0.5), 0.763932),
    ('frobenius_adam', (0.5**0.5, 0.5**0.5), 0.878680)])
def test_e18_where_descent_ends_in_a_ball(method, diagonal, objective):
  """Rescaling ends above the optimum that projection reaches (BIAS-03, E18)."""
  ball = constraint.BALLS[method]
  with jax.numpy_dtype_promotion('standard'):  # optax.adam is not strict
    ends = jax.vmap(lambda start: constraint.rest(ball, start))(_STARTS)
  # Adam's memory of a start that is not diagonal fades slowly.
  loose = 3e-3 if method == 'frobenius_adam' else 1e-5
  for weights, atol in zip(ends, (1e-5, loose)):
    np.testing.assert_allclose(weights, np.diag(diagonal), atol=atol)
    assert float(constraint.objective(weights)) == pytest.approx(
        objective, abs=2 * atol)
  best = float(constraint.objective(jnp.diag(jnp.array(ball.optimum))))
  exact = method in ('spectral_projection', 'frobenius_rescaling')
  assert (objective - best < 1e-5) == exact


def test_e18_rescaling_rests_where_the_gradient_is_parallel():
  """Rescaling rests where gradient and weights
  are parallel, not optimal (E18)."""
  weights = constraint.rest(constraint.BALLS['clip_weights'], _STARTS[1])
  gradient = jax.grad(constraint.objective)(weights)
  cosine = jnp.sum(weights * gradient) / (
      jnp.linalg.norm(weights) * jnp.linalg.norm(gradient))
  assert float(cosine) == pytest.approx(-1, abs=1e-5)
  # Moving the second singular value alone stays in the ball and is better.
  better = weights + jnp.diag(jnp.array([0.0, 0.1]))
  assert np.linalg.norm(better, 2) <= 1 + 1e-6
  assert constraint.objective(better) < constraint.objective(weights) - 0.01


@pytest.mark.parametrize('project,order', [
    (constraint.project_spectral, 2), (constraint.project_frobenius, 'fro')])
def test_projections_are_projections(project, order):
  """P is the projection, since <W - P, X - P> <= 0 for all X of the ball."""
  rng = np.random.default_rng(1)
  for _ in range(20):
    weights = rng.normal(size=(2, 2)).astype(np.float32)
    nearest = np.asarray(project(jnp.asarray(weights)))
    assert np.linalg.norm(nearest, order) <= 1 + 1e-6
    others = rng.normal(size=(200, 2, 2))
    others /= [[[max(1, np.linalg.norm(x, order))]] for x in others]
    products = ((weights - nearest) * (others - nearest)).sum((1, 2))
    assert products.max() <= 1e-6


def test_e19_golden_values():
  """Algorithm 8 has known fixed points on batches of one size (E19)."""

  def points(sizes, share):
    return [batch_maximum.fixed_point(
        batch_maximum.with_replacement(size, share)) for size in sizes]

  np.testing.assert_allclose(points((1, 2, 4, 8), 0.5),
                             [0.9091, 0.9479, 0.9792, 0.9894], atol=5e-5)
  np.testing.assert_allclose(
      points((1, 8, 64, 256, 512, 4096), 0.01),
      [0.0917, 0.0971, 0.1488, 0.3736, 0.4896, 0.5025], atol=5e-5)
  assert batch_maximum.least_squares(0.5) == pytest.approx(0.9901, abs=5e-5)
  assert batch_maximum.least_squares(0.01) == pytest.approx(0.5025, abs=5e-5)


def _mean_update(batches, theta):
  """Returns the mean of Algorithm 8's update over (probability, xs)."""
  total = 0.0
  for probability, xs in batches:
    grads = [(theta * x - (10.0 if x == 10 else 0.0)) * x for x in xs]
    total += probability * sum(grads) / max(xs) / len(xs)
  return total


def test_e19_all_batches_one_by_one():
  ordered = [(0.3**xs.count(10) * 0.7**xs.count(1), xs)
             for xs in itertools.product((1, 10), repeat=5)]
  theta = batch_maximum.fixed_point(batch_maximum.with_replacement(5, 0.3))
  assert abs(_mean_update(ordered, theta)) < 1e-12
  best = batch_maximum.least_squares(0.3)
  assert abs(_mean_update(ordered, best)) > 1e-3
  data, q = (1, 1, 1, 1, 10, 10), 0.4
  subsets = [(q**len(xs) * (1 - q)**(6 - len(xs)), xs)
             for size in range(1, 7)
             for xs in itertools.combinations(data, size)]
  theta = batch_maximum.fixed_point(batch_maximum.poisson(4, 2, q))
  assert abs(_mean_update(subsets, theta)) < 1e-12


def test_e19_simulation_agrees():
  """64 simulated runs end at the biased fixed
  point, not at least squares (E19).

  A false alarm at 6 standard errors has probability below 1e-6.
  """
  means = batch_maximum.simulate(jax.random.key(5), batch_size=8, share=0.5,
                                 num_steps=4000, num_runs=64)
  error = means.std(ddof=1) / 8
  assert abs(means.mean() - 0.98941) < 6 * error
  assert abs(means.mean() - batch_maximum.least_squares(0.5)) > 6 * error


def test_a_divisor_that_reads_inputs_alone_spares_the_regression():
  """A divisor of the inputs alone does not bias the regression.

  At (a, b) all batches of two cancel, because E e = 0 for each x.
  """
  kinds = [(x, e, p / 3) for x in (0.1, 0.5, 0.9)
           for e, p in regression.ERRORS]
  mean = sum(p * q * (-2 * e * np.array([x, 1]) - 2 * f * np.array([z, 1])) /
             max(math.hypot(1, x), math.hypot(1, z))
             for (x, e, p), (z, f, q) in itertools.product(kinds, repeat=2))
  np.testing.assert_allclose(mean, 0, atol=1e-12)
