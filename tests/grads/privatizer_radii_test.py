"""Tests that gradients and indicators of private radii share one noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.grads import privatizer
from dpjax.grads import quantiles
from dpjax.privacy import additive
from dpjax.privacy import blocks

MULTIPLIER, SIGMA_B, BATCH, NUM_STEPS = 1.7, 2.5, 8., 4000
BOUNDS = {'a': jnp.float32(0.3), 'b': jnp.float32(2.)}
SUMS = {'a': jnp.full([3], 40.), 'b': jnp.full([2, 2], 40.)}
INDICATORS = {'a': jnp.float32(1.5), 'b': jnp.float32(-3.)}
ADAPTIVE = quantiles.geometric({'a': 1., 'b': 5.}, target_quantile=0.5,
                               learning_rate=0.2, noise_stddev=SIGMA_B)
ALPHA = 1e-6  # Rate of false alarms of each check, over all its comparisons.


def _transform(noise_multiplier=MULTIPLIER, adaptive=ADAPTIVE):
  return privatizer.gaussian_privatizer(
    jax.random.key(0), noise_multiplier=noise_multiplier,
    expected_batch_size=BATCH, adaptive=adaptive)


def _release(num_steps=NUM_STEPS, ahead=False):
  """Returns means and indicators of many steps, and the last state."""
  transform = _transform()
  draws = None
  if ahead:
    draws = privatizer.draw_ahead(jax.random.key(0), jnp.int32(0), num_steps,
                                  (SUMS, INDICATORS))

  def step(state, drawn):
    mean, state = transform.update(SUMS, state, l2_sensitivity=BOUNDS,
                                   indicators=INDICATORS, draws=drawn)
    return state, (mean, state.indicators)

  state, released = jax.jit(lambda: jax.lax.scan(
    step, transform.init(SUMS), draws, length=num_steps))()
  return released, state


def _unit_noise(released):
  """Returns noise [steps, 9] over its claimed scale, gradient first."""
  left = (MULTIPLIER**-2 - 2 / (2 * SIGMA_B)**2)**-0.5
  bounds, sizes = np.array([0.3, 2.]), np.array([3, 4])
  total = np.sum(bounds * np.sqrt(sizes))
  scales = left * np.sqrt(total * bounds) * sizes**-0.25
  mean, indicators = released
  columns = [
    (np.reshape(mean['a'], (-1, 3)) * BATCH - 40) / scales[0],
    (np.reshape(mean['b'], (-1, 4)) * BATCH - 40) / scales[1],
    (np.stack([indicators['a'], indicators['b']], 1) * BATCH
     - np.array([1.5, -3.])) / SIGMA_B]
  return np.concatenate(columns, 1).astype(np.float64)


def check_noise(released):
  """Checks each column's variance and shape, and that none are correlated.

  Power: 4000 draws show a scale that is off by 12 % at 1e-6.
  """
  noise = _unit_noise(released)
  chi2 = stats.chi2(noise.shape[0])
  energy = np.sum(noise**2, 0)
  assert np.all(chi2.ppf(ALPHA / 54) < energy)
  assert np.all(energy < chi2.isf(ALPHA / 54))
  for column in noise.T:
    assert stats.kstest(column, 'norm').pvalue > ALPHA / 27
  correlations = np.corrcoef(np.concatenate([noise[1:], noise[:-1]], 1).T)
  others = correlations[~np.eye(18, dtype=bool)]
  assert np.abs(others).max() < stats.norm.isf(ALPHA / 918) / np.sqrt(
    noise.shape[0] - 1)


def check_joint_multiplier(released, state):
  """Checks the measured joint multiplier of gradient and indicators (R3)."""
  mean, indicators = released
  variances = [np.var(np.reshape(leaf, (NUM_STEPS, -1)) * BATCH)
               for leaf in (mean['a'], mean['b'], indicators['a'],
                            indicators['b'])]
  shares = np.array([0.3, 2., 0.5, 0.5])**2 / np.array(variances)
  measured = np.sum(shares)**-0.5
  # The deviation of z is below sqrt(2 / 4000) / 2 = 0.011; five are allowed.
  assert abs(measured / MULTIPLIER - 1) < 0.056
  assert MULTIPLIER <= float(state.joint_noise_multiplier) < MULTIPLIER * (
    1 + 1e-5)


@pytest.fixture(name='released', scope='module')
def _released():
  return _release()


def test_noise_is_as_claimed(released):
  check_noise(released[0])


def test_joint_multiplier_counts_the_indicators(released):
  check_joint_multiplier(*released)


@pytest.mark.slow
def test_drawn_ahead_is_the_same(released):
  ahead = _release(5, ahead=True)[0]
  jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[:5]), ahead,
               released[0])


@pytest.mark.every(2)
def test_radii_do_not_change_the_gradient_of_others():
  """Without adaptive radii, only the gradient is released."""
  transform = _transform(adaptive=None)
  state = transform.init(SUMS)
  assert state.indicators == ()
  mean, state = transform.update(SUMS, state, l2_sensitivity=BOUNDS)
  assert state.indicators == ()
  assert jax.tree.structure(mean) == jax.tree.structure(SUMS)


@pytest.mark.every(2)
@pytest.mark.parametrize('share', [0.01, 0.5, 0.99, 0.9999])
def test_rounding_errs_towards_more_noise(share, monkeypatch):
  """Rounding never lowers the noise, however little the indicators leave."""
  monkeypatch.setattr(additive, 'add_gaussian_noise',
                      lambda key, values, stddevs: stddevs)
  stddev = 0.5 * MULTIPLIER * (2 / share)**0.5
  transform = _transform(jnp.float32(MULTIPLIER), ADAPTIVE._replace(
    noise_stddev=stddev))
  stddevs, state = transform.update(
    SUMS, transform.init(SUMS), l2_sensitivity=BOUNDS, indicators=INDICATORS)
  scales = np.array([*stddevs.values(), *2 * [state.indicators]],
                    np.float64) * BATCH
  joint = np.sum((np.float64(np.float32([0.3, 2., 0.5, 0.5])) / scales)**2
                 )**-0.5
  assert np.float64(np.float32(MULTIPLIER)) <= joint < MULTIPLIER * (1 + 1e-5)
  assert float(state.joint_noise_multiplier) == pytest.approx(joint, rel=1e-6)


def test_refuses_indicators_that_spend_everything():
  with pytest.raises(ValueError, match='of 2 adaptive radii must be above'):
    _transform(noise_multiplier=2 * SIGMA_B / 2**0.5 * 1.0001)
  # An array's value is not checked, but never makes a smaller scale.
  state = _transform(jnp.float32(5.)).init(SUMS)
  state = _transform(jnp.float32(5.)).update(
    SUMS, state, l2_sensitivity=BOUNDS, indicators=INDICATORS)[1]
  assert np.isnan(float(state.joint_noise_multiplier))


def test_reference_figures_of_the_split():
  """The optimal split has DP-20's figures for the text's convnet."""
  sizes = (320, 18496, 1605760, 1290)
  stddevs = np.float64(blocks.allocate(jnp.ones([4]), noise_multiplier=1.,
                                       sizes=sizes))
  np.testing.assert_allclose(stddevs, (9.02487, 3.27310, 1.07228, 6.36914),
                             rtol=1e-5)
  assert np.sum(sizes * stddevs**2) == pytest.approx(2.1228e6, rel=1e-4)
  for rule in ('equal', 'global'):
    other = np.float64(blocks.allocate(jnp.ones([4]), noise_multiplier=1.,
                                       sizes=sizes, rule=rule))
    assert np.sum(sizes * other**2) == pytest.approx(6.5035e6, rel=1e-4)


# Faults are planted from here on.


def test_fault_indicators_without_noise(monkeypatch):
  honest = additive.add_gaussian_noise
  monkeypatch.setattr(
    additive, 'add_gaussian_noise', lambda key, values, stddevs: honest(
      key, values, (stddevs[0], jnp.float32(0.))))
  with pytest.raises(AssertionError):
    check_noise(_release()[0])


def test_fault_indicators_less_noised_than_said(monkeypatch):
  honest = additive.add_gaussian_noise
  monkeypatch.setattr(
    additive, 'add_gaussian_noise', lambda key, values, stddevs: honest(
      key, values, (stddevs[0], stddevs[1] / 2)))
  released, state = _release()
  with pytest.raises(AssertionError):
    check_noise(released)
  with pytest.raises(AssertionError):
    check_joint_multiplier(released, state)


@pytest.mark.every(2)
def test_fault_indicators_free_of_charge(monkeypatch):
  """A gradient with the whole planned multiplier leaves no indicator budget."""
  monkeypatch.setattr(quantiles, 'gradient_noise_multiplier',
                      lambda noise_multiplier, adaptive: noise_multiplier)
  released, state = _release()
  with pytest.raises(AssertionError):
    check_joint_multiplier(released, state)
  assert float(state.joint_noise_multiplier) < 0.95 * MULTIPLIER


@pytest.mark.every(2)
def test_fault_sensitivity_not_centred(monkeypatch):
  """Assuming sensitivity 1 instead of 1/2 changes the multiplier and shows."""
  monkeypatch.setattr(quantiles, 'INDICATOR_SENSITIVITY', 1.)
  with pytest.raises(AssertionError):
    check_noise(_release()[0])


def test_fault_one_draw_for_gradient_and_indicators(monkeypatch):
  def fault(key, values, stddevs):
    sums, indicators = values
    draws = additive.unit_noise(key, sums)
    again = jax.tree.leaves(draws)[0].ravel()
    shared = {name: again[i] for i, name in enumerate(indicators)}
    return additive.add_drawn_noise((draws, shared), values, stddevs)

  monkeypatch.setattr(additive, 'add_gaussian_noise', fault)
  with pytest.raises(AssertionError):
    check_noise(_release()[0])
