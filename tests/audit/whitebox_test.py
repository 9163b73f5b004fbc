"""These tests check the white-box instruments on known distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from dpjax import tree
from dpjax.audit import whitebox

_Q, _SIGMA, _STEPS = 0.1, 2.0, 50
_REMOVE = {0.25: 0.064396, 0.5: 0.022414, 1.0: 0.0013553}
_ADD = {0.25: 0.058355, 0.5: 0.015552, 1.0: 0.00020719}


def _losses(present: bool, runs: int = 100_000) -> np.ndarray:
  rng = np.random.default_rng(1 + present)
  joined = rng.random((runs, _STEPS)) < _Q if present else 0.0
  statistics = joined + _SIGMA * rng.standard_normal((runs, _STEPS))
  return whitebox.privacy_losses(statistics, sampling_prob=_Q,
                                 noise_multiplier=_SIGMA)


@pytest.mark.every(2)
@pytest.mark.parametrize('epsilon', sorted(_REMOVE))
def test_estimated_curve_meets_reference_figures(epsilon):
  # At 5.5 standard errors a false alarm has probability 4e-8 each.
  remove = whitebox.estimate_delta(_losses(True), epsilon=epsilon)
  add = whitebox.estimate_delta(-_losses(False), epsilon=epsilon)
  assert abs(remove.value - _REMOVE[epsilon]) < 5.5 * remove.standard_error
  assert abs(add.value - _ADD[epsilon]) < 5.5 * add.standard_error


def test_certain_inclusion_gives_the_gaussian_loss():
  losses = whitebox.privacy_losses(np.array([[0.5, 1.5]]), sampling_prob=1.0,
                                   noise_multiplier=2.0)
  np.testing.assert_allclose(losses, [(0.0 + 2.0) / 8])


def test_matched_filter_is_unit_and_best():
  canary = {'a': jnp.asarray([3.0, 4.0]), 'b': jnp.asarray([[2.0]])}
  stddevs = {'a': jnp.float32(10.0), 'b': jnp.float32(4.0)}
  direction, mu = whitebox.matched_filter(canary, stddevs)
  assert float(tree.dot(direction, canary)) == pytest.approx(1.0)
  assert mu == pytest.approx((0.5**2 + 0.5**2)**0.5)
  scaled = tree.map_blocks(lambda s, leaf: leaf * s, stddevs, direction)
  assert float(tree.global_norm(scaled)) == pytest.approx(1 / mu)


def test_recorder_keeps_every_update_and_changes_none():
  transform = optax.chain(
      whitebox.recorder(lambda u: {'twice': 2 * u['w']}, 3), optax.sgd(1.0))
  params = {'w': jnp.zeros([2])}
  state = transform.init(params)
  for step in range(3):
    update, state = transform.update(
        {'w': jnp.full([2], float(step))}, state, params)
    np.testing.assert_array_equal(update['w'], [-step, -step])
  np.testing.assert_array_equal(state[0].history['twice'],
                                [[0, 0], [2, 2], [4, 4]])


def test_variance_p_value_accepts_the_truth_and_refutes_a_tenth():
  noise = np.asarray(jax.random.normal(jax.random.key(3), (5000,))) * 0.7
  assert whitebox.variance_p_value(noise, stddev=0.7) > 1e-6
  assert whitebox.variance_p_value(noise, stddev=0.7 * 1.1) < 1e-6
  assert whitebox.variance_p_value(noise, stddev=0.7 * 0.9) < 1e-6


def test_correlation_p_value_accepts_independence_only():
  first, second = np.random.default_rng(4).standard_normal((2, 5000))
  assert whitebox.correlation_p_value(first, second) > 1e-6
  assert whitebox.correlation_p_value(first, first + 5 * second) < 1e-6
  assert whitebox.correlation_p_value(first, -first) < 1e-6


def test_standard_errors_are_those_of_the_estimates():
  """Standard errors match the spread of 400 estimates around the exact delta.

  Each estimate uses 100 losses.
  """
  losses = np.random.default_rng(7).normal(0.5, 1.0, (400, 100))
  estimates = [whitebox.estimate_delta(each, epsilon=0.3) for each in losses]
  exact = stats.norm.cdf(0.2) - np.exp(0.3) * stats.norm.cdf(-0.8)
  scores = [(each.value - exact) / each.standard_error for each in estimates]
  # The deviation of 400 normal numbers is known to 3.5 percent.
  assert np.std(scores) == pytest.approx(1, abs=0.2)
  assert abs(np.mean(scores)) < 5 / 20 + 0.05
  # Losses far above epsilon count as one, those below it as nothing.
  sure = whitebox.estimate_delta(np.array([800.0, -800.0]), epsilon=1.0)
  assert sure.value == 0.5 and sure.standard_error == 0.5
