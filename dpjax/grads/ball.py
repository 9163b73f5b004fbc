"""Records in a public l2 ball: by projection, once, proved by a type."""

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
  """Features that were projected; made by `project_records` only.

  A certified network takes these as they are and projects anything else
  itself, so the projection can be done early but not left out.

  Attributes:
    values: [b, ...] features in the ball; zeros for a non-finite record.
    finite: [b] bool; the others must contribute nothing.
    radius: of the ball, public.
  """
  values: Array
  finite: Array
  radius: float


def project_records(x: Array, radius: float) -> BallRecords:
  """Projects every record on the l2 ball, and marks the non-finite ones.

  Reads each record alone, so it may run once, before training on all of them.

  Args:
    x: [b, ...] features.
    radius: public.
  """
  finite = jnp.all(jnp.isfinite(x), tuple(range(1, x.ndim)))
  clean = jnp.where(finite.reshape((-1,) + (1,) * (x.ndim - 1)), x, 0.0)
  return BallRecords(project_ball(clean, radius), finite, radius)


def merge_views(x: Array | BallRecords) -> Array | BallRecords:
  """[b, A, ...] features, or records of a ball, as b A rows."""
  if not isinstance(x, BallRecords):
    return x.reshape((-1,) + x.shape[2:])
  return BallRecords(x.values.reshape((-1,) + x.values.shape[2:]),
                     jnp.repeat(x.finite, x.values.shape[1]), x.radius)


def in_ball(x: Array | BallRecords, radius: float) -> Array:
  """The features [b, ...], projected unless their type says they were."""
  if not isinstance(x, BallRecords):
    return project_ball(x, radius)
  return x.values if x.radius <= radius else project_ball(x.values, radius)


def project_ball(x: Array, radius: Array | float) -> Array:
  """Projects every record on the l2 ball: x min(1, radius / ||x||).

  The metric projection on a convex set, so 1-Lipschitz; differentiable at the
  origin too.

  Args:
    x: [b, ...]; each of the b records is projected on its own.
    radius: public; of a traced one, NaN gives NaN and not what is outside.
  """
  if not isinstance(radius, jax.Array):
    errors.check_scale('radius', radius)
  flat = x.reshape((x.shape[0], math.prod(x.shape[1:])))
  # A contraction is fastest on CPU; HIGHEST keeps accelerators in float32.
  squares = jnp.einsum('bi,bi->b', flat, flat,
                       precision=jax.lax.Precision.HIGHEST)
  inside = squares <= radius**2
  scale = jnp.where(
      inside, 1.0, radius * jax.lax.rsqrt(jnp.where(inside, 1.0, squares)))
  return (flat * scale[:, None]).reshape(x.shape)
