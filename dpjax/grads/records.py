"""What is known of the gradients of the records of a batch."""

from collections.abc import Callable
from typing import NamedTuple

from dpjax.typing import Array, PyTree


class RecordGradients(NamedTuple):
  """Gradients of b records, formed or not.

  Attributes:
    losses: [b], of any value where a record is not usable.
    usable: [b] bool: records that are finite in all that was looked at.
    squares: a tree of the structure of the parameters: [b] squared norms of
      each leaf's gradient, infinite where float32 cannot hold one.
    weighted: weights, a tree of the structure of the parameters with leaves
      [b] that are zero for records that are not usable -> the sums of the
      gradients so weighted, float32.
  """
  losses: Array
  usable: Array
  squares: PyTree
  weighted: Callable[[PyTree], PyTree]
