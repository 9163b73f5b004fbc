"""These tests check that bounds of stacked
matrices equal those of each matrix."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.lipschitz import norms

# The stacks have two columns in split sums, wide matrices and long sums.
STACKS = {'two': ((600, 2), jnp.float32), 'wide': ((3, 5), jnp.complex64),
          'long': ((1100, 3), jnp.float32)}


@jax.jit
def _bounds(stacks):
  """Returns norm bounds of stacks of four matrices, and of one of the four."""
  bound = functools.partial(norms.spectral_upper_bound, num_iterations=2)
  return {name: (bound(stack), bound(stack[0, 1]))
          for name, stack in stacks.items()}


def test_each_matrix_is_bounded_by_itself():
  rng = np.random.default_rng(0)
  scales = np.array([[1.0, 1e-3], [10.0, 0.0]])[..., None, None]
  stacks = {}
  for name, (shape, dtype) in STACKS.items():
    real, imaginary = rng.normal(size=(2, 2, 2, *shape))
    imaginary = 1j * imaginary if dtype == jnp.complex64 else 0.0
    stacks[name] = jnp.asarray(scales * (real + imaginary), dtype)
  for name, (all_four, one) in _bounds(stacks).items():
    exact = np.linalg.norm(np.complex128(stacks[name]), 2, (-2, -1))
    assert np.all(all_four >= exact), name
    # The bound is at most r^(1/8) too large for the rank r, plus rounding.
    rank = min(STACKS[name][0])
    assert np.all(all_four <= exact * (rank**(1 / 8) + 1e-2)), name
    np.testing.assert_allclose(one, all_four[0, 1], rtol=1e-5)
