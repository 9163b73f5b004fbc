"""Checks what a gradient bounder takes: trainable parameters, and records."""

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
    TypeError: if a leaf is not a real floating number, as of `jax.grad`. An
      integer would be rounded after every step.

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

  def leaf(path, value):
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
    batch: a `Batch`, or a pair (x, y). x is an array [b, ...] or a tree of
      them, y an array [b, ...].

  Raises:
    ValueError: if it is neither, if features or labels are not arrays of
      numbers, or if there are not as many features as labels.
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
  """Refuses lists of numbers, labels that are no array, and arrays of text."""
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
  """Returns [b] bool: whose features are finite everywhere.

  Args:
    x: features, a tree of arrays [b, ...]; or records of a ball.
  """
  if isinstance(x, ball.BallRecords):
    return x.finite
  return jnp.all(jnp.stack(list(map(_finite_rows, jax.tree.leaves(x)))), 0)


def _finite_rows(leaf: Array) -> Array:
  leaf = jnp.asarray(leaf)  # Of numpy it may be float64, which is cut.
  # Zeros add up to zero, and only a value that is not finite times zero is
  # none: one pass that writes nothing.
  return jnp.isfinite(jnp.sum(leaf * jnp.zeros([], leaf.dtype),
                              tuple(range(1, leaf.ndim))))


def clean_features(x: PyTree, mask: Array) -> tuple[PyTree, Array]:
  """Returns (features that are finite everywhere, [b] bool: whose were).

  Features of records that are masked or not finite become zero.

  Args:
    x: features, a tree of arrays [b, ...]; or records of a ball.
    mask: [b] bool.
  """
  finite = finite_records(x)
  if isinstance(x, ball.BallRecords):
    return x, finite
  kept = finite & mask
  return jax.tree.map(lambda leaf: jnp.where(
      kept.reshape((-1,) + (1,) * (leaf.ndim - 1)), leaf,
      jnp.zeros([], leaf.dtype)), x), finite
