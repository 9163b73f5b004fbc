"""Tests the projection on a ball by brute force, and its record type."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import ball
from dpjax.grads import per_example
from dpjax.typing import Batch


def _records(rng):
  """Returns [40, 5] records of scales 1e-12 to 1e30, with the origin."""
  x = rng.normal(size=(40, 5)) * np.logspace(-12, 30, 40)[:, None]
  x[0] = 0
  x[1] = np.eye(5)[0]
  return jnp.asarray(x, jnp.float32)


@pytest.mark.every(2)
@pytest.mark.parametrize('radius', [1e-3, 1., 7.5])
def test_norms_after_projection(radius):
  x = _records(np.random.default_rng(0))
  projected = np.float64(ball.project_ball(x, radius))
  norms = np.linalg.norm(projected, axis=1)
  assert norms.max() <= radius * (1 + 1e-6)
  before = np.linalg.norm(np.float64(x), axis=1)
  inside = before < radius * (1 - 1e-6)
  assert inside.any() and not inside.all()
  np.testing.assert_array_equal(projected[inside], np.float64(x)[inside])
  # Where float32 can square, the direction is kept and the norm attained.
  squarable = ~inside & (before < 1e18)
  np.testing.assert_allclose(norms[squarable], radius, rtol=1e-6)
  np.testing.assert_allclose(
    projected[squarable] / radius,
    np.float64(x)[squarable] / before[squarable, None], atol=1e-6)


def test_records_do_not_meet():
  x = _records(np.random.default_rng(2))
  before = ball.project_ball(x, 1.)
  for bad in (1e30, jnp.inf, jnp.nan):
    after = ball.project_ball((x * 7).at[3].set(bad).at[20].set(x[20]), 1.)
    np.testing.assert_array_equal(before[20], after[20])
  alone = jnp.concatenate([ball.project_ball(row[None], 1.) for row in x])
  np.testing.assert_allclose(before, alone, rtol=1e-6)


@pytest.mark.every(2)
def test_views_are_records_of_their_own():
  """Merged row i A + a is view a of record i and finite if the record is."""
  rng = np.random.default_rng(5)
  x = jnp.asarray(rng.normal(size=(3, 2, 4)), jnp.float32)
  np.testing.assert_array_equal(ball.merge_views(x), np.reshape(x, (6, 4)))
  projected = ball.project_records(x.at[1, 0, 2].set(jnp.nan), 0.5)
  np.testing.assert_array_equal(projected.finite, [True, False, True])
  merged = ball.merge_views(projected)
  assert isinstance(merged, ball.BallRecords) and merged.radius == 0.5
  np.testing.assert_array_equal(merged.values,
                                np.reshape(projected.values, (6, 4)))
  np.testing.assert_array_equal(merged.finite, [True] * 2 + [False] * 2
                                + [True] * 2)


def test_only_smaller_balls_are_believed():
  x = jnp.asarray([[3.0, 4.0], [0.3, 0.4]])
  for records, norms in ((x, (1, 0.5)),
                         (ball.project_records(x, 1.0), (1, 0.5)),
                         (ball.project_records(x, 0.5), (0.5, 0.5)),
                         (ball.project_records(x, 2.0), (1, 0.5))):
    np.testing.assert_allclose(
      np.linalg.norm(ball.in_ball(records, 1.0), axis=1), norms, rtol=1e-6)


@pytest.mark.every(2)
def test_derivative_is_that_of_the_formula():
  rng = np.random.default_rng(4)
  # These lie inside, outside and far outside.
  x = np.concatenate([rng.normal(size=(9, 3)) * s for s in (0.1, 5., 1e4)])
  cotangents = rng.normal(size=x.shape)
  norms = np.linalg.norm(x, axis=1, keepdims=True)
  scale = np.minimum(1, 2. / norms)
  radial = np.sum(x * cotangents, 1, keepdims=True) * x / norms**2
  expected = scale * (cotangents - np.where(norms > 2., radial, 0.))
  pull = jax.vjp(lambda x: ball.project_ball(x, 2.),
                 jnp.asarray(x, jnp.float32))[1]
  gradients = pull(jnp.asarray(cotangents, jnp.float32))[0]
  np.testing.assert_allclose(gradients / scale, expected / scale, rtol=1e-4,
                             atol=1e-5)


def test_jacobian_norm_is_at_most_one():
  rng = np.random.default_rng(3)
  x = np.concatenate([rng.normal(size=(60, 4)) * scale
                      for scale in (1e-6, 0.4, 0.6, 3., 1e6)])
  unit = rng.normal(size=(20, 4))
  x = np.concatenate([x, unit / np.linalg.norm(unit, axis=1)[:, None]])
  project = lambda row: ball.project_ball(row[None], 1.)[0]
  jacobians = jax.jit(jax.vmap(jax.jacrev(project)))(
    jnp.asarray(x, jnp.float32))
  assert np.all(np.isfinite(jacobians))
  spectral = np.linalg.norm(np.float64(jacobians), 2, axis=(1, 2))
  assert spectral.max() <= 1 + 2e-6
  # Differences of pairs would show a wrong derivative, too.
  pairs = jnp.asarray(rng.normal(size=(2, 3000, 4)) * 1.5, jnp.float32)
  left, right = (np.float64(ball.project_ball(p, 1.)) for p in pairs)
  distances = np.linalg.norm(left - right, axis=1)
  apart = np.linalg.norm(np.float64(pairs[0]) - np.float64(pairs[1]), axis=1)
  assert np.max(distances / apart) <= 1 + 1e-5


@pytest.mark.slow
def test_gradient_is_finite_everywhere():
  total = lambda x: jnp.sum(ball.project_ball(x, 1.))
  for x in (jnp.zeros([2, 3]), jnp.full([2, 3], 1e-30), jnp.full([2, 3], 1e15),
            jnp.full([2, 3], 1e30)):
    assert np.all(np.isfinite(jax.grad(total)(x)))
  np.testing.assert_array_equal(jax.grad(total)(jnp.zeros([2, 3])),
                                np.ones([2, 3]))


def test_prepared_records_are_in_the_ball_or_marked():
  x = _records(np.random.default_rng(1)).at[7, 2].set(jnp.nan)
  x = x.at[30, 0].set(jnp.inf)
  records = ball.project_records(x, 2.)
  assert records.radius == 2.
  np.testing.assert_array_equal(np.flatnonzero(~np.asarray(records.finite)),
                                [7, 30])
  assert np.linalg.norm(np.float64(records.values), axis=1).max() <= 2 + 1e-5
  assert not np.any(records.values[jnp.asarray([7, 30])])
  np.testing.assert_array_equal(records.values[3],
                                ball.project_ball(x, 2.)[3])


def test_in_ball_trusts_a_smaller_ball_only():
  x = _records(np.random.default_rng(1))
  small = ball.project_records(x, 1.)
  assert ball.in_ball(small, 1.) is small.values
  assert ball.in_ball(small, 3.) is small.values
  for given in (x, ball.project_records(x, 3.)):
    norms = np.linalg.norm(np.float64(ball.in_ball(given, 1.)), axis=1)
    assert norms.max() <= 1 + 1e-6


@pytest.mark.parametrize('radius', [0., -1., np.inf, np.nan])
def test_refuses_a_radius_that_is_none(radius):
  with pytest.raises(ValueError, match='radius must be a positive number'):
    ball.project_ball(jnp.ones([2, 3]), radius)


@pytest.mark.every(3)
@pytest.mark.parametrize('kind', ['summed', 'clipped'])
def test_bounders_leave_out_what_is_marked(network, kind):
  """A NaN record contributes zero and is counted, prepared or not."""
  apply = lambda params, x: network.apply(params, ball.in_ball(x, 1.))
  make = {'summed': per_example.summed,
          'clipped': lambda *a: per_example.clipped(
            *a, clip_norm=0.5, microbatch_size=4)}[kind]
  sums = jax.jit(make(apply, network.loss).sums)
  mask = jnp.arange(13) != 5
  broken = network.batch.x.at[2, 0].set(jnp.nan)
  raw = sums(network.params, Batch(broken, network.batch.y), mask)
  prepared = sums(network.params, Batch(
    ball.project_records(broken, 1.), network.batch.y), mask)
  without = sums(network.params, network.batch, mask & (jnp.arange(13) != 2))
  for result in (raw, prepared):
    assert int(result.num_nonfinite) == 1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(
      a, b, rtol=1e-5, atol=1e-6), result.total, without.total)
