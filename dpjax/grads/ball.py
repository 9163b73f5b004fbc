"""Projection of records on a public l2 ball, with a type that records it."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array


@functools.partial(jax.tree_util.register_dataclass,
                   data_fields=('values', 'finite'), meta_fields=('radius',))
@dataclasses.dataclass(frozen=True)
class BallRecords:
  """Projected features; only `project_records` makes them.

  A certified network uses them as they are and projects all other inputs
  itself. So the projection can be done early, but cannot be skipped.

  Attributes:
    values: [b, ...] features in the ball; zeros for a non-finite record.
    finite: [b] bool; records at False must contribute zero.
    radius: radius of the ball; public.
  """
  values: Array
  finite: Array
  radius: float


def project_records(x: Array, radius: float) -> BallRecords:
  """Projects every record on the l2 ball, and marks the non-finite ones.

  Each record is projected separately, so this may run once, on all records,
  before training.

  Args:
    x: [b, ...] features.
    radius: radius of the ball, positive and public.
  """
  finite = jnp.all(jnp.isfinite(x), tuple(range(1, x.ndim)))
  # Zeros, because NaN would spread through sums over records.
  clean = jnp.where(finite.reshape((-1,) + (1,) * (x.ndim - 1)), x, 0.0)
  return BallRecords(project_ball(clean, radius), finite, radius)


def merge_views(x: Array | BallRecords) -> Array | BallRecords:
  """Reshapes [b, A, ...], A augmented views of each record, to b A rows."""
  if not isinstance(x, BallRecords):
    return x.reshape((-1,) + x.shape[2:])
  return BallRecords(x.values.reshape((-1,) + x.values.shape[2:]),
                     jnp.repeat(x.finite, x.values.shape[1]), x.radius)


def in_ball(x: Array | BallRecords, radius: float) -> Array:
  """Returns the features [b, ...], projected unless they already were."""
  if not isinstance(x, BallRecords):
    return project_ball(x, radius)
  return x.values if x.radius <= radius else project_ball(x.values, radius)


def project_ball(x: Array, radius: Array | float) -> Array:
  """Projects every record on the l2 ball: x min(1, radius / ||x||).

  This is the metric projection on a convex set, so it is 1-Lipschitz. It is
  differentiable at the origin too.

  Args:
    x: [b, ...]; each of the b records is projected separately.
    radius: positive and public. A traced radius of NaN gives NaN, never an
      unprojected record.
  """
  if not isinstance(radius, jax.Array):
    errors.check_scale('radius', radius)
  flat = x.reshape((x.shape[0], math.prod(x.shape[1:])))
  # A contraction is fastest on CPU; HIGHEST keeps accelerators in float32.
  squares = jnp.einsum('bi,bi->b', flat, flat,
                       precision=jax.lax.Precision.HIGHEST)
  inside = squares <= radius**2
  # The inner `where` keeps rsqrt, and its gradient, away from zero.
  scale = jnp.where(
      inside, 1.0, radius * jax.lax.rsqrt(jnp.where(inside, 1.0, squares)))
  return (flat * scale[:, None]).reshape(x.shape)
