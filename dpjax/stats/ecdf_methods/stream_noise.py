"""Draws the noise of prefix sums of a stream, one item at a time.

A node of a stream is a range of times. Its noise is drawn with a key of its own
whenever it is needed, and does not depend on the items.
"""

from collections.abc import Callable, Iterator
import functools
import math
import types
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy import additive
from dpjax.privacy import chacha
from dpjax.privacy import draws
from dpjax.privacy import keys
from dpjax.stats import precision
from dpjax.typing import Array, PRNGKey

KINDS = ('dyadic', 'signed', 'bottom_up', 'square_root')
MOST_ITEM_BITS = 24
_FINEST = 2.0**-MOST_ITEM_BITS


class StreamState(NamedTuple):
  """State between two items; arrays that `np.savez` accepts.

  Attributes:
    words: secret key of the noise, uint32: [8] from a ChaCha20 key, [2]
      otherwise.
    time: [] int32, number of items so far.
    total: [] float64, their exact sum; as private as the items.
    pending: [...] float64, noise that later sums still need.
  """
  words: Array
  time: Array
  total: Array
  pending: Array


class StreamParameters(NamedTuple):
  """Numerical parameters of a stream.

  Attributes:
    scale: [], Laplace scale or standard deviation of the noise of a node.
    weights: [2 N] weights of the draws of the last N times, then zeros; [0] if
      all draws weigh the same.
  """
  scale: np.float64
  weights: np.ndarray


