"""Arithmetic on pytrees of arrays."""

from collections.abc import Callable
import math

import jax
import jax.numpy as jnp

from dpjax.typing import Array, PyTree


def add(left: PyTree, right: PyTree) -> PyTree:
  """Adds two trees of the same structure, leaf by leaf."""
  return jax.tree.map(jnp.add, left, right)


def scale(factor: Array | float, values: PyTree) -> PyTree:
  """Multiplies every leaf by the scalar `factor`."""
  return jax.tree.map(lambda leaf: leaf * factor, values)


def zeros_like(values: PyTree) -> PyTree:
  """Returns zeros with the shapes and dtypes of `values`."""
  return jax.tree.map(jnp.zeros_like, values)


def squared_norm(values: PyTree) -> Array:
  """Returns the sum of squares over all leaves, a float32 scalar."""
  squares = [jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(values)]
  return sum(squares, start=jnp.zeros((), jnp.float32))


def global_norm(values: PyTree) -> Array:
  """Returns the Euclidean norm of all leaves stacked into one vector."""
  return jnp.sqrt(squared_norm(values))


def dot(left: PyTree, right: PyTree) -> Array:
  """Returns the inner product of two trees of the same structure, a scalar."""
  products = jax.tree.map(lambda a, b: jnp.sum(a * b), left, right)
  return sum(jax.tree.leaves(products), start=jnp.zeros((), jnp.float32))


def count(values: PyTree) -> int:
  """Returns the number of scalars in all leaves."""
  return sum(math.prod(jnp.shape(leaf)) for leaf in jax.tree.leaves(values))


def blocks(prefix: PyTree, values: PyTree) -> list[PyTree]:
  """Returns the block (subtree) of `values` for each leaf of `prefix`.

  Args:
    prefix: a tree prefix of `values`.
    values: pytree of arrays.
  """
  subtrees: list[PyTree] = []
  # `map` visits the leaves of its first tree, in order, and hands over whole
  # subtrees of the second one.
  jax.tree.map(lambda _, block: subtrees.append(block), prefix, values)
  return subtrees


def block_sizes(prefix: PyTree, values: PyTree) -> list[int]:
  """Returns the number of scalars under each leaf of `prefix`, in leaf order.

  Args:
    prefix: a tree prefix of `values`.
    values: pytree of arrays.
  """
  return [count(block) for block in blocks(prefix, values)]


def map_blocks(function: Callable[..., Array], prefix: PyTree, values: PyTree,
               *rest: PyTree) -> PyTree:
  """Applies `function(prefix_leaf, leaf, *rest_leaves)` to every leaf.

  Args:
    function: called once for each leaf of `values`.
    prefix: a tree prefix of `values`; each of its leaves applies to a whole
      block (subtree) of `values`.
    values: the tree that gives the structure of the result.
    *rest: further trees with the structure of `values`.
  """
  aligned = zip(jax.tree.leaves(prefix), blocks(prefix, values),
                *[blocks(prefix, tree) for tree in rest], strict=True)
  mapped = [
      # p=p binds this block's p; the lambda would see the last one otherwise.
      jax.tree.map(lambda *leaves, p=p: function(p, *leaves), *block)
      for p, *block in aligned
  ]
  return jax.tree.unflatten(jax.tree.structure(prefix), mapped)
