"""What a layer of a certified network is: NET-12.

A network is a tree of nodes: layers, chains of nodes, residual sums of nodes.
A node computes, bounds the norm of what it puts out (forward), and bounds the
cotangents it sends back and the gradients of its parameters (backward). Since
every node does both for its children, skip connections are exact. LIP-02,
LIP-03; the constants are those of LIP-00.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from dpjax.lipschitz.rules import WeightRule
from dpjax.typing import Array, Params, PRNGKey, PyTree

Shape = tuple[int, ...]
"""Of one record, without the axis of the batch."""

Scalar = Array | float
"""A traced scalar, or a float where it depends on no parameter: bounds stay
floats as long as they can, and infinite ones are always floats."""


class Context(NamedTuple):
  """How a network is applied.

  Attributes:
    rule: weights of the records in the parameter gradients; None: plain.
    radii: for the names of adaptive balls, the public radius to use now.
    observe: called with (name, norms [b]) by adaptive balls, before they
      project; for indicators that are noised, never for anything released.
  """
  rule: WeightRule | None = None
  radii: Mapping[str, Array] = {}
  observe: Callable[[str, Array], None] | None = None


class Node(Protocol):
  """A layer or a composition of layers.

  Parameters and certificates are dicts that hold the names of parameter
  layers only; a parameterless node has {}.
  """
  name: str

  def output_shape(self, shape: Shape) -> Shape:
    """The shape of a record that leaves, from that of one that enters."""

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """Initial parameters for records of `shape`."""

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """The function, [b, *shape] -> [b, *output_shape(shape)]."""

  def constrain(self, params: Params, shape: Shape,
                limits: 'Limits') -> tuple[Params, PyTree]:
    """Weights within their limits, and the norms that they certify."""

  def reach(self, certificate: PyTree, radius: Scalar,
            shape: Shape) -> Scalar:
    """Upper bound of ||f(x)||_2 over ||x||_2 <= radius; `bound_out`."""

  def backward(self, certificate: PyTree, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """(bound of the cotangent sent back, bounds of parameter gradients).

    Args:
      certificate: from `constrain`.
      cotangent: bounds what arrives at the output.
      radius: bounds what enters.
      shape: of what enters.
      rule: as in the context that the gradients are taken with.
    """


class Limits(NamedTuple):
  """What `constrain` holds weights to.

  Attributes:
    rescale: upper bound of a norm -> factor for the weights.
    certify: (bound, factor) -> certified norm of the rescaled weights.
    num_iterations: of the certified bounds.
    any_scale: see `norms.spectral_upper_bound`.
  """
  rescale: Callable[[Array], Array]
  certify: Callable[[Array, Array], Array]
  num_iterations: int
  any_scale: bool


class UnknownConstant(ValueError):
  """A layer has no finite constant here; the message names it."""


def gradient_bound(name: str, rule: WeightRule | None, cotangent: Scalar,
                   factor: Scalar) -> Scalar:
  """Bound of a parameter gradient under a rule; refuses an infinite one."""
  bound = cotangent * factor if rule is None else rule.bound(cotangent, factor)
  if isinstance(bound, float) and not bound < float('inf'):
    raise UnknownConstant(
        f'layer {name!r} has no finite gradient bound: there is no public '
        'radius for what enters it, no Lipschitz constant of a layer or loss '
        'after it, or the product overflows')
  return bound
