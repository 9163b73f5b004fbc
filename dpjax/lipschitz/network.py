"""Chains of layers, and networks with gradient bounds."""

from collections.abc import Callable, Mapping
import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.grads import ball
from dpjax.lipschitz.node import Context
from dpjax.lipschitz.node import Limits
from dpjax.lipschitz.node import Node
from dpjax.lipschitz.node import Scalar
from dpjax.lipschitz.node import Shape
from dpjax.lipschitz.pointwise import Ball
from dpjax.lipschitz.rules import WeightRule
from dpjax.typing import Array, Params, PRNGKey, PyTree

# The squares of a record's entries up to here can still be summed in float32.
_LARGEST_ENTRY = 1e15
# Bounds up to here have a finite square in float32.
_LARGEST = float(np.finfo(np.float32).max)**0.5
# Smallest bound allowed with all norms at `weight_norm`. Certificates may be a
# millionth of `weight_norm`, so real bounds can be much smaller.
_LEAST = 1e-15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chain:
  """Applies nodes one after the other.

  A feed-forward network of Barczewski (2025, Definition 2.6.1). Item NET-12.

  Attributes:
    name: key in the parameter tree of the parent node.
    nodes: nodes in order; those with parameters have different names.
  """
  name: str
  nodes: tuple[Node, ...]

  def __post_init__(self) -> None:
    names = [node.name for node in self.nodes
             if not _is_parameterless(node) or getattr(node, 'adaptive', False)]
    if len(set(names)) < len(names):
      raise ValueError('layers need different names, but names repeat in '
                       f'{self.name!r}: {names}')

  def output_shape(self, shape: Shape) -> Shape:
    """Returns the output shape of the last node."""
    return self.shapes(shape)[-1]

  def shapes(self, shape: Shape) -> list[Shape]:
    """Returns the input shape of each node, and the last output shape."""
    shapes = [shape]
    for node in self.nodes:
      shapes.append(node.output_shape(shapes[-1]))
    return shapes

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """Returns the initial parameters of all nodes by name."""
    by_name = {}
    for number, (node, entering) in enumerate(self._with_shapes(shape)):
      params = node.init(jax.random.fold_in(key, number), entering)
      if params:
        by_name[node.name] = params
    return by_name

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """Returns the composition of all nodes at x."""
    for node in self.nodes:
      x = node.apply(params.get(node.name, {}), x, context)
    return x

  def constrain(self, params: Params, shape: Shape,
                limits: Limits) -> tuple[Params, PyTree]:
    """Constrains each node; returns weights and certified norms by name."""
    constrained, certificate = dict(params), {}
    for node, entering in self._with_shapes(shape):
      if node.name in params:
        constrained[node.name], certificate[node.name] = node.constrain(
            params[node.name], entering, limits)
    return constrained, certificate

  def output_bound(self, certificate: PyTree, radius: Scalar, shape: Shape
                   ) -> Scalar:
    """Returns the output bound, propagated through all nodes. LIP-02."""
    return self._radii(certificate, radius, shape)[-1]

  def backward(self, certificate: PyTree, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """Returns the bounds of the input cotangent and of parameter gradients.

    A layer's gradient bound multiplies only the constants of layers strictly
    after it: item LIP-03, erratum E3.
    """
    radii = self._radii(certificate, radius, shape)
    bounds = {}  # From the last node to the first, as in the chain rule.
    for (node, entering), input_bound in zip(
        reversed(self._with_shapes(shape)), reversed(radii[:-1]), strict=True):
      cotangent, node_bounds = node.backward(
          certificate.get(node.name, {}), cotangent, input_bound, entering,
          rule)
      if not isinstance(node_bounds, dict) or node_bounds:
        bounds[node.name] = node_bounds
    return cotangent, bounds

  def _radii(self, certificate: PyTree, radius: Scalar,
             shape: Shape) -> list[Scalar]:
    """Returns bounds of each node's input norm, and of the last output."""
    radii = [radius]
    for node, entering in self._with_shapes(shape):
      radii.append(node.output_bound(certificate.get(node.name, {}),
                                     radii[-1], entering))
    return radii

  def _with_shapes(self, shape: Shape) -> list[tuple[Node, Shape]]:
    """Returns the nodes, each with the shape of its input records."""
    return list(zip(self.nodes, self.shapes(shape)[:-1], strict=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
  """A chain of layers from records of one shape to logits.

  Attributes:
    root: chain from records to logits.
    input_shape: shape of one record, without the batch axis.
    input_radius: public radius of the l2 ball that records are projected on.
      None: records are not projected, their entries are only clipped to
      +-1e15, and their norm has no known bound.
  """
  root: Chain
  input_shape: Shape
  input_radius: float | None = None

  def __post_init__(self) -> None:
    if self.input_radius is not None:
      errors.check_scale('input_radius', self.input_radius)
    if len(self.root.output_shape(self.input_shape)) != 1:
      raise ValueError('the output of a network must be a vector of logits, '
                       'got records of shape '
                       f'{list(self.root.output_shape(self.input_shape))}')
    self.adaptive_balls()

  def init(self, key: PRNGKey) -> Params:
    """Returns the initial parameters, nested dicts by name."""
    return self.root.init(key, self.input_shape)

  def prepare(self, x: Array) -> Array | ball.BallRecords:
    """Projects records on the input ball once, before training.

    `apply` then need not project them again in every step.
    """
    if self.input_radius is None:
      return x
    return ball.project_records(x, self.input_radius)

  def apply(self, params: Params, x: Array | ball.BallRecords,
            context: Context = Context()) -> Array:
    """Returns logits [b, c] of records [b, *input_shape], prepared or not.

    Records with A augmented views, [b, A, *input_shape], have logits
    [b, A, c]; every layer treats each view as a row of its own (REG-04).
    """
    values = x.values if isinstance(x, ball.BallRecords) else x
    if values.ndim == len(self.input_shape) + 2:
      logits = self.apply(params, ball.merge_views(x), context)
      return logits.reshape((*values.shape[:2], -1))
    if self.input_radius is not None:
      x = ball.in_ball(x, self.input_radius)
    elif isinstance(x, ball.BallRecords):
      x = x.values
    else:
      # Otherwise a huge finite record overflows, and its NaN spoils the sum.
      x = jnp.clip(x, -_LARGEST_ENTRY, _LARGEST_ENTRY)
    return self.root.apply(params, x, context)

  def constrain(self, params: Params,
                limits: Limits) -> tuple[Params, PyTree]:
    """Returns weights within their limits, and certified norms by name."""
    return self.root.constrain(params, self.input_shape, limits)

  def gradient_bounds(self, certificate: PyTree, *, loss_lipschitz: Scalar,
                      rule: WeightRule | None = None,
                      radii: Mapping[str, Array] | None = None) -> PyTree:
    """Bounds the l2 norm of one record's gradient in each parameter layer.

    Let D_k bound the cotangent at the output of layer k, as the product of the
    constants strictly after it, and let B_k bound the layer's input. Then

      ||g_k|| <= D_k factor_k(B_k),

    with factor_k = sqrt(B_k^2 + 1) for a dense layer with bias. A rule changes
    the last step. Barczewski (2025, equations 5.2.8 to 5.2.13); line 5 of its
    Algorithm 8 includes the layer itself, which adds too little noise if
    ||W_k|| < 1 (erratum E3). Items LIP-01, LIP-03.

    Args:
      certificate: certified norms, from `constrain`.
      loss_lipschitz: bound of the cotangent at the logits.
      rule: weight rule of the gradients, or None.
      radii: public radii of the adaptive balls at this step, by name.

    Returns:
      A tree prefix of the parameters with one bound per layer.

    Raises:
      UnknownConstant: a bound is infinite; the message names the layer.
    """
    radius = math.inf if self.input_radius is None else self.input_radius
    if radii:
      certificate = _with_radii(self.root, certificate, radii)
    return self.root.backward(certificate, loss_lipschitz, radius,
                              self.input_shape, rule)[1]

  def check_bounds(self, *, weight_norm: float, loss_lipschitz: float,
                   rule: WeightRule | None = None) -> None:
    """Checks, before training, that all gradient bounds are usable.

    Raises:
      UnknownConstant: a layer has no finite constant; the message names it.
      ValueError: with all norms at `weight_norm`, the square of a bound
        overflows float32, or a bound is too small for noise in float32; or no
        layer has parameters.
    """
    errors.check_scale('weight_norm', weight_norm)
    if not loss_lipschitz > 0:
      raise ValueError('the Lipschitz constant of a loss must be > 0, got '
                       f'{loss_lipschitz}')
    certificate = _largest_norms(self.root, self.fill(weight_norm))
    bounds = self.gradient_bounds(certificate, loss_lipschitz=loss_lipschitz,
                                  rule=rule)
    if not bounds:
      raise ValueError('there is nothing to train: no layer has parameters')
    largest, least = max(jax.tree.leaves(bounds)), min(jax.tree.leaves(bounds))
    if least < _LEAST:
      raise ValueError(f'the certified gradient bound {least:.3g} of this '
                       'network is too small for float32; raise weight_norm, '
                       'input_radius or the constant of the loss')
    if not largest < _LARGEST:
      raise ValueError(f'the certified gradient bound {largest:.3g} of this '
                       'network overflows float32; lower weight_norm or depth, '
                       'or average residuals')

  def fill(self, value: float) -> PyTree:
    """Returns a certificate with `value` as the norm of every layer."""
    shapes = jax.eval_shape(self.init, jax.random.key(0))
    return fill_layers(shapes, float(value))

  def adaptive_balls(self) -> Mapping[str, Ball]:
    """Returns the balls with an adaptive radius by name; names must differ."""
    balls: dict[str, Ball] = {}

    def visit(node: Node) -> None:
      if isinstance(node, Ball) and node.adaptive:
        if node.name in balls:
          raise ValueError(f'two adaptive balls share the name {node.name!r}; '
                           'give them different names')
        balls[node.name] = node

    _walk(self.root, visit)
    return balls


def _with_radii(node: Node, certificate: PyTree,
                radii: Mapping[str, Array]) -> PyTree:
  """Returns the certificate with the radius of every adaptive ball added."""
  return _mapped(lambda leaf, old: radii[leaf.name] if getattr(
      leaf, 'adaptive', False) else old, node, certificate)


def _largest_norms(node: Node, certificate: PyTree) -> PyTree:
  """Returns the certificate with norm 1 for layers that stay orthogonal."""
  return _mapped(lambda leaf, old: 1.0 if getattr(
      leaf, 'orthogonal', False) else old, node, certificate)


def _mapped(function: Callable[[Node, PyTree], PyTree], node: Node,
            certificate: PyTree) -> PyTree:
  """Returns the certificate with function(layer, entry) for every layer."""
  inner = _inner(node)
  if not inner:
    return function(node, certificate)
  by_name = {child.name: _mapped(function, child, certificate.get(
      child.name, {})) for child in inner}
  # Certificates have no entries for parameterless nodes.
  return {name: value for name, value in by_name.items()
          if not isinstance(value, dict) or value}


def _inner(node: Node) -> list[Node]:
  """Returns the nodes directly inside a node."""
  sides = (getattr(node, name, None) for name in ('branch', 'shortcut'))
  return [*getattr(node, 'nodes', ()),
          *(side for side in sides if side is not None)]


def fill_layers(params: Params, value: float) -> PyTree:
  """Returns a tree with `value` for each parameter layer of `params`."""
  if 'kernel' in params:
    return value
  return {name: fill_layers(inner, value) for name, inner in params.items()}


def _walk(node: Node, visit: Callable[[Node], None]) -> None:
  """Calls `visit` on a node and on all nodes inside it."""
  visit(node)
  for inner in _inner(node):
    _walk(inner, visit)


def _is_parameterless(node: Node) -> bool:
  """Returns whether a node is a function without parameters."""
  return not hasattr(node, 'use_bias') and not hasattr(
      node, 'nodes') and not hasattr(node, 'branch')

