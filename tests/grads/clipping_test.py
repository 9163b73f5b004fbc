"""Tests the weight formulas of DP-16 number by number."""

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import clipping


def _weights(norms, clip_norm):
  return np.asarray(clipping.flat_weights(
    jnp.asarray(norms, jnp.float32), clip_norm=clip_norm))


@pytest.mark.parametrize('clip_norm', [1e-3, 0.7, 1.0, 1e4])
def test_weights_are_the_formula(clip_norm):
  norms = np.float32(clip_norm) * np.logspace(-6, 6, 201, dtype=np.float32)
  expected = np.minimum(1, clip_norm / np.float64(norms))
  weights = np.float64(_weights(norms, clip_norm))
  # The margin below the bound is 1e-5, and float32 adds two roundings.
  np.testing.assert_allclose(weights, expected, rtol=1.1e-5)
  assert np.all(weights * np.float64(norms) <= clip_norm)


def test_shorter_contributions_are_left_alone():
  norms = [0, 1e-30, 1e-3, 0.5, 0.99998]
  np.testing.assert_array_equal(_weights(norms, 1.0), np.ones(5))


def test_not_finite_is_zero():
  norms = [np.nan, np.inf, -np.inf, -np.nan]
  np.testing.assert_array_equal(_weights(norms, 1.0), np.zeros(4))


def test_largest_finite_norm_keeps_the_bound():
  # Above this norm the sum of squares overflows.
  norm = np.float32(1.8e19)
  assert 0 < np.float64(_weights([norm], 2.0)[0]) * norm <= 2.0


def _normalizing(norms, clip_norm, stabilizer):
  return np.asarray(clipping.normalizing_weights(
    jnp.asarray(norms, jnp.float32), clip_norm=clip_norm,
    stabilizer=stabilizer))


@pytest.mark.parametrize('clip_norm', [1e-3, 1.0, 1e4])
@pytest.mark.parametrize('stabilizer', [0.0, 0.01, 3.0])
def test_normalizing_weights_are_the_formula(clip_norm, stabilizer):
  """Weights are C / (norm + r) (Bu et al. 2023), and products stay below C."""
  norms = np.logspace(-6, 6, 201, dtype=np.float32)
  expected = clip_norm / (np.float64(norms) + stabilizer)
  weights = np.float64(_normalizing(norms, clip_norm, stabilizer))
  np.testing.assert_allclose(weights, expected, rtol=1.2e-5)
  assert np.all(weights * np.float64(norms) <= clip_norm)


def test_normalizing_zero_and_not_finite():
  for stabilizer in (0.0, 0.01):
    weights = _normalizing([0.0, np.nan, np.inf, -np.inf], 1.0, stabilizer)
    assert np.isfinite(weights[0])  # A finite weight times zero is zero.
    np.testing.assert_array_equal(weights[1:], np.zeros(3))


def test_printed_normalisation_is_not_clipping():
  """The printed C g / ||g|| (Algorithm 7, line 11) does not clip (erratum E21).

  Both keep the bound; on a short gradient they differ by a factor of 1000.
  """
  printed = _normalizing([1e-3, 5.0], 1.0, 0.0)
  clipped = _weights([1e-3, 5.0], 1.0)
  np.testing.assert_allclose(printed, [1e3, 0.2], rtol=2e-5)
  np.testing.assert_allclose(clipped, [1.0, 0.2], rtol=2e-5)


def test_equal_clip_norms_of_layers():
  norms = clipping.per_layer(['a', 'b', 'c'], clip_norm=0.6)
  assert sorted(norms) == ['a', 'b', 'c']
  assert sum(c**2 for c in norms.values())**0.5 == pytest.approx(0.6)
  with pytest.raises(ValueError, match='clip_norm must be a positive number'):
    clipping.per_layer(['a'], clip_norm=0.0)
