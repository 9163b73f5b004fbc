"""These tests check fixed points: operators, sensitivities and noise."""

import math

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from dpjax.grads import per_example
from dpjax.privacy import mechanism as mechanisms
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Batch
from experiments.methods.training import fixed_point

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE
KEY = jax.random.key(9)
SIZE, DIMS, MOVE_BOUND = 6, 2, .5


def prox(point, record):
  """Returns the proximal point of gamma ||x - record||: a bounded move."""
  gap = record - point
  norm = jnp.sqrt(jnp.sum(gap**2) + 1e-20)
  return point + gap * jnp.minimum(1., MOVE_BOUND / norm)


def median(**changes):
  return fixed_point.consensus_admm(prox, **{**{
    'num_examples': SIZE, 'num_values': DIMS, 'move_bound': MOVE_BOUND,
    'relaxation': .5, 'noise_multiplier': 1.5, 'num_steps': 3,
    'adjacency': REPLACE}, **changes})


def records(seed=0, count=SIZE):
  return jnp.asarray(np.random.default_rng(seed).normal(size=(count, DIMS)),
                     jnp.float32)


@pytest.mark.every(2)
def test_consensus_operator_does_not_expand_and_a_record_moves_it_so_far():
  mechanism, data = median(), records()
  pool = records(1, 40) * 3
  pool = pool.at[0].set(jnp.nan).at[1].set(1e30)
  copies = jax.random.normal(KEY, (40, SIZE, DIMS))
  images = np.asarray(jax.jit(jax.vmap(
      lambda u, x: mechanism.operator(u, data.at[2].set(x))))(
          jnp.concatenate([copies, jnp.stack([copies[0]] * 40)]),
          jnp.concatenate([jnp.stack([data[2]] * 40), pool])), np.float64)
  distance = lambda a: np.linalg.norm((a[:, None] - a[None]).reshape(
      len(a), len(a), -1), axis=-1)
  assert (distance(images[:40]) <= distance(np.asarray(copies)) + 1e-5).all()
  moved = distance(images[40:])
  assert 1.9 * mechanism.record_norm < moved.max()
  assert moved.max() <= 2 * mechanism.record_norm * (1 + 1e-5)
  assert mechanism.record_norm == 2 * MOVE_BOUND
  # No other copy moves.
  others = np.delete(images[40:], 2, axis=1)
  np.testing.assert_array_equal(others, np.broadcast_to(others[0], others.shape))


def test_without_noise_it_ends_at_the_geometric_median():
  data = records()
  mechanism = median(noise_multiplier=1e-6, num_steps=300)
  copies = jax.jit(mechanism.release)(KEY, data)
  best = optimize.minimize(
      lambda x: np.linalg.norm(np.asarray(data) - x, axis=1).sum(),
      np.zeros(DIMS), method='Nelder-Mead', options={'xatol': 1e-6}).x
  np.testing.assert_allclose(jnp.mean(copies, 0), best, atol=2e-3)


@pytest.mark.every(2)
def test_descent_is_dp_sgd_on_all_records():
  bounder = per_example.clipped(
      lambda params, x: x @ params[:, None],
      lambda logits, labels: (logits[:, 0] - labels)**2 / 2, clip_norm=.8)
  data = Batch(records(), jnp.arange(SIZE, dtype=jnp.float32))
  start = jnp.array([.5, -1.])
  mechanism = fixed_point.gradient_descent(
      bounder, num_examples=SIZE, learning_rate=.3, start=start,
      relaxation=1., noise_multiplier=2., num_steps=1, adjacency=ADD)
  x, y = np.asarray(data.x), np.asarray(data.y)
  gradients = (x @ np.asarray(start) - y)[:, None] * x
  norms = np.linalg.norm(gradients, axis=1, keepdims=True)
  mean = (gradients * np.minimum(1, .8 / norms)).mean(0)
  releases = np.asarray(jax.jit(jax.vmap(mechanism.release, (0, None)))(
      jax.random.split(KEY, 20_000), data), np.float64)
  stddev = .3 * 2 * .8 / SIZE
  np.testing.assert_allclose(releases.mean(0), start - .3 * mean,
                             atol=5 * stddev / math.sqrt(20_000))
  np.testing.assert_allclose(releases.std(0), stddev,
                             rtol=5 / math.sqrt(40_000))


def test_relaxation_shrinks_step_and_noise_alike():
  mechanism = fixed_point.FixedPointIteration(
      operator=lambda x, data: x / 2 + data, record_norm=1., start=jnp.ones(4000),
      relaxation=.25, noise_multiplier=2., num_steps=1, adjacency=ADD)
  releases = np.asarray(mechanism.release(KEY, jnp.float32(1)), np.float64)
  assert releases.mean() == pytest.approx(.75 + .25 * 1.5,
                                          abs=.5 * 5 / 4000**.5)
  assert releases.std() == pytest.approx(.5, rel=5 / math.sqrt(8000))


@pytest.mark.every(3)
@pytest.mark.parametrize('adjacency, doubled', [(ADD, 1), (REPLACE, 2)])
def test_event_is_a_gaussian_at_each_step(adjacency, doubled):
  mechanism = fixed_point.FixedPointIteration(
      operator=lambda x, data: x, record_norm=3., start=jnp.ones(2),
      relaxation=.5, noise_multiplier=4., num_steps=9, adjacency=adjacency)
  exact = dp_accounting.get_epsilon_gaussian(4 / (3 * doubled), 1e-5)
  assert mechanisms.epsilon(mechanism, delta=1e-5) == pytest.approx(
      exact, abs=2e-3)
  assert isinstance(mechanism, mechanisms.Mechanism)


@pytest.mark.parametrize('changes, message', [
  ({'adjacency': ADD}, 'consensus_admm keeps .* only under .* replace_one'),
  ({'relaxation': 0.}, 'relaxation must lie in'),
  ({'relaxation': 1.5}, 'relaxation must lie in'),
  ({'move_bound': 0.}, 'move_bound must be a positive'),
  ({'noise_multiplier': -1.}, 'noise_multiplier must be a positive'),
  ({'num_steps': 0}, 'num_steps must be an integer >= 1')])
def test_refusals(changes, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    median(**changes)
