"""Tests the privatizer on any tree of sums with any prefix of bounds."""

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import tree
from dpjax.grads import privatizer
from dpjax.privacy import additive

MULTIPLIER = 1.7
EXPECTED_BATCH_SIZE = 6.5


def _flat(values):
  return np.concatenate([np.ravel(np.asarray(leaf, np.float64))
                         for leaf in jax.tree.leaves(values)])


_LEAVES = st.lists(st.integers(1, 3), min_size=0, max_size=2).map(
  lambda shape: jnp.zeros(shape, jnp.float32))
_TREES = st.recursive(
  _LEAVES, lambda inner: st.one_of(
    st.dictionaries(st.sampled_from('abc'), inner, min_size=1, max_size=3),
    st.lists(inner, min_size=1, max_size=3).map(tuple)), max_leaves=6)


@pytest.mark.slow
@settings(max_examples=6, deadline=None, derandomize=True)
@given(values=_TREES, data=st.data())
def test_any_tree_and_any_prefix(values, data):
  """Blocks are separated as the prefix says, for any tree structure."""
  def prefix_of(part):
    if isinstance(part, (dict, tuple)) and data.draw(st.booleans()):
      if isinstance(part, tuple):
        return tuple(prefix_of(inner) for inner in part)
      return {name: prefix_of(inner) for name, inner in part.items()}
    return jnp.float32(data.draw(st.sampled_from([0.5, 1., 4.])))

  bounds = prefix_of(values)
  shifted = jax.tree.map(lambda leaf: leaf + 8., values)
  transform = privatizer.gaussian_privatizer(
    jax.random.key(0), noise_multiplier=MULTIPLIER,
    expected_batch_size=EXPECTED_BATCH_SIZE)
  mean, state = transform.update(shifted, transform.init(values),
                                 l2_sensitivity=bounds)
  assert jax.tree.structure(mean) == jax.tree.structure(values)
  assert float(state.joint_noise_multiplier) == pytest.approx(
    MULTIPLIER, rel=1e-5)
  # The same draws are scaled block by block, by hand.
  sizes = tree.block_sizes(bounds, values)
  flat = [float(b) for b in jax.tree.leaves(bounds)]
  total = sum(b * size**0.5 for b, size in zip(flat, sizes, strict=True))
  stddevs = [MULTIPLIER * (total * b)**0.5 * size**-0.25
             for b, size in zip(flat, sizes, strict=True)]
  draws = _flat(additive.unit_noise(
    jax.random.fold_in(jax.random.key(0), jnp.int32(0)), values))
  scales = np.repeat(stddevs, sizes)
  expected = (8. + scales * np.float64(draws)) / EXPECTED_BATCH_SIZE
  # The grid is at most stddev / 256 wide, and rounding half of that.
  slack = scales / EXPECTED_BATCH_SIZE / 500 + 1e-5
  assert np.all(np.abs(_flat(mean) - expected) <= slack)
