"""The interface of layers in a network with certified gradient bounds.

A network is a tree of nodes: layers, chains of nodes, residual sums of nodes.
Each node computes its function, bounds the norm of its output (forward), and
bounds the cotangent at its input and the gradients of its parameters
(backward). A cotangent is the loss gradient at a layer's output or input.
Chains and sums call both methods of their children, so skip connections are
covered without slack. Items NET-12, LIP-00, LIP-02, LIP-03.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from dpjax.lipschitz.rules import WeightRule
from dpjax.typing import Array, Params, PRNGKey, PyTree

Shape = tuple[int, ...]
"""Shape of one record, without the batch axis."""

Scalar = Array | float
"""A bound: a traced scalar, or a float if it depends on no parameter.

Infinite bounds are always floats, so they can be detected while tracing."""


class Context(NamedTuple):
  """Options of one application of a network.

  Attributes:
    rule: weight rule of the parameter gradients; None for plain gradients.
    radii: public radius in use for each adaptive ball, by name.
    observe: adaptive balls call it with (name, norms [b]) before they
      project. The norms are private: use them only for indicators that are
      noised, and never release them.
  """
  rule: WeightRule | None = None
  radii: Mapping[str, Array] = {}
  observe: Callable[[str, Array], None] | None = None


class Node(Protocol):
  """A layer or a composition of layers.

  Parameters and certificates are dicts by name of the parameter layers; a
  parameterless node has {}.
  """

  @property
  def name(self) -> str:
    """Key in the parameter tree, and name in messages."""
    ...

  def output_shape(self, shape: Shape) -> Shape:
    """Returns the shape of an output record, given that of an input record."""

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """Returns initial parameters for records of `shape`."""

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """Maps [b, *shape] to [b, *output_shape(shape)]."""

  def constrain(self, params: Params, shape: Shape,
                limits: 'Limits') -> tuple[Params, PyTree]:
    """Returns weights within their limits, and their certified norms."""

  def output_bound(self, certificate: PyTree, radius: Scalar, shape: Shape
                   ) -> Scalar:
    """Returns the output bound: max of ||f(x)||_2 over ||x||_2 <= radius."""

  def backward(self, certificate: PyTree, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """Returns bounds of the input cotangent and of parameter gradients.

    Args:
      certificate: certified norms, from `constrain`.
      cotangent: l2 bound of the cotangent at the output.
      radius: l2 bound of the input.
      shape: shape of an input record.
      rule: weight rule of the gradients, as in `Context`.
    """


class Limits(NamedTuple):
  """The norm limits that `constrain` enforces.

  Attributes:
    rescale: maps an upper bound of a norm to a factor for the weights.
    certify: maps (bound, factor) to a bound of the rescaled weights' norm.
    num_iterations: iterations of the certified bounds.
    any_scale: see `norms.spectral_upper_bound`.
  """
  rescale: Callable[[Array], Array]
  certify: Callable[[Array, Array], Array]
  num_iterations: int
  any_scale: bool


class UnknownConstant(ValueError):
  """Raised if a layer has no finite constant; the message names the layer."""


def gradient_bound(name: str, rule: WeightRule | None, cotangent: Scalar,
                   factor: Scalar) -> Scalar:
  """Bounds a parameter gradient's l2 norm; raises if the bound is infinite.

  Args:
    name: layer name, for the message.
    rule: weight rule, or None for the plain gradient.
    cotangent: bound of the cotangent at the layer's output.
    factor: bound of the norm of the layer's Jacobian in its parameters.

  Raises:
    UnknownConstant: the bound is infinite.
  """
  bound = cotangent * factor if rule is None else rule.bound(cotangent, factor)
  if isinstance(bound, float) and not bound < float('inf'):
    raise UnknownConstant(
        f'layer {name!r} has no finite gradient bound: there is no public '
        'radius for its input, no Lipschitz constant of a layer or loss '
        'after it, or the product overflows')
  return bound
