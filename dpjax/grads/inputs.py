"""Checks of the inputs of a gradient bounder: parameters and records."""

from typing import Any

import jax
import jax.numpy as jnp

from dpjax.grads import ball
from dpjax.typing import Array, Batch, Params, PyTree


def as_parameters(params: Params) -> Params:
  """Returns the parameters as arrays; Python floats become float32.

  Args:
    params: a pytree of real floating numbers.

  Raises:
    TypeError: if a leaf is not a real floating number, as `jax.grad` would.
      An integer would be rounded after every step.

  Examples:
    >>> from dpjax.grads import inputs
    >>> inputs.as_parameters({'scale': 2.0})
    {'scale': Array(2., dtype=float32)}
    >>> inputs.as_parameters({'depth': 3})
    Traceback (most recent call last):
      ...
    TypeError: parameters must be real floating numbers, got int32 at ['depth']\
; let the network close over constants
  """

  def leaf(path: tuple[Any, ...], value: Any) -> Any:
    dtype = jnp.result_type(value)
    if not jnp.issubdtype(dtype, jnp.floating):
      raise TypeError('parameters must be real floating numbers, got '
                      f'{dtype} at {jax.tree_util.keystr(path) or "the root"}; '
                      'let the network close over constants')
    if isinstance(value, jax.ShapeDtypeStruct):
      return value
    return jnp.asarray(value, dtype)

  return jax.tree_util.tree_map_with_path(leaf, params)


def as_batch(batch: Any) -> Batch:
  """Returns (features, labels) as a `Batch`.

  Args:
    batch: a `Batch` or a pair (x, y); x is an array [b, ...] or a tree of
      arrays, y an array [b, ...].

  Raises:
    ValueError: if `batch` is neither, if features or labels are not arrays of
      numbers, or if their numbers of rows differ.
  """
  if not isinstance(batch, (tuple, list)) or len(batch) != 2:
    given = (f'a {type(batch).__name__} of {len(batch)}' if isinstance(
        batch, (tuple, list, dict)) else f'a {type(batch).__name__}')
    raise ValueError('records must be a Batch(x, y) or a pair (x, y), got '
                     f'{given}')
  batch = Batch(*batch)
  _check_arrays(batch)
  sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(batch)}
  if len(sizes) != 1 or () in sizes:
    shapes = list(dict.fromkeys(
        str(list(jnp.shape(leaf))) for leaf in jax.tree.leaves(batch)))
    raise ValueError('features and labels must have one row for each record, '
                     f'got arrays of shapes {", ".join(shapes[:9])}')
  return batch


def _check_arrays(batch: Batch) -> None:
  """Rejects lists, labels that are not an array, and arrays of text."""
  if not hasattr(batch.y, 'shape'):
    raise ValueError('labels must be an array [b, ...], got a '
                     f'{type(batch.y).__name__}; make one with numpy.asarray')
  for leaf in jax.tree.leaves(batch):
    if not hasattr(leaf, 'dtype'):
      raise ValueError(
          'features must be an array [b, ...] or a tree of them, got a tree '
          f'with a {type(leaf).__name__} in it, such as a list of numbers; '
          'make an array with numpy.asarray')
    if not (jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            or jnp.issubdtype(leaf.dtype, jnp.number) or leaf.dtype == bool):
      raise ValueError('features and labels must be numbers, got an array of '
                       f'type {leaf.dtype}')


def finite_records(x: PyTree) -> Array:
  """Returns [b] bool: True for records whose features are all finite.

  Args:
    x: features, a tree of arrays [b, ...] or `ball.BallRecords`.
  """
  if isinstance(x, ball.BallRecords):
    return x.finite
  return jnp.all(jnp.stack(list(map(_finite_rows, jax.tree.leaves(x)))), 0)


def _finite_rows(leaf: Array) -> Array:
  """Returns [b] bool: True for rows of a leaf that are all finite."""
  leaf = jnp.asarray(leaf)  # A float64 NumPy array becomes float32.
  # x * 0 is 0 for finite x and NaN otherwise, so the sum of a row is finite
  # exactly if all its values are. One pass, which writes no array of booleans.
  return jnp.isfinite(jnp.sum(leaf * jnp.zeros([], leaf.dtype),
                              tuple(range(1, leaf.ndim))))


def clean_features(x: PyTree, mask: Array) -> tuple[PyTree, Array]:
  """Replaces features of masked and of non-finite records by zero.

  Args:
    x: features, a tree of arrays [b, ...] or `ball.BallRecords`, whose
      features are finite already.
    mask: [b] bool, True for records that count.

  Returns:
    (clean features, [b] bool: True for records that were finite).
  """
  finite = finite_records(x)
  if isinstance(x, ball.BallRecords):
    return x, finite
  counted = finite & mask
  return jax.tree.map(lambda leaf: jnp.where(
      counted.reshape((-1,) + (1,) * (leaf.ndim - 1)), leaf,
      jnp.zeros([], leaf.dtype)), x), finite
