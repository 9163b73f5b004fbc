"""Gradient ascent on the distance between the outputs of neighbours.

With one key on both sides, additive noise cancels, and the difference of the
outputs is that of the noiseless part of a release. Its gradient leads to
records of large sensitivity that no list of special values contains.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.typing import Array, PRNGKey

_STARTS, _STEPS, _KEYS, _KEPT = 16, 40, 2, 6
# The first and the last step, as parts of the range of a record.
_FIRST, _LAST = 0.15, 0.002


def pairs(rng: np.random.Generator, target: Target,
          example: Pair) -> list[Pair]:
  """Returns pairs of neighbours whose outputs are far apart.

  Only for records of floating-point numbers and releases that JAX traces; the
  list is empty for others.

  Args:
    rng: determines the starts and the keys.
    target: the target, with a space.
    example: a pair whose numbers of records are used.
  """
  space = target.space
  if not (isinstance(space, spaces.Records) and target.traced and
          np.dtype(space.dtype).kind == 'f'):
    return []
  rest = space.parts(example)[2]
  starts = _starts(rng, space, len(rest))
  keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), _KEYS)
  try:
    with target.types():
      ends, distances = map(np.asarray, _ascend(space, target, keys, starts))
  # A conversion that JAX cannot trace, or outputs without a gradient.
  except Exception:
    return []
  best = np.argsort(-np.where(np.isfinite(distances), distances, -np.inf))
  low, high = space.span
  ends = np.clip(np.nan_to_num(ends), low, high).astype(space.dtype)
  return [space.pair(ends[i, 0], ends[i, 1], ends[i, 2:], 0,
                     'found by gradients') for i in best[:_KEPT]
          if (ends[i, 0] != ends[i, 1]).any() or not space.replace]


def _starts(rng: np.random.Generator, space: spaces.Records,
            num_rest: int) -> np.ndarray:
  """Returns random records [starts, 2 + num_rest, *shape] within the range."""
  low, high = space.span
  starts = rng.uniform(low, high, (_STARTS, 2 + num_rest, *space.shape))
  if num_rest:
    # In half of the starts, all other records are equal.
    starts[::2, 2:] = starts[::2, 2:3]
  return starts.astype(space.dtype)


def _ascend(space: spaces.Records, target: Target, keys: PRNGKey,
            starts: np.ndarray) -> tuple[Array, Array]:
  """Returns the records [starts, ...] after all steps, and the distances."""
  low, high = space.span
  sizes = (high - low) * np.geomspace(_FIRST, _LAST, _STEPS)
  distance = functools.partial(_distance, space, target.release, keys)

  def step(records: Array, size: Array) -> tuple[Array, None]:
    slope = jnp.sign(jnp.nan_to_num(jax.grad(distance)(records)))
    return jnp.clip(records + size.astype(records.dtype) * slope, low,
                    high), None

  @jax.jit
  @jax.vmap
  def climb(records: Array) -> tuple[Array, Array]:
    end, _ = jax.lax.scan(step, records, jnp.asarray(sizes))
    return end, distance(end)

  return climb(jnp.asarray(starts))


def _distance(space: spaces.Records, release: Any, keys: PRNGKey,
              records: Array) -> Array:
  """Returns the mean distance of the outputs of neighbours with equal keys.

  Records 0 and 1 are those that differ; the second is not used where
  neighbours differ by an addition.
  """
  convert: Any = space.convert
  one = convert(jnp.concatenate([records[:1], records[2:]]))
  other = convert(records[1:] if space.replace else records[2:])

  def of_key(key: PRNGKey) -> Array:
    squares = [jnp.sum(jnp.square(a - b)) for a, b in zip(
        jax.tree.leaves(release(key, one)),
        jax.tree.leaves(release(key, other)), strict=True)
               if jnp.issubdtype(a.dtype, jnp.floating)]
    # The root has no slope at 0.
    return jnp.sqrt(sum(squares, jnp.zeros(())) + 1e-20)
  return jnp.mean(jax.vmap(of_key)(keys))
