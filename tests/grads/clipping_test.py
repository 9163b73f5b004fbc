"""The weight formula, number by number."""

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
  found = np.float64(_weights(norms, clip_norm))
  # The margin below the bound is 1e-5, float32 adds two roundings.
  np.testing.assert_allclose(found, expected, rtol=1.1e-5)
  assert np.all(found * np.float64(norms) <= clip_norm)


def test_shorter_contributions_are_left_alone():
  norms = [0, 1e-30, 1e-3, 0.5, 0.99998]
  np.testing.assert_array_equal(_weights(norms, 1.0), np.ones(5))


def test_not_finite_is_zero():
  norms = [np.nan, np.inf, -np.inf, -np.nan]
  np.testing.assert_array_equal(_weights(norms, 1.0), np.zeros(4))


def test_largest_finite_norm_keeps_the_bound():
  # Beyond, the sum of squares that the norm comes from is infinite.
  norm = np.float32(1.8e19)
  assert 0 < np.float64(_weights([norm], 2.0)[0]) * norm <= 2.0
