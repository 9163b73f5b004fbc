"""These tests compare the noise of `step.make_transform` with closed forms.

Sums of zeros are released, so that a release is its noise: its deviations are
those that the rules of `privacy.blocks` and `privacy.k_norm` say.
"""

import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from dpjax.grads import bounder as bounders
from dpjax.grads import quantiles
from dpjax.privacy import k_norm
from dpjax.train import step as steps

MULTIPLIER, SIZE, SIGMA_B, RADII, DRAWS = 1.5, 8.0, 2.5, 3, 400
BOUNDS, SIZES = np.array([0.3, 2.0]), np.array([5, 20])
SUMS = {'a': {'w': jnp.zeros((2, 2)), 'b': jnp.zeros(1)}, 'c': jnp.zeros(20)}
SAMPLER = types.SimpleNamespace(expected_batch_size=SIZE)
# Each case has a rule, whether on a lattice, and its number of radii.
GAUSSIAN = (('optimal', False, 0), ('equal', False, RADII),
            ('global', False, 0), ('equal', True, 0),
            ('optimal', True, RADII), ('global', True, RADII))


def _method(radii=0, **changes):
  adaptive = None if not radii else quantiles.geometric(
      [1.0] * radii, target_quantile=0.5, learning_rate=0.2,
      noise_stddev=SIGMA_B)
  bounder = bounders.GradientBounder(None, None, adaptive)
  return bounders.Method('x', bounder, bounders.no_constraint(),
                         **{'private': True, **changes})


def _release(key, method, allocation='optimal', on_lattice=False):
  """Returns (noisy sums of both blocks, privatizer state) of one step."""
  transform = steps.make_transform(
      method, SAMPLER, optax.identity(), key=key, allocation=allocation,
      noise_multiplier=MULTIPLIER, on_lattice=on_lattice)
  adaptive = method.bounder.adaptive
  given = {} if adaptive is None else {
      'indicators': jax.tree.map(jnp.zeros_like, adaptive.init)}
  mean, state = transform.update(
      SUMS, transform.init(SUMS), SUMS, **given,
      l2_sensitivity={'a': jnp.float32(BOUNDS[0]), 'c': jnp.float32(BOUNDS[1])})
  blocks = [jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(part)])
            for part in (mean['a'], mean['c'])]
  return [SIZE * block for block in blocks], state[0]


def _released(cases):
  """Returns `_release` of each case for many keys, compiled once."""
  keys = jax.random.split(jax.random.key(3), DRAWS)
  releases = jax.jit(jax.vmap(lambda key: [_release(key, *case)
                                           for case in cases]))(keys)
  return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), [
      (blocks, state.joint_noise_multiplier, state.indicators)
      for blocks, state in releases])


def _stddevs(rule, radii):
  """Returns noise deviations of both blocks, as `blocks.allocate` states."""
  z = (MULTIPLIER**-2 - radii * (0.5 / SIGMA_B)**2)**-0.5
  if rule == 'equal':
    return z * math.sqrt(2) * BOUNDS
  if rule == 'global':
    return z * np.full(2, np.hypot(*BOUNDS))
  return z * np.sqrt(BOUNDS @ np.sqrt(SIZES) * BOUNDS / np.sqrt(SIZES))


def _has_deviation(values, stddev, rate=1e-7):
  """Checks the deviation of normal values [n,
  d] by a two-sided chi-square test.

  No two rows may be equal.
  """
  energy = np.sum(np.square(values / stddev))
  distribution = stats.chi2(values.size)
  assert distribution.ppf(rate) < energy < distribution.isf(rate)
  assert len(np.unique(values, axis=0)) == len(values)


@pytest.mark.every(5)
def test_gaussian_noise_is_that_of_the_rule():
  """Gaussian noise has the deviations of its rule.

  Each of the 15 checks raises a false alarm with probability 2e-7.
  """
  released = _released([(_method(radii), rule, on_lattice)
                        for rule, on_lattice, radii in GAUSSIAN])
  for (rule, _, radii), (blocks, measured, indicators) in zip(
      GAUSSIAN, released, strict=True):
    for block, stddev in zip(blocks, _stddevs(rule, radii), strict=True):
      _has_deviation(block, stddev)
    # Noise on a lattice has a multiplier up to 0.04 percent larger.
    assert (MULTIPLIER <= measured).all()
    assert (measured < 1.0005 * MULTIPLIER).all()
    assert len(indicators) == radii
    if radii:
      counts = SIZE * np.stack(indicators, 1)
      _has_deviation(counts, SIGMA_B)
      off = np.corrcoef(np.hstack([counts, *blocks]), rowvar=False)
      off -= np.eye(off.shape[0])
      assert np.abs(off).max() < 6 / math.sqrt(DRAWS)


def test_k_norm_noise_is_that_of_its_orders():
  """K-norm noise has p-norm Gamma(d) times its scale, within 5.5 deviations."""
  orders = (1, math.inf)
  released = _released([(_method(noise_order=order),) for order in orders])
  for order, (blocks, measured, _) in zip(orders, released, strict=True):
    roots = np.cbrt([k_norm.expected_square(size, order=order)
                     for size in SIZES])
    scales = MULTIPLIER * (np.cbrt(BOUNDS)**2 @ roots) * np.cbrt(
        BOUNDS) / roots
    for block, scale, size in zip(blocks, scales, SIZES, strict=True):
      norms = np.linalg.norm(block, order, axis=1)
      assert norms.mean() == pytest.approx(
          size * scale, rel=5.5 / math.sqrt(size * DRAWS) + 1 / 256)
    np.testing.assert_allclose(measured, MULTIPLIER, rtol=3e-5)
    assert measured.min() >= MULTIPLIER


@pytest.mark.every(2)
def test_a_pullback_follows_the_noise_and_public_means_have_none():
  plain, pulled, public = jax.jit(lambda key: [
      _release(key, method)[0] for method in (
          _method(), _method(pullback=optax.scale(3.0)),
          _method(private=False))])(jax.random.key(5))
  for one, other, none in zip(plain, pulled, public, strict=True):
    assert np.abs(one).min() > 0 and not none.any()
    np.testing.assert_allclose(other, 3 * one, rtol=1e-6)
