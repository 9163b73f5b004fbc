"""Compositions of layers, and whole networks with their bounds."""

from collections.abc import Callable, Mapping
import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.grads import ball
from dpjax.lipschitz.node import Context, Limits, Node, Scalar, Shape
from dpjax.lipschitz.node import UnknownConstant
from dpjax.lipschitz.pointwise import Ball
from dpjax.lipschitz.rules import WeightRule
from dpjax.typing import Array, Params, PRNGKey, PyTree

# Squares of such entries can still be summed in float32.
_LARGEST_ENTRY = 1e15
_LARGEST = float(np.finfo(np.float32).max)**0.5
# Certificates may say a millionth of each norm.
_LEAST = 1e-15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chain:
  """Nodes one after the other: Definition 2.6.1, NET-12.

  Attributes:
    name: key in the parameter tree of what it is part of.
    nodes: with different names where they have parameters.
  """
  name: str
  nodes: tuple[Node, ...]

  def __post_init__(self):
    names = [node.name for node in self.nodes
             if not _is_parameterless(node) or getattr(node, 'adaptive', False)]
    if len(set(names)) < len(names):
      raise ValueError(f'names repeat in {self.name!r}: {names}')

  def output_shape(self, shape: Shape) -> Shape:
    """That of the last node."""
    return self.shapes(shape)[-1]

  def shapes(self, shape: Shape) -> list[Shape]:
    """What enters each node, and what leaves the last."""
    found = [shape]
    for node in self.nodes:
      found.append(node.output_shape(found[-1]))
    return found

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """Parameters of all nodes by name."""
    found = {}
    for number, (node, entering) in enumerate(self._with_shapes(shape)):
      params = node.init(jax.random.fold_in(key, number), entering)
      if params:
        found[node.name] = params
    return found

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """The composition."""
    for node in self.nodes:
      x = node.apply(params.get(node.name, {}), x, context)
    return x

  def constrain(self, params: Params, shape: Shape,
                limits: Limits) -> tuple[Params, PyTree]:
    """Each node by itself."""
    constrained, certificate = dict(params), {}
    for node, entering in self._with_shapes(shape):
      if node.name in params:
        constrained[node.name], certificate[node.name] = node.constrain(
            params[node.name], entering, limits)
    return constrained, certificate

  def reach(self, certificate: PyTree, radius: Scalar,
            shape: Shape) -> Scalar:
    """Forward bounds, LIP-02."""
    return self._radii(certificate, radius, shape)[-1]

  def backward(self, certificate: PyTree, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """Backward bounds, LIP-03: the product over what is strictly after (E3).
    """
    radii = self._radii(certificate, radius, shape)
    bounds = {}
    for (node, entering), reach in zip(
        reversed(self._with_shapes(shape)), reversed(radii[:-1]), strict=True):
      cotangent, found = node.backward(certificate.get(node.name, {}),
                                       cotangent, reach, entering, rule)
      if not isinstance(found, dict) or found:
        bounds[node.name] = found
    return cotangent, bounds

  def _radii(self, certificate, radius, shape) -> list[Scalar]:
    radii = [radius]
    for node, entering in self._with_shapes(shape):
      radii.append(node.reach(certificate.get(node.name, {}), radii[-1],
                              entering))
    return radii

  def _with_shapes(self, shape: Shape) -> list[tuple[Node, Shape]]:
    return list(zip(self.nodes, self.shapes(shape)[:-1], strict=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Residual:
  """shortcut(x) + branch(x), or half of it: Definition 2.6.4, NET-08.

  Constant c_shortcut + c_branch, (5.2.7) of thesis 003. The gradient of a
  parameter in the branch does not pass through the shortcut. Plain sums of
  blocks with unit branches multiply bounds by two each, 2^18 in WRN-40-4
  (E12), forward bounds too, which thesis 003 says grow linearly (E29);
  averages keep them.

  Attributes:
    name: key in the parameter tree.
    branch: F.
    shortcut: identity (an empty chain) or a projection.
    averaged: whether the sum is halved.
  """
  name: str
  branch: Chain
  shortcut: Chain
  averaged: bool = False

  def __post_init__(self):
    if self.branch.name == self.shortcut.name:
      raise ValueError(f'branch and shortcut of {self.name!r} share the name '
                       f'{self.branch.name!r}')

  def output_shape(self, shape: Shape) -> Shape:
    """That of both sides, which must agree."""
    left = self.branch.output_shape(shape)
    right = self.shortcut.output_shape(shape)
    if left != right:
      raise ValueError(f'branch and shortcut of {self.name!r} put out '
                       f'{list(left)} and {list(right)}')
    return left

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """Parameters of both sides by name."""
    keys = jax.random.split(key)
    found = {side.name: side.init(k, shape)
             for side, k in zip(self._sides, keys, strict=True)}
    return {name: params for name, params in found.items() if params}

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """The sum or the average."""
    left, right = (side.apply(params.get(side.name, {}), x,
                              context)
                   for side in self._sides)
    return (left + right) * self._weight

  def constrain(self, params: Params, shape: Shape,
                limits: Limits) -> tuple[Params, PyTree]:
    """Both sides."""
    constrained, certificate = dict(params), {}
    for side in self._sides:
      if side.name in params:
        constrained[side.name], certificate[side.name] = side.constrain(
            params[side.name], shape, limits)
    return constrained, certificate

  def reach(self, certificate: PyTree, radius: Scalar,
            shape: Shape) -> Scalar:
    """The sum of both sides' bounds, weighted."""
    return self._weight * sum(
        side.reach(certificate.get(side.name, {}), radius, shape)
        for side in self._sides)

  def backward(self, certificate: PyTree, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """The sum of what both sides send back; parameters see their own side."""
    total, bounds = 0.0, {}
    for side in self._sides:
      sent, found = side.backward(certificate.get(side.name, {}),
                                  cotangent * self._weight, radius, shape,
                                  rule)
      total = total + sent
      if found:
        bounds[side.name] = found
    return total, bounds

  @property
  def _sides(self) -> tuple[Chain, Chain]:
    return self.branch, self.shortcut

  @property
  def _weight(self) -> float:
    return 0.5 if self.averaged else 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
  """A root chain on records of one shape.

  Attributes:
    root: from records to logits.
    input_shape: of one record.
    input_radius: records are projected on this public l2 ball; None: they
      are taken as they are, entries beyond 1e15 as 1e15, and nothing is known
      of their norm.
  """
  root: Chain
  input_shape: Shape
  input_radius: float | None = None

  def __post_init__(self):
    if self.input_radius is not None:
      errors.check_scale('input_radius', self.input_radius)
    if len(self.root.output_shape(self.input_shape)) != 1:
      raise ValueError('a network puts out vectors of logits, this one '
                       f'{list(self.root.output_shape(self.input_shape))}')
    self.adaptive_balls()

  def init(self, key: PRNGKey) -> Params:
    """Initial parameters, nested dicts by name."""
    return self.root.init(key, self.input_shape)

  def prepare(self, x: Array) -> Array | ball.BallRecords:
    """What of `apply` reads no parameters, for all records once."""
    if self.input_radius is None:
      return x
    return ball.project_records(x, self.input_radius)

  def apply(self, params: Params, x: Array | ball.BallRecords,
            context: Context = Context()) -> Array:
    """Logits [b, c] of records [b, *input_shape], prepared or not.

    Of records in A views, [b, A, *input_shape], logits are [b, A, c]; each
    view is a row of its own to every layer (REG-04).
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
      # Or a finite record overflows inside, and its NaN spoils every sum.
      x = jnp.clip(x, -_LARGEST_ENTRY, _LARGEST_ENTRY)
    return self.root.apply(params, x, context)

  def constrain(self, params: Params,
                limits: Limits) -> tuple[Params, PyTree]:
    """Weights within their limits, and certified norms by name."""
    return self.root.constrain(params, self.input_shape, limits)

  def gradient_bounds(self, certificate: PyTree, *, loss_lipschitz: Scalar,
                      rule: WeightRule | None = None,
                      radii: Mapping[str, Array] | None = None) -> PyTree:
    """Bounds on one record's gradient, parameter layer by parameter layer.

    With D_k a bound of the cotangent at the output of layer k, by the product
    of the constants strictly after it, and B_k one of what enters it,

      ||g_k|| <= D_k factor_k(B_k),

    factor_k = sqrt(B_k^2 + 1) for a dense layer with bias. A rule changes the
    last step. Source: thesis 003, (5.2.8)-(5.2.13), whose line 5 of Algorithm
    8 includes the layer itself and so under-noises when ||W_k|| < 1 (E3).
    LIP-01, LIP-03.

    Args:
      certificate: certified norms, from `constrain`.
      loss_lipschitz: bound of the cotangent at the logits.
      rule: that the gradients are taken with.
      radii: of adaptive balls at this step, by name.

    Returns:
      A tree prefix of the parameters, one bound for each layer.

    Raises:
      UnknownConstant: naming a layer, where a bound is infinite.
    """
    radius = math.inf if self.input_radius is None else self.input_radius
    if radii:
      certificate = _with_radii(self.root, certificate, radii)
    return self.root.backward(certificate, loss_lipschitz, radius,
                              self.input_shape, rule)[1]

  def check_bounds(self, *, weight_norm: float, loss_lipschitz: float,
                   rule: WeightRule | None = None) -> None:
    """Refuses, before anything runs, bounds that are unknown or overflow.

    Raises:
      UnknownConstant: a layer without a finite constant; it is named.
      ValueError: a bound whose square is beyond float32, or so small that
        noise for it is, with all norms at `weight_norm`; or a network that
        has nothing to bound.
    """
    errors.check_scale('weight_norm', weight_norm)
    if not loss_lipschitz > 0:
      raise ValueError('the Lipschitz constant of a loss must be > 0, got '
                       f'{loss_lipschitz}')
    certificate = self.fill(weight_norm)
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
    """A certificate that says `value` of every layer."""
    shapes = jax.eval_shape(self.init, jax.random.key(0))
    return fill_layers(shapes, float(value))

  def adaptive_balls(self) -> Mapping[str, Ball]:
    """Balls whose radius is to be learnt, by name; refuses equal names."""
    found = {}

    def visit(node):
      if getattr(node, 'adaptive', False):
        if node.name in found:
          raise ValueError(f'two adaptive balls share the name {node.name!r}')
        found[node.name] = node

    _walk(self.root, visit)
    return found


def _with_radii(node: Node, certificate: PyTree,
                radii: Mapping[str, Array]) -> PyTree:
  """The certificate with the radius of every adaptive ball in its place."""
  if getattr(node, 'adaptive', False):
    return radii[node.name]
  inner = (*getattr(node, 'nodes', ()), *(
      side for side in (getattr(node, 'branch', None),
                        getattr(node, 'shortcut', None)) if side is not None))
  if not inner:
    return certificate
  found = {each.name: _with_radii(each, certificate.get(each.name, {}), radii)
           for each in inner}
  # Parameterless nodes leave no trace.
  return {name: value for name, value in found.items()
          if not isinstance(value, dict) or value}


def fill_layers(params: Params, value: float) -> PyTree:
  """`value` for every parameter layer of a tree of parameters."""
  if 'kernel' in params:
    return value
  return {name: fill_layers(inner, value) for name, inner in params.items()}


def _walk(node: Node, visit: Callable[[Node], None]) -> None:
  visit(node)
  for inner in getattr(node, 'nodes', ()):
    _walk(inner, visit)
  for side in (getattr(node, 'branch', None), getattr(node, 'shortcut', None)):
    if side is not None:
      _walk(side, visit)


def _is_parameterless(node: Node) -> bool:
  return not hasattr(node, 'use_bias') and not hasattr(
      node, 'nodes') and not hasattr(node, 'branch')


__all__ = ['Chain', 'Network', 'Residual', 'UnknownConstant', 'fill_layers']