class Structure(NamedTuple):
  """Static parameters, for which the sampler is compiled.

  Attributes:
    kind: one of `KINDS`.
    horizon: N.
    pure: whether noise is Laplace.
    base: number of parts of a node.
    levels: number of levels of nodes, with the leaves.
    item_bits: sums are multiples of 2^-item_bits.
  """
  kind: str
  horizon: int
  pure: bool
  base: int
  levels: int
  item_bits: int

  @property
  def sizes(self) -> np.ndarray:
    """Number of nodes of each level [levels], leaves first."""
    return -(-self.horizon // self.base**np.arange(self.levels))

  @property
  def starts(self) -> np.ndarray:
    """Index of the first node of each level, with all levels concatenated."""
    return np.cumsum(self.sizes) - self.sizes


Step = Callable[[StreamParameters, StreamState, Array],
                tuple[StreamState, Array]]
"""(parameters, state, item) -> (state, sum so far); under 64-bit types."""


def _digits(time: Any, structure: Structure, xp: types.ModuleType
            ) -> Iterator[tuple[Any, Any, Any]]:
  """Yields by level the first nodes, ends and signs of the sum for `time`.

  Every level rounds to the nearest node of the next. Nodes beyond the horizon
  are empty and need no noise. `xp` is NumPy or jax.numpy, `time` of its arrays.
  """
  # `near` is the time in nodes of a level, `above` the nearest number of nodes
  # of the next level; at most base / 2 nodes lie between the two.
  near = time
  for level, size in enumerate(structure.sizes.tolist()):
    last = level == structure.levels - 1
    above = 0 * near if last else (
        near + (structure.base - 1) // 2) // structure.base
    start = structure.base * above
    yield (xp.minimum(xp.minimum(near, start), size),
           xp.minimum(xp.maximum(near, start), size), xp.sign(near - start))
    near = above


def key_words(key: PRNGKey) -> Array:
  """Returns the words of a stream's own key, as secret as `key` is.

  Two words, for threefry, unless `key` can hold more.
  """
  size = chacha.KEY_WORDS if keys.is_secret(key) else 2
  return jax.random.bits(key, (size,), jnp.uint32)


def node_noise(structure: Structure, words: Array, scale: Array | float,
               places: Array) -> Array:
  """Returns the noise [n] of nodes [n], numbered with all levels concatenated.

  Each node has its own key, so its noise is the same at every call.
  """
  secret = words.shape[-1] == chacha.KEY_WORDS
  key = jax.random.wrap_key_data(
      words, impl=chacha.GENERATOR if secret else 'threefry2x32')
  unit = 2.0**structure.item_bits

  def one(place: Array) -> Array:
    # A key per node, so the noise does not depend on what else is drawn.
    own = jax.random.fold_in(key, place)
    if structure.pure:
      return draws.discrete_laplace(own, (), scale * unit, jnp.float64) / unit
    return scale * additive.standard_normal(own, ()).astype(jnp.float64)
  return jax.vmap(one)(places)


def _dyadic(structure: Structure, state: StreamState,
            parameters: StreamParameters) -> tuple[Array, Array]:
  """Sums the noise of all nodes that contain the last item."""
  # Node of each level that holds the last item, numbered over all levels.
  place = (state.time - 1) >> np.arange(structure.levels, dtype=np.int32)
  noise = node_noise(structure, state.words, parameters.scale,
                     place + structure.starts.astype(np.int32))
  return jnp.sum(noise), state.pending


def _signed(structure: Structure, state: StreamState,
            parameters: StreamParameters) -> tuple[Array, Array]:
  """Sums the signed noise of the fewest nodes that add up to the time."""
  places: list[Array] = []
  signs: list[Array] = []
  for (low, high, sign), start, size in zip(
      _digits(state.time, structure, jnp), structure.starts.tolist(),
      structure.sizes.tolist(), strict=True):
    widest = (structure.base // 2 if len(places) < structure.levels - 1
              else size)
    place = low + np.arange(widest, dtype=np.int32)
    places.append(place + start)
    signs.append(jnp.where(place < high, sign, 0))
  noise = node_noise(structure, state.words, parameters.scale,
                     jnp.concatenate(places))
  return (jnp.sum(jnp.concatenate(signs).astype(jnp.float64) * noise),
          state.pending)


def _bottom_up(structure: Structure, state: StreamState,
               parameters: StreamParameters) -> tuple[Array, Array]:
  """Sums the noise of node estimates from all counts below them.

  T of a node is 2^l y plus T of both halves, with y its own noise; the error of
  the estimate is T / (2^(l+1) - 1).
  """
  levels = np.arange(structure.levels, dtype=np.int32)
  place = (state.time - 1) >> levels
  noise = node_noise(structure, state.words, parameters.scale,
                     place + structure.starts.astype(np.int32))
  pending_levels, above = [], noise[0]
  for level in range(structure.levels):
    if level:
      above = 2.0**level * noise[level] + (state.pending[level - 1] + above)
    complete = state.time % 2**level == 0
    kept = (state.pending[level] + above if level == structure.levels - 1 else
            jnp.where(place[level] % 2 == 0, above, 0.0))
    pending_levels.append(jnp.where(complete, kept, state.pending[level]))
  pending = jnp.stack(pending_levels)
  return jnp.sum(pending / (2.0**(levels + 1) - 1)), pending


def _square_root(structure: Structure, state: StreamState,
                 parameters: StreamParameters) -> tuple[Array, Array]:
  """Returns the weighted sum of all draws so far: one row of C z."""
  # Behind the horizon the draw is dropped; `stepper` then discards the sum too.
  last = state.time - 1
  drawn = node_noise(structure, state.words, parameters.scale, last[None])
  pending = state.pending.at[last].set(drawn[0], mode='drop')
  # Row `time` of C: weights of the draws so far, then zeros.
  weights = jax.lax.dynamic_slice(
      jnp.asarray(parameters.weights), (structure.horizon - state.time,),
      (structure.horizon,))
  return jnp.dot(weights, pending), pending


# (structure, state, parameters) -> (noise of the sum, pending noise).
_NOISE: dict[str, Callable[[Structure, StreamState, StreamParameters],
                           tuple[Array, Array]]] = dict(zip(
    KINDS, (_dyadic, _signed, _bottom_up, _square_root), strict=True))


@functools.cache
def stepper(structure: Structure) -> Step:
  """Returns the step function of a stream; one object for equal structures."""
  unit = 2.0**structure.item_bits

  def step(parameters: StreamParameters, state: StreamState,
           item: Array) -> tuple[StreamState, Array]:
    within_horizon = state.time < structure.horizon
    # NaN fails every comparison.
    item = jnp.where(item > 0, jnp.minimum(precision.double(item), 1.0), 0.0)
    after = state._replace(time=state.time + 1,
                           total=state.total + jnp.round(item * unit) / unit)
    noise, pending = _NOISE[structure.kind](structure, after, parameters)
    noisy_sum = after.total + noise
    # Round to a public grid: the low-order bits of the unrounded sum could
    # reveal its terms.
    spacing = (jnp.float64(_FINEST) if structure.pure else
               additive.grid_spacing(parameters.scale).astype(jnp.float64))
    noisy_sum = jnp.round(noisy_sum / spacing) * spacing
    after = after._replace(pending=pending)
    return (jax.tree.map(
        lambda new, old: jnp.where(within_horizon, new, old), after, state),
            jnp.where(within_horizon, noisy_sum, math.nan))
  return step


@functools.cache
def compiled(step: Step) -> Step:
  """Returns the jitted step function."""
  return jax.jit(step)


@functools.cache
def in_turn(step: Step) -> Step:
  """Returns the jitted (parameters, state, items [n]) -> (state, sums [n])."""
  return jax.jit(lambda parameters, state, items: jax.lax.scan(
      functools.partial(step, parameters), state, items))


def num_levels(horizon: int, base: int) -> int:
  """Returns the least number of levels with base^levels >= horizon."""
  levels = 1
  while base**levels < horizon:
    levels += 1
  return levels


@functools.lru_cache(64)
def signed_nodes(structure: Structure) -> np.ndarray:
  """Returns the number of signed nodes in each sum, [N]."""
  time = np.arange(1, structure.horizon + 1)
  return sum(high - low for low, high, _ in _digits(time, structure, np))
