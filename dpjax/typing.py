"""Types that are shared by all packages of dpjax."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

Array = jax.Array
ArrayLike = jax.typing.ArrayLike
"""A JAX or NumPy array, or a number."""

PRNGKey = jax.Array
"""A typed key made by `jax.random.key`; never a raw uint32 pair."""

PyTree = Any
Params = Any
"""A pytree of float arrays: the trainable parameters of a model."""


class Batch(NamedTuple):
  """Records in rows; a separate mask marks the padded rows.

  Attributes:
    x: features, [b, ...] float.
    y: labels, [b] int32.
  """
  x: Array
  y: Array


ApplyFn = Callable[[Params, PyTree], Array]
"""(params, features [b, ...]) -> logits [b, c]; features may be a tree."""

LossFn = Callable[[Array, Array], Array]
"""(logits [b, c], labels [b]) -> losses [b], one per record."""
