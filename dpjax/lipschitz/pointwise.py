"""Parameterless layers with their true constants.

Every activation, pool, normalisation and ball counts with its own Lipschitz
constant; taking 1 for all of them is wrong (E11).
"""

from collections.abc import Callable
import dataclasses
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.grads import ball
from dpjax.lipschitz.node import Context, Limits, Scalar, Shape
from dpjax.lipschitz.rules import WeightRule
from dpjax.typing import Array, Params, PRNGKey, PyTree

# Of a sigmoid in float32, absolute.
_ROUNDING = 2.0**-22


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fixed:
  """A function without parameters, each record on its own.

  Attributes:
    name: for messages.
    function: [b, *shape] -> [b, *shape_of(shape)].
    lipschitz: shape -> constant in l2; infinite if it has none or it is not
      known, which the Lipschitz methods refuse, naming the layer.
    ceiling: (radius, shape) -> bound of the norm of what leaves.
    shape_of: shape -> shape of what leaves.
    elementwise: whether it acts on each number by itself, so that the constant
      holds in every p-norm.
  """
  name: str
  function: Callable[[Array], Array]
  lipschitz: Callable[[Shape], float]
  ceiling: Callable[[Scalar, Shape], Scalar]
  shape_of: Callable[[Shape], Shape] = lambda shape: shape
  elementwise: bool = False

  def output_shape(self, shape: Shape) -> Shape:
    """See `shape_of`."""
    return self.shape_of(shape)

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """Nothing."""
    del key, shape
    return {}

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """The function."""
    del params, context
    return self.function(x)

  def constrain(self, params: Params, shape: Shape,
                limits: Limits) -> tuple[Params, PyTree]:
    """Nothing to hold."""
    del params, shape, limits
    return {}, {}

  def reach(self, certificate: PyTree, radius: Scalar, shape: Shape) -> Scalar:
    """See `ceiling`."""
    del certificate
    return self.ceiling(radius, shape)

  def backward(self, certificate: PyTree, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """The constant times the cotangent; no parameters."""
    del certificate, radius, rule
    return cotangent * self.lipschitz(shape), {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ball:
  """Projection of each record on an l2 ball: 1-Lipschitz. LDP-05, LIP-02.

  Attributes:
    name: key of its radius, if adaptive.
    radius: public.
    adaptive: the radius in use is a private quantile of the norms that enter,
      released by earlier steps (LDP-06); `radius` is where it starts.
  """
  name: str
  radius: float
  adaptive: bool = False

  def __post_init__(self):
    errors.check_scale(f'radius of {self.name!r}', self.radius)

  def output_shape(self, shape: Shape) -> Shape:
    """The same."""
    return shape

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """Nothing."""
    del key, shape
    return {}

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """x min(1, radius / ||x||)."""
    del params
    if self.adaptive and context.observe is not None:
      flat = x.reshape((x.shape[0], -1))
      norms = jnp.sqrt(jnp.einsum('bi,bi->b', flat, flat))
      context.observe(self.name, jax.lax.stop_gradient(norms))
    return ball.project_ball(x, context.radii.get(self.name, self.radius))

  def constrain(self, params: Params, shape: Shape,
                limits: Limits) -> tuple[Params, PyTree]:
    """Nothing to hold; an adaptive radius is put in by the bounder."""
    del params, shape, limits
    return {}, {}

  def reach(self, certificate: PyTree, radius: Scalar, shape: Shape) -> Scalar:
    """min(B, radius), with the released radius if the certificate has one."""
    del shape
    own = certificate if self.adaptive and not isinstance(
        certificate, dict) else self.radius
    return minimum(radius, own)

  def backward(self, certificate: PyTree, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """The cotangent itself."""
    del certificate, radius, shape, rule
    return cotangent, {}


def minimum(left: Scalar, right: Scalar) -> Scalar:
  """The smaller bound, a float if both are."""
  if isinstance(left, float) and isinstance(right, float):
    return min(left, right)
  if isinstance(left, float) and math.isinf(left):
    return right
  return jnp.minimum(left, right)


def _elements(shape: Shape) -> float:
  return math.sqrt(math.prod(shape))


def activation(kind: str, *, name: str = 'activation') -> Fixed:
  """relu, tanh or sigmoid: constants 1, 1 and 1/4. NET-03.

  The printed 1 of the sigmoid (Table 5.1 of thesis 003) holds, four times too
  large (E15).
  """
  errors.check_choice('activation', kind, ('relu', 'tanh', 'sigmoid'))
  if kind == 'sigmoid':
    return tempered_sigmoid(1.0, 1.0, 0.0, name=name)
  if kind == 'tanh':
    return Fixed(name=name, function=jnp.tanh, lipschitz=lambda shape: 1.0,
                 elementwise=True,
                 ceiling=lambda radius, shape: minimum(
                     radius, _elements(shape)))
  return Fixed(name=name, function=nn.relu, lipschitz=lambda shape: 1.0,
               elementwise=True,
               ceiling=lambda radius, shape: radius)


def tempered_sigmoid(scale: float, temperature: float, offset: float, *,
                     name: str = 'activation') -> Fixed:
  """s / (1 + exp(-T x)) - o, of constant s T / 4. NET-03.

  (2, 2, 1) is tanh. Papernot et al. 2021.
  """
  errors.check_scale('scale', scale)
  errors.check_scale('temperature', temperature)
  constant = scale * temperature / 4

  def ceiling(radius, shape):
    size = _elements(shape)
    most = size * max(abs(offset), abs(scale - offset))
    # What float32 leaves of a difference that is nearly zero.
    middle = abs(scale / 2 - offset) + _ROUNDING * scale
    return minimum(constant * radius + size * middle, most)

  return Fixed(
      name=name, lipschitz=lambda shape: constant, ceiling=ceiling,
      elementwise=True,
      function=lambda x: scale * nn.sigmoid(temperature * x) - offset)


# Forms with values in [-cap, cap] and the Lipschitz constants of NET-03.
_CAPPED = {
    'relu': (lambda x, cap: jnp.clip(x, 0.0, cap), 1.0),
    'tanh': (lambda x, cap: cap * jnp.tanh(x / cap), 1.0),
    'sigmoid': (lambda x, cap: cap * nn.sigmoid(x / cap), 0.25),
}
ACTIVATIONS = tuple(_CAPPED)


def bounded_activation(kind: str, radius: float, *,
                       name: str = 'activation') -> Fixed:
  """An activation whose values lie in an l2 ball: c unit(x / c). LDP-05.

  With c = radius / sqrt(width) no unit exceeds c, so no record the radius; the
  Lipschitz constant is that of the activation. Elementwise, which costs
  nothing beside the activation itself, where a projection on the ball needs
  norms forward and inner products backward.

  Args:
    kind: one of `ACTIVATIONS`.
    radius: public bound on the l2 norm of each record that leaves.
    name: for messages.
  """
  errors.check_choice('activation', kind, ACTIVATIONS)
  errors.check_scale('radius', radius)
  capped, constant = _CAPPED[kind]

  def function(x):
    return capped(x, radius / _elements(x.shape[1:]))

  return Fixed(name=name, function=function, elementwise=True,
               lipschitz=lambda shape: constant,
               ceiling=lambda incoming, shape: radius)


def flatten(*, name: str = 'flatten') -> Fixed:
  """An image as a vector; an isometry."""
  return Fixed(name=name, function=lambda x: x.reshape((x.shape[0], -1)),
               lipschitz=lambda shape: 1.0,
               ceiling=lambda radius, shape: radius,
               shape_of=lambda shape: (math.prod(shape),))


def opaque(function: Callable[[Array], Array], *, name: str,
           shape_of: Callable[[Shape], Shape] = lambda shape: shape) -> Fixed:
  """A function of which nothing is known: fine for clipping methods only."""
  return Fixed(name=name, function=function,
               lipschitz=lambda shape: math.inf,
               ceiling=lambda radius, shape: math.inf, shape_of=shape_of)
