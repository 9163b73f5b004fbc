"""Residual sums of layers with gradient bounds."""

import dataclasses

import jax

from dpjax import errors
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.node import Context
from dpjax.lipschitz.node import Limits
from dpjax.lipschitz.node import Scalar
from dpjax.lipschitz.node import Shape
from dpjax.lipschitz.rules import WeightRule
from dpjax.typing import Array, Params, PRNGKey, PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class Residual:
  """A residual block: shortcut(x) + branch(x), or a mean of both. NET-08.

  Barczewski (2025, Definition 2.6.4). The Lipschitz constant is c_shortcut +
  c_branch (equation 5.2.7). The gradient of a parameter in the branch does not
  pass through the shortcut. Each plain sum whose branch has constant 1 doubles
  the bound, which gives 2^18 in WRN-40-4 (erratum E12). It doubles forward
  bounds too; section 5.2.2 says that they grow linearly (erratum E29). A mean,
  (1 - share) shortcut(x) + share branch(x), does not make them grow; and with a
  small share, a block starts near the shortcut and its gradient is small.

  Attributes:
    name: key in the parameter tree.
    branch: chain of layers.
    shortcut: identity (an empty chain) or a projection.
    share: weight of the branch in a mean, in (0, 1); None for a sum.
  """
  name: str
  branch: Chain
  shortcut: Chain
  share: float | None = None

  def __post_init__(self) -> None:
    if self.share is not None:
      errors.check_open_unit(f'share of {self.name!r}', self.share)
    if self.branch.name == self.shortcut.name:
      raise ValueError(f'branch and shortcut of {self.name!r} share the name '
                       f'{self.branch.name!r}; give them different names')

  def output_shape(self, shape: Shape) -> Shape:
    """Returns the output shape of both sides; they must agree."""
    left = self.branch.output_shape(shape)
    right = self.shortcut.output_shape(shape)
    if left != right:
      raise ValueError(f'branch and shortcut of {self.name!r} must have the '
                       f'same output shape, got {list(left)} and '
                       f'{list(right)}')
    return left

  def init(self, key: PRNGKey, shape: Shape) -> Params:
    """Returns the initial parameters of both sides by name."""
    keys = jax.random.split(key)
    by_name = {side.name: side.init(k, shape)
               for side, k in zip(self._sides, keys, strict=True)}
    return {name: params for name, params in by_name.items() if params}

  def apply(self, params: Params, x: Array, context: Context) -> Array:
    """Returns the sum or the mean of both sides at x."""
    left, right = (side.apply(params.get(side.name, {}), x, context)
                   for side in self._sides)
    of_left, of_right = self._weights
    if of_left == of_right:
      return (left + right) * of_left
    return left * of_left + right * of_right

  def constrain(self, params: Params, shape: Shape,
                limits: Limits) -> tuple[Params, PyTree]:
    """Constrains both sides; returns weights and certified norms by name."""
    constrained, certificate = dict(params), {}
    for side in self._sides:
      if side.name in params:
        constrained[side.name], certificate[side.name] = side.constrain(
            params[side.name], shape, limits)
    return constrained, certificate

  def output_bound(self, certificate: PyTree, radius: Scalar, shape: Shape
                   ) -> Scalar:
    """Returns the sum or the mean of both sides' output bounds."""
    return sum(
        weight * side.output_bound(certificate.get(side.name, {}), radius,
                                   shape)
        for side, weight in zip(self._sides, self._weights, strict=True))

  def backward(self, certificate: PyTree, cotangent: Scalar, radius: Scalar,
               shape: Shape, rule: WeightRule | None
               ) -> tuple[Scalar, PyTree]:
    """Returns the summed cotangent bounds and each side's gradient bounds."""
    total: Scalar = 0.0
    bounds: dict[str, PyTree] = {}
    for side, weight in zip(self._sides, self._weights, strict=True):
      side_cotangent, side_bounds = side.backward(
          certificate.get(side.name, {}), cotangent * weight, radius, shape,
          rule)
      total = total + side_cotangent
      if side_bounds:
        bounds[side.name] = side_bounds
    return total, bounds

  @property
  def _sides(self) -> tuple[Chain, Chain]:
    return self.branch, self.shortcut

  @property
  def _weights(self) -> tuple[float, float]:
    return (1.0, 1.0) if self.share is None else (self.share, 1 - self.share)
