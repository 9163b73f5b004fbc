"""Normalisation within a record: the standard forms and the Lipschitz one."""

import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.lipschitz.node import Shape
from dpjax.lipschitz.pointwise import Fixed, minimum
from dpjax.typing import Array

KINDS = ('layer', 'instance', 'group')


def group_statistics(x: Array, num_groups: int) -> tuple[Array, Array]:
  """Centred groups [b, h w, g, c/g] of [b, h, w, c], variances [b, 1, g, 1].

  One group is layer normalisation, c groups are instance normalisation.
  """
  grouped = x.reshape((x.shape[0], -1, num_groups, x.shape[-1] // num_groups))
  centred = grouped - jnp.mean(grouped, (1, 3), keepdims=True)
  return centred, jnp.mean(jnp.square(centred), (1, 3), keepdims=True)


def standard(kind: str, *, num_groups: int | None = None,
             kappa: float = 1e-5, name: str = 'normalisation') -> Fixed:
  """(x - mean) / sqrt(variance + kappa) in groups of a record. NET-06, REG-01.

  Definition 2.4.4 of thesis 003 (whose sums run over j in the group). Its
  constant is 1 / sqrt(kappa), useless as a bound; see `lipschitz`. Batch
  normalisation couples records: no contribution of one record is bounded, so
  no private method takes it, and it is refused.

  Args:
    kind: 'layer', 'instance' or 'group'.
    num_groups: of 'group'.
    kappa: positive.
    name: for messages.
  """
  if kind == 'batch':
    raise ValueError('batch normalisation couples the records of a batch, so '
                     'no bound holds for one of them; use group normalisation')
  errors.check_choice('kind', kind, KINDS)
  errors.check_scale('kappa', kappa)
  if kind == 'group':
    errors.check_at_least('num_groups', num_groups, 1)

  def function(x):
    groups = {'layer': 1, 'instance': x.shape[-1], 'group': num_groups}[kind]
    centred, variance = group_statistics(x, groups)
    return (centred * jax.lax.rsqrt(variance + kappa)).reshape(x.shape)

  return Fixed(name=name, function=function,
               lipschitz=lambda shape: 1 / math.sqrt(kappa),
               ceiling=_ceiling(math.sqrt(kappa)),
               shape_of=_checked(num_groups if kind == 'group' else 1))


def lipschitz(*, num_groups: int, alpha: float,
              name: str = 'normalisation') -> Fixed:
  """(x - mean) / max(alpha, sd) in groups of a record. NET-07, REG-01.

  (5.2.1) of thesis 003 for alpha = 1. Lipschitz constant 1 / alpha in l2, and
  only there: in l1 and l_infinity the centring alone has norm near 2, and just
  above sd = alpha it reaches sqrt(m) / (2 alpha) (E13). What leaves has norm
  at most sqrt(h w c), which is public and resets the bounds of earlier layers
  (LDP-08). The thesis' range of alpha makes the constant 10^3 to 10^4 for each
  layer (E17).

  Args:
    num_groups: of channels.
    alpha: positive.
    name: for messages.
  """
  errors.check_scale('alpha', alpha)
  errors.check_at_least('num_groups', num_groups, 1)

  def function(x):
    centred, variance = group_statistics(x, num_groups)
    # max before the root: differentiable where a group is constant.
    return (centred * jax.lax.rsqrt(jnp.maximum(variance, alpha**2))
            ).reshape(x.shape)

  return Fixed(name=name, function=function,
               lipschitz=lambda shape: 1 / alpha,
               ceiling=_ceiling(alpha), shape_of=_checked(num_groups))


def _ceiling(alpha: float):
  return lambda radius, shape: minimum(radius / alpha,
                                       math.sqrt(math.prod(shape)))


def _checked(num_groups: int):
  def shape_of(shape: Shape) -> Shape:
    if len(shape) != 3 or shape[-1] % num_groups:
      raise ValueError(f'{num_groups} groups need images [h, w, c] with a '
                       'multiple of as many channels, got records of shape '
                       f'{list(shape)}')
    return shape
  return shape_of
