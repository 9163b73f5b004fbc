"""Records of a user's own loop: all at once, or loaded for each batch."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.typing import Array, PyTree

Load = Callable[[np.ndarray], PyTree]
"""Numbers [k] of records -> these records, a tree of arrays [k, ...]."""


def checked(records: PyTree, num_rows: int, what: str) -> PyTree:
  """Returns records as arrays of JAX, or of NumPy if all are.

  Args:
    records: a tree of arrays [n, ...] of numbers.
    num_rows: n, the number of records that there must be.
    what: description of this number, for messages.

  Raises:
    ValueError: if a leaf is not an array of numbers, or has other than n rows.
  """
  leaves = jax.tree.leaves(records)
  if not leaves:
    raise ValueError('records must be a tree of arrays [n, ...], got '
                     f'{type(records).__name__} without arrays')
  for leaf in leaves:
    dtype = getattr(leaf, 'dtype', None)
    if dtype is None or not hasattr(leaf, 'shape') or not (
        jnp.issubdtype(dtype, jnp.number)
        or jnp.issubdtype(dtype, jnp.bool_)):
      raise ValueError(
          'records must be arrays of numbers, or trees of them, got '
          + (f'a {type(leaf).__name__}' if dtype is None else
             f'an array of type {dtype}')
          + '; sources.source reads files and data sets by number')
    if tuple(leaf.shape[:1]) != (num_rows,):
      raise ValueError(f'records must have {num_rows} rows, {what}; got an '
                       f'array of shape {list(leaf.shape)}')
  if all(isinstance(leaf, np.ndarray) for leaf in leaves):
    return records
  return jax.tree.map(jnp.asarray, records)


def check_size(num_records: int, num_examples: int, what: str) -> None:
  """Checks that a source has as many records as the sampler draws from.

  Args:
    num_records: number of records of the source.
    num_examples: number of records of the sampler.
    what: description of `num_examples`, for the message.
  """
  if num_records != num_examples:
    raise ValueError(f'there must be {num_examples} records, the {what}; the '
                     f'source has {num_records}')


def loader(records: Any) -> Load | None:
  """Returns a function that loads records by number; None to keep them whole.

  Arrays of NumPy are read on the host, so only the rows of a batch are copied
  to the device.

  Args:
    records: a function of the user, or records as `checked` returns them.
  """
  if callable(records):
    return records
  if not all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(records)):
    return None
  return lambda numbers: jax.tree.map(lambda leaf: leaf[numbers], records)


def padded(records: PyTree, num_rows: int) -> PyTree:
  """Returns records with rows of zeros added, up to a number of rows."""

  def fill(leaf: Any) -> Array | np.ndarray:
    library = np if isinstance(leaf, np.ndarray) else jnp
    widths = [(0, num_rows - leaf.shape[0])] + [(0, 0)] * (leaf.ndim - 1)
    return library.pad(leaf, widths)

  return jax.tree.map(fill, records)
