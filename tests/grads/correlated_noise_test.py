"""Tests the Gaussian privatizer with noise that a strategy correlates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import privatizer
from dpjax.grads import quantiles
from dpjax.privacy import additive
from dpjax.privacy import correlated
from dpjax.privacy import strategies
from dpjax.privacy import tree_strategy

KEY = jax.random.key(3)
STEPS = 9
SUMS = {'a': jnp.zeros((2, 3)), 'b': jnp.zeros(4)}
BOUNDS = {'a': jnp.float32(2.0), 'b': jnp.float32(0.5)}
STRATEGIES = {
  'banded': correlated.square_root(3),
  'inverse': correlated.inverse_square_root(3, STEPS),
  'buffered': strategies.BufferedStrategy((0.8,), (0.4,), STEPS),
  'tree': tree_strategy.TreeStrategy(STEPS)}
NAMES = pytest.mark.parametrize('name', STRATEGIES)


def make(strategy, noise=1.5, **options):
  return privatizer.gaussian_privatizer(
      KEY, noise_multiplier=noise, expected_batch_size=10.0, strategy=strategy,
      **options)


def matrix(strategy):
  """Returns C^-1 [T, T] in float64, from the first column or the nodes of C."""
  if isinstance(strategy, tree_strategy.TreeStrategy):
    rows = np.zeros((STEPS, STEPS))
    for step in range(STEPS):
      end = step + 1
      rows[step, end - (end & -end):end] = 1
  else:
    column = strategy.column(STEPS)
    rows = np.array([[column[t - s] if t >= s else 0 for s in range(STEPS)]
                     for t in range(STEPS)])
  return np.linalg.inv(rows / strategy.norm)


def run(transform, steps, state=None, bounds=BOUNDS):
  """Returns the released means of some steps, and the state after them."""
  state = transform.init(SUMS) if state is None else state
  update = jax.jit(transform.update)
  means = []
  for _ in range(steps):
    mean, state = update(SUMS, state, l2_sensitivity=bounds)
    means.append(mean)
  return jax.tree.map(lambda *leaves: np.stack(leaves), *means), state


@pytest.mark.sound
@NAMES
def test_noise_is_that_of_the_matrix(name):
  """Sums of zero show the noise: s_k C^-1 z, with the draws of the key."""
  strategy = STRATEGIES[name]
  means, state = run(make(strategy), STEPS)
  draws = [additive.unit_noise(jax.random.fold_in(KEY, t), SUMS)
           for t in range(STEPS)]
  stddevs = privatizer.scales(BOUNDS, SUMS, 1.5, 'optimal', None)[1]
  for (key, leaf), stddev in zip(sorted(means.items()), stddevs, strict=True):
    normals = np.stack([draw[key] for draw in draws]).astype(np.float64)
    expected = np.tensordot(matrix(strategy), normals, 1) * float(stddev)
    # Releases are rounded to a grid of at most 1/256 of the deviation.
    assert np.max(np.abs(10 * leaf - expected)) <= float(stddev) * 0.0021
  assert 1.5 <= float(state.joint_noise_multiplier) < 1.5001


@pytest.mark.every(2)
@NAMES
def test_a_run_can_be_resumed(name):
  transform = make(STRATEGIES[name])
  whole, _ = run(transform, STEPS)
  first, state = run(transform, 4)
  saved = jax.tree.map(lambda leaf: leaf, state)  # All of it is in the state.
  second, _ = run(make(STRATEGIES[name]), STEPS - 4, saved)
  for key in SUMS:
    np.testing.assert_array_equal(
        np.concatenate([first[key], second[key]]), whole[key])


@pytest.mark.every(2)
def test_noise_drawn_ahead_is_the_same():
  transform = make(STRATEGIES['banded'])
  whole, _ = run(transform, 5)
  ahead = privatizer.draw_ahead(KEY, jnp.int32(0), 5, SUMS)
  state = transform.init(SUMS)
  for step in range(5):
    mean, state = transform.update(
        SUMS, state, l2_sensitivity=BOUNDS,
        draws=jax.tree.map(lambda leaf, t=step: leaf[t], ahead))
    for key in SUMS:
      np.testing.assert_allclose(mean[key], whole[key][step], atol=1e-2)


def test_the_identity_is_independent_noise():
  own, _ = run(make(correlated.square_root(1)), 3)
  independent, _ = run(make(None), 3)
  for key in SUMS:
    # The strategy has a margin of 1e-6 for its norm.
    np.testing.assert_allclose(own[key], independent[key], rtol=1e-2, atol=1e-3)


def test_bounds_that_change_scale_the_noise_of_their_step():
  transform = make(STRATEGIES['banded'])
  update = jax.jit(transform.update)
  state = transform.init(SUMS)
  one, _ = update(SUMS, state, l2_sensitivity=BOUNDS)
  four, _ = update(SUMS, state, l2_sensitivity=jax.tree.map(
      lambda bound: 4 * bound, BOUNDS))
  for key in SUMS:
    np.testing.assert_allclose(four[key], 4 * one[key], rtol=1e-5)


@pytest.mark.every(2)
def test_adaptive_radii_are_noised_by_the_same_strategy():
  adaptive = quantiles.geometric({'a': 1.0, 'b': 1.0}, target_quantile=0.5,
                                 learning_rate=0.2, noise_stddev=2.0)
  transform = make(STRATEGIES['banded'], adaptive=adaptive)
  state = transform.init(SUMS)
  indicators = {'a': jnp.float32(0), 'b': jnp.float32(0)}
  released = []
  for _ in range(4):
    _, state = transform.update(SUMS, state, l2_sensitivity=BOUNDS,
                                indicators=indicators)
    released.append(float(state.indicators['a']))
  draws = [additive.unit_noise(jax.random.fold_in(KEY, t), (SUMS, indicators))
           for t in range(4)]
  normals = np.array([float(draw[1]['a']) for draw in draws])
  expected = matrix(STRATEGIES['banded'])[:4, :4] @ normals * 2.0 / 10
  np.testing.assert_allclose(released, expected, atol=0.002)
