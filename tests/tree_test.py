"""Tests dpjax.tree against NumPy on flattened leaves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax import tree

LEFT = {'a': jnp.array([1., -2.]), 'b': [jnp.array([[3.], [4.]]),
                                         jnp.array(5.)]}
RIGHT = jax.tree.map(lambda leaf: 2 * leaf + 1, LEFT)


def flat(values):
  return np.concatenate([np.ravel(v) for v in jax.tree.leaves(values)])


@pytest.mark.every(2)
def test_linear_operations():
  np.testing.assert_allclose(flat(tree.add(LEFT, RIGHT)),
                             flat(LEFT) + flat(RIGHT))
  np.testing.assert_allclose(flat(tree.scale(-3., LEFT)), -3 * flat(LEFT))
  np.testing.assert_allclose(flat(tree.scale(jnp.float32(2), LEFT)),
                             2 * flat(LEFT))
  zeros = tree.zeros_like(LEFT)
  assert not flat(zeros).any()
  assert jax.tree.structure(zeros) == jax.tree.structure(LEFT)
  assert jax.tree.map(jnp.shape, zeros) == jax.tree.map(jnp.shape, LEFT)


def test_norms_and_products():
  assert float(tree.squared_norm(LEFT)) == 55
  assert float(tree.global_norm(LEFT)) == pytest.approx(55**.5)
  assert float(tree.dot(LEFT, RIGHT)) == np.dot(flat(LEFT), flat(RIGHT))
  assert tree.count(LEFT) == 5


def test_empty_trees():
  assert float(tree.squared_norm({})) == 0 == float(tree.dot({}, {}))
  assert tree.squared_norm({}).dtype == jnp.float32
  assert tree.count({}) == 0


def test_blocks_of_a_prefix():
  assert tree.block_sizes(0, LEFT) == [5]
  assert tree.block_sizes({'a': 0, 'b': 0}, LEFT) == [2, 3]
  assert tree.block_sizes({'a': 0, 'b': [0, 0]}, LEFT) == [2, 2, 1]


def test_map_blocks_repeats_a_prefix_leaf_over_its_block():
  got = tree.map_blocks(lambda p, leaf, other: p * leaf + other,
                        {'a': 10., 'b': 100.}, LEFT, RIGHT)
  assert jax.tree.structure(got) == jax.tree.structure(LEFT)
  np.testing.assert_allclose(
      flat(got),
      np.array([10, 10, 100, 100, 100]) * flat(LEFT) + flat(RIGHT))


def test_map_blocks_with_one_leaf_for_all():
  got = tree.map_blocks(lambda p, leaf: p * leaf, 2., LEFT)
  np.testing.assert_allclose(flat(got), 2 * flat(LEFT))


@pytest.mark.parametrize('prefix', [{'a': 1.}, {'a': 1., 'b': [1.]}, [1., 2.]])
def test_what_is_no_prefix_is_refused(prefix):
  with pytest.raises(ValueError):
    tree.map_blocks(lambda p, leaf: leaf, prefix, LEFT)
  with pytest.raises(ValueError):
    tree.block_sizes(prefix, LEFT)
