"""Normalisation within each record, in standard and in Lipschitz form."""

from collections.abc import Callable
import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.lipschitz.node import Scalar
from dpjax.lipschitz.node import Shape
from dpjax.lipschitz.pointwise import Fixed
from dpjax.lipschitz.pointwise import minimum
from dpjax.typing import Array

KINDS = ('layer', 'instance', 'group')


def group_statistics(x: Array, num_groups: int) -> tuple[Array, Array]:
  """Returns the centred channel groups of images and their variances.

  One group is layer normalisation, c groups are instance normalisation.

  Args:
    x: images [b, h, w, c].
    num_groups: g, a divisor of c.

  Returns:
    Centred values [b, h w, g, c/g] and variances [b, 1, g, 1].
  """
  grouped = x.reshape((x.shape[0], -1, num_groups, x.shape[-1] // num_groups))
  centred = grouped - jnp.mean(grouped, (1, 3), keepdims=True)
  return centred, jnp.mean(jnp.square(centred), (1, 3), keepdims=True)


def standard(kind: str, *, num_groups: int | None = None,
             kappa: float = 1e-5, name: str = 'normalisation') -> Fixed:
  """Normalises groups of a record: (x - mean) / sqrt(variance + kappa).

  Barczewski (2025, Definition 2.4.4), with sums over the entries of a group.
  The Lipschitz constant is 1 / sqrt(kappa), too large to be useful; see
  `lipschitz`. Batch normalisation raises ValueError: it couples records, so
  the contribution of one record is not bounded. Items NET-06, REG-01.

  Args:
    kind: 'layer', 'instance' or 'group'.
    num_groups: number of groups for 'group'.
    kappa: positive constant, added to the variance.
    name: for messages.
  """
  if kind == 'batch':
    raise ValueError('batch normalisation couples the records of a batch, so '
                     'no bound holds for one of them; use group normalisation')
  errors.check_choice('kind', kind, KINDS)
  errors.check_scale('kappa', kappa)
  divisor = 1
  if kind == 'group':
    divisor = errors.check_at_least('num_groups', num_groups or 0, 1)

  def function(x: Array) -> Array:
    groups = x.shape[-1] if kind == 'instance' else divisor
    centred, variance = group_statistics(x, groups)
    return (centred * jax.lax.rsqrt(variance + kappa)).reshape(x.shape)

  return Fixed(name=name, function=function,
               lipschitz=lambda shape: 1 / math.sqrt(kappa),
               ceiling=_ceiling(math.sqrt(kappa)),
               shape_of=_checked(divisor))


def lipschitz(*, num_groups: int, alpha: float,
              name: str = 'normalisation') -> Fixed:
  """Normalises groups of a record: (x - mean) / max(alpha, deviation).

  Barczewski (2025, equation 5.2.1), with alpha = 1 there. The Lipschitz
  constant is 1 / alpha in l2 only: in l1 and l_infinity the centring alone has
  norm near 2, and just above a deviation of alpha the norm reaches
  sqrt(m) / (2 alpha) for m entries (erratum E13). The output has norm at most
  sqrt(h w c), which is public and independent of the bounds of earlier layers
  (LDP-08). The values of alpha in Table 5.2 give a constant of 10^3 to 10^4
  per layer (erratum E17). Items NET-07, REG-01.

  Args:
    num_groups: number of channel groups.
    alpha: positive floor of the standard deviation.
    name: for messages.
  """
  errors.check_scale('alpha', alpha)
  errors.check_at_least('num_groups', num_groups, 1)

  def function(x: Array) -> Array:
    centred, variance = group_statistics(x, num_groups)
    # The maximum comes before the root: differentiable at variance 0.
    return (centred * jax.lax.rsqrt(jnp.maximum(variance, alpha**2))
            ).reshape(x.shape)

  return Fixed(name=name, function=function,
               lipschitz=lambda shape: 1 / alpha,
               ceiling=_ceiling(alpha), shape_of=_checked(num_groups))


def _ceiling(alpha: float) -> Callable[[Scalar, Shape], Scalar]:
  """Returns the output bound min(radius / alpha, sqrt(entries))."""
  return lambda radius, shape: minimum(radius / alpha,
                                       math.sqrt(math.prod(shape)))


def _checked(num_groups: int) -> Callable[[Shape], Shape]:
  """Returns a `shape_of` that checks that the groups divide the channels."""
  def shape_of(shape: Shape) -> Shape:
    if len(shape) != 3 or shape[-1] % num_groups:
      raise ValueError(f'{num_groups} groups need images [h, w, c] with c a '
                       'multiple of the number of groups, got records of '
                       f'shape {list(shape)}')
    return shape
  return shape_of
