"""The interface between per-record gradients and clipping."""

from collections.abc import Callable
from typing import NamedTuple

from dpjax.typing import Array, PyTree


class RecordGradients(NamedTuple):
  """Gradients of b records, either formed or known only implicitly.

  Attributes:
    losses: [b]; of any value where a record is not usable.
    usable: [b] bool, True for records whose features, loss and gradient are
      finite as far as they were computed.
    squares: a tree with the structure of the parameters and leaves [b]: squared
      l2 norms of the gradient of each leaf, infinite where float32 overflows.
    weighted: weights -> weighted sums of the gradients, float32. Weights and
      sums have the structure of the parameters; leaves of the weights are [b],
      and zero for records that are not usable.
  """
  losses: Array
  usable: Array
  squares: PyTree
  weighted: Callable[[PyTree], PyTree]
