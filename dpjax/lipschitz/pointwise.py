"""Layers without parameters and their Lipschitz constants.

Every activation, pool, normalisation and ball has its own Lipschitz constant.
Taking 1 for all of them, as Algorithm 8 of Barczewski (2025) does, is wrong
(erratum E11).
"""

from collections.abc import Callable, Mapping
import dataclasses
import math
import types

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.grads import ball
from dpjax.lipschitz.node import Context
from dpjax.lipschitz.node import Limits
from dpjax.lipschitz.node import Scalar
from dpjax.lipschitz.node import Shape
from dpjax.lipschitz.rules import WeightRule
from dpjax.typing import Array, Params, PRNGKey, PyTree

# Absolute rounding error of a sigmoid in float32.
_ROUNDING = 2.0**-22


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fixed:
  """A function without parameters that acts on each record separately.

  Attributes:
    name: for messages.
    function: maps [b, *shape] to [b, *shape_of(shape)].
    lipschitz: maps an input shape to the l2 Lipschitz constant; infinite if
      there is none or it is unknown, and then the Lipschitz methods raise an
      error that names the layer.
    ceiling: maps (input radius, input shape) to a bound of the output norm.
    shape_of: maps an input shape to the output shape.
    elementwise: whether it acts on each number separately, so that the
      constant holds in every p-norm.
  """
  name: str
  function: Callable[[Array], Array]
  lipschitz: Callable[[Shape], float]
  ceiling: Callable[[Scalar, Shape], Scalar]
  shape_of: Callable[[Shape], Shape] = lambda shape: shape
  elementwise: bool = False

  def output_shape(self, shape: Shape) -> Shape:
    """Returns the output shape; see `shape_of`."""
    return self.shape_of(shape)

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """Returns {}: there are no parameters."""
    del key, shape
    return {}

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """Returns the function at x."""
    del params, context
    return self.function(x)

  def constrain(self, params: Params, shape: Shape,
                limits: Limits) -> tuple[Params, PyTree]:
    """Returns ({}, {}): there is nothing to constrain."""
    del params, shape, limits
    return {}, {}

  def output_bound(self, certificate: PyTree, radius: Scalar, shape: Shape
                   ) -> Scalar:
    """Returns the output bound; see `ceiling`."""
    del certificate
    return self.ceiling(radius, shape)

  def backward(self, certificate: PyTree, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """Returns the constant times the cotangent bound; no parameter bounds."""
    del certificate, radius, rule
    return cotangent * self.lipschitz(shape), {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ball:
  """Projects each record on an l2 ball; 1-Lipschitz. Items LDP-05, LIP-02.

  Attributes:
    name: key of the radius, if adaptive.
    radius: public radius of the ball.
    adaptive: whether the radius in use is a private quantile of the input
      norms, released by earlier steps (LDP-06); `radius` is its first value.
  """
  name: str
  radius: float
  adaptive: bool = False

  def __post_init__(self) -> None:
    errors.check_scale(f'radius of {self.name!r}', self.radius)

  def output_shape(self, shape: Shape) -> Shape:
    """Returns `shape`: projections keep the shape."""
    return shape

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """Returns {}: there are no parameters."""
    del key, shape
    return {}

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """Returns x min(1, radius / ||x||) for each record."""
    del params
    if self.adaptive and context.observe is not None:
      # Norms before the projection, through which no gradient flows.
      flat = x.reshape((x.shape[0], -1))
      norms = jnp.sqrt(jnp.einsum('bi,bi->b', flat, flat))
      context.observe(self.name, jax.lax.stop_gradient(norms))
    return ball.project_ball(x, context.radii.get(self.name, self.radius))

  def constrain(self, params: Params, shape: Shape,
                limits: Limits) -> tuple[Params, PyTree]:
    """Returns ({}, {}); the bounder adds an adaptive radius later."""
    del params, shape, limits
    return {}, {}

  def output_bound(self, certificate: PyTree, radius: Scalar, shape: Shape
                   ) -> Scalar:
    """Returns min(B, radius) for inputs of norm at most B.

    The certificate of an adaptive ball is the released radius in use.
    """
    del shape
    own = certificate if self.adaptive and not isinstance(
        certificate, dict) else self.radius
    return minimum(radius, own)

  def backward(self, certificate: PyTree, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """Returns the cotangent bound unchanged; no parameter bounds."""
    del certificate, radius, shape, rule
    return cotangent, {}


def minimum(left: Scalar, right: Scalar) -> Scalar:
  """Returns the smaller bound, as a float if both are floats."""
  if isinstance(left, float) and isinstance(right, float):
    return min(left, right)
  if isinstance(left, float) and math.isinf(left):
    return right
  return jnp.minimum(left, right)


def _root_size(shape: Shape) -> float:
  """Returns the square root of the number of entries of a record."""
  return math.sqrt(math.prod(shape))


def maxmin(x: Array) -> Array:
  """Sorts pairs of units: [b, ..., n] -> [b, ..., n], 1-Lipschitz.

  Unit i is paired with unit i + n // 2. The larger one of each pair comes
  first; if n is odd, the last unit is unchanged. The Jacobian is a permutation,
  also where units are equal, so norms of records and of cotangents are kept
  exactly; relu sets half of a cotangent to zero.

  Source: GroupSort with groups of two, Anil et al. (2019).
  """
  half = x.shape[-1] // 2
  first, second, rest = jnp.split(x, (half, 2 * half), axis=-1)
  # `jnp.maximum` would average the gradients of equal units.
  swap = first < second
  return jnp.concatenate([jnp.where(swap, second, first),
                          jnp.where(swap, first, second), rest], axis=-1)


def tempered_sigmoid(scale: float, temperature: float, offset: float, *,
                     name: str = 'activation') -> Fixed:
  """Returns s / (1 + exp(-T x)) - o, with constant s T / 4. NET-03.

  The tempered sigmoid of Papernot et al. (2021).

  Args:
    scale: s, positive.
    temperature: T, positive.
    offset: o; (s, T, o) = (2, 2, 1) is tanh.
    name: for messages.
  """
  errors.check_scale('scale', scale)
  errors.check_scale('temperature', temperature)
  constant = scale * temperature / 4

  def ceiling(radius: Scalar, shape: Shape) -> Scalar:
    size = _root_size(shape)
    most = size * max(abs(offset), abs(scale - offset))
    # The value at 0 is scale / 2 - offset; rounding is added because the
    # difference may cancel.
    middle = abs(scale / 2 - offset) + _ROUNDING * scale
    return minimum(constant * radius + size * middle, most)

  return Fixed(
      name=name, lipschitz=lambda shape: constant, ceiling=ceiling,
      elementwise=True,
      function=lambda x: scale * nn.sigmoid(temperature * x) - offset)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Activation:
  """An activation that networks can name, and its form with bounded values.

  Attributes:
    function: the activation, [b, ...] -> [b, ...]. Finite for finite inputs.
    capped: (x, cap) -> values in [-cap, cap], with the same Lipschitz constant.
    constant: l2 Lipschitz constant of both.
    ceiling: see `Fixed`; the default is for a function with norm(f(x)) at most
      norm(x).
    elementwise: whether it acts on each number separately.
  """
  function: Callable[[Array], Array]
  capped: Callable[[Array, float], Array]
  constant: float = 1.0
  ceiling: Callable[[Scalar, Shape], Scalar] = lambda radius, shape: radius
  elementwise: bool = True


_SIGMOID = tempered_sigmoid(1.0, 1.0, 0.0)
_ACTIVATIONS: Mapping[str, _Activation] = types.MappingProxyType({
    'relu': _Activation(
        function=nn.relu, capped=lambda x, cap: jnp.clip(x, 0.0, cap)),
    'tanh': _Activation(
        function=jnp.tanh, capped=lambda x, cap: cap * jnp.tanh(x / cap),
        ceiling=lambda radius, shape: minimum(radius, _root_size(shape))),
    'sigmoid': _Activation(
        function=_SIGMOID.function, constant=0.25, ceiling=_SIGMOID.ceiling,
        capped=lambda x, cap: cap * nn.sigmoid(x / cap)),
    'maxmin': _Activation(
        function=maxmin, elementwise=False,
        capped=lambda x, cap: maxmin(jnp.clip(x, -cap, cap))),
})
ACTIVATIONS = tuple(_ACTIVATIONS)
"""Names of the activations of networks."""


def activation(kind: str, *, name: str = 'activation') -> Fixed:
  """Returns relu, tanh, sigmoid or another of `ACTIVATIONS`. NET-03.

  The constants are 1, except for the sigmoid, 1/4. The constant 1 for the
  sigmoid in Barczewski (2025, Table 5.1) is valid but four times too large
  (erratum E15).
  """
  errors.check_choice('activation', kind, ACTIVATIONS)
  declared = _ACTIVATIONS[kind]
  return Fixed(name=name, function=declared.function,
               lipschitz=lambda shape: declared.constant,
               ceiling=declared.ceiling, elementwise=declared.elementwise)


def bounded_activation(kind: str, radius: float, *,
                       name: str = 'activation') -> Fixed:
  """Returns an activation c unit(x / c) with values in an l2 ball. LDP-05.

  With c = radius / sqrt(width) no unit exceeds c, so no record exceeds the
  radius; relu and maxmin are clipped at c instead. The Lipschitz constant is
  that of the activation. The bound is elementwise, so it costs nothing beyond
  the activation; a projection on the ball needs norms in the forward pass and
  inner products in the backward pass.

  Args:
    kind: one of `ACTIVATIONS`.
    radius: public bound on the l2 norm of each output record.
    name: for messages.
  """
  errors.check_choice('activation', kind, ACTIVATIONS)
  errors.check_scale('radius', radius)
  declared = _ACTIVATIONS[kind]

  def function(x: Array) -> Array:
    return declared.capped(x, radius / _root_size(x.shape[1:]))

  return Fixed(name=name, function=function, elementwise=declared.elementwise,
               lipschitz=lambda shape: declared.constant,
               ceiling=lambda incoming, shape: radius)


def flatten(*, name: str = 'flatten') -> Fixed:
  """Returns the layer that flattens images to vectors; an isometry."""
  return Fixed(name=name, function=lambda x: x.reshape((x.shape[0], -1)),
               lipschitz=lambda shape: 1.0,
               ceiling=lambda radius, shape: radius,
               shape_of=lambda shape: (math.prod(shape),))


def opaque(function: Callable[[Array], Array], *, name: str,
           shape_of: Callable[[Shape], Shape] = lambda shape: shape) -> Fixed:
  """Wraps a function with no known constant, for clipping methods only."""
  return Fixed(name=name, function=function,
               lipschitz=lambda shape: math.inf,
               ceiling=lambda radius, shape: math.inf, shape_of=shape_of)
