"""Laws of noisy prefix sums: one item after the other, with noise of places.

A node of a stream is a range of times; its noise is drawn of a key of its own,
whenever it is asked for. What is drawn does not depend on items.
"""

from collections.abc import Callable
import functools
import math
from typing import NamedTuple

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
  """What goes on from one item to the next; arrays that `np.savez` takes.

  Attributes:
    words: the key of the noise, [8] uint32 from a ChaCha20 key and else [2];
      secret.
    time: [] int32, items so far.
    total: [] float64, their exact sum.
    pending: [...] float64, noise that is still needed.
  """
  words: Array
  time: Array
  total: Array
  pending: Array


class Parameters(NamedTuple):
  """Numbers of a law.

  Attributes:
    scale: [], of the noise of a node; of Gaussian noise its deviation.
    weights: [2 N] of draws, those of the last N times and then zeros; [0]
      where draws weigh the same.
  """
  scale: np.ndarray
  weights: np.ndarray


class Structure(NamedTuple):
  """What a law is compiled for.

  Attributes:
    kind: one of `KINDS`.
    horizon: N.
    pure: whether noise is Laplace.
    base: parts of a node.
    levels: of nodes, leaves among them.
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
    """Nodes of each level [levels], leaves first."""
    return -(-self.horizon // self.base**np.arange(self.levels))

  @property
  def starts(self) -> np.ndarray:
    """Where the nodes of each level begin, one level after the other."""
    return np.cumsum(self.sizes) - self.sizes


Step = Callable[[Parameters, StreamState, Array], tuple[StreamState, Array]]
"""(parameters, state, item) -> (state, sum so far); under 64-bit types."""


def _digits(time, structure: Structure, xp):
  """By level the first nodes, the ends and the signs of what makes up `time`.

  Every level rounds to the nearest node of the next. Nodes beyond the horizon
  hold nothing, and need no noise. `xp` is NumPy, or that of JAX.
  """
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
  """Returns the words of a stream's own key: as secret as `key` is.

  Two words, of threefry, unless `key` can hold more.
  """
  size = chacha.KEY_WORDS if keys.is_secret(key) else 2
  return jax.random.bits(key, (size,), jnp.uint32)


def node_noise(structure: Structure, words: Array, scale: Array,
               places: Array) -> Array:
  """Noise [n] of nodes [n], those of one level after those of another.

  Each has its own key: the same whenever it is asked for.
  """
  secret = words.shape[-1] == chacha.KEY_WORDS
  key = jax.random.wrap_key_data(
      words, impl=chacha.GENERATOR if secret else 'threefry2x32')
  unit = 2.0**structure.item_bits

  def one(place: Array) -> Array:
    own = jax.random.fold_in(key, place)
    if structure.pure:
      return draws.discrete_laplace(own, (), scale * unit, jnp.float64) / unit
    return scale * additive.standard_normal(own, ()).astype(jnp.float64)
  return jax.vmap(one)(places)


def _dyadic(structure, state, parameters):
  place = (state.time - 1) >> np.arange(structure.levels, dtype=np.int32)
  noise = node_noise(structure, state.words, parameters.scale,
                     place + structure.starts.astype(np.int32))
  return jnp.sum(noise), state.pending


def _signed(structure, state, parameters):
  places, signs = [], []
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
  signs = jnp.concatenate(signs).astype(jnp.float64)
  return jnp.sum(signs * noise), state.pending


def _bottom_up(structure, state, parameters):
  """2^l y + T of both halves is T, and T / (2^(l+1) - 1) estimates a node."""
  levels = np.arange(structure.levels, dtype=np.int32)
  place = (state.time - 1) >> levels
  noise = node_noise(structure, state.words, parameters.scale,
                     place + structure.starts.astype(np.int32))
  found, above = [], noise[0]
  for level in range(structure.levels):
    if level:
      above = 2.0**level * noise[level] + (state.pending[level - 1] + above)
    complete = state.time % 2**level == 0
    kept = (state.pending[level] + above if level == structure.levels - 1 else
            jnp.where(place[level] % 2 == 0, above, 0.0))
    found.append(jnp.where(complete, kept, state.pending[level]))
  pending = jnp.stack(found)
  return jnp.sum(pending / (2.0**(levels + 1) - 1)), pending


def _square_root(structure, state, parameters):
  last = state.time - 1
  drawn = node_noise(structure, state.words, parameters.scale, last[None])
  pending = state.pending.at[last].set(drawn[0], mode='drop')
  weights = jax.lax.dynamic_slice(
      jnp.asarray(parameters.weights), (structure.horizon - state.time,),
      (structure.horizon,))
  return jnp.dot(weights, pending), pending


_NOISE = dict(zip(KINDS, (_dyadic, _signed, _bottom_up, _square_root),
                  strict=True))


@functools.cache
def law(structure: Structure) -> Step:
  """What happens at an item; the same function for the same structure."""
  unit = 2.0**structure.item_bits

  def step(parameters: Parameters, state: StreamState,
           item: Array) -> tuple[StreamState, Array]:
    going = state.time < structure.horizon
    # NaN fails every comparison.
    item = jnp.where(item > 0, jnp.minimum(precision.double(item), 1.0), 0.0)
    after = state._replace(time=state.time + 1,
                           total=state.total + jnp.round(item * unit) / unit)
    noise, pending = _NOISE[structure.kind](structure, after, parameters)
    told = after.total + noise
    # Lowest bits of a sum that is no multiple would tell what it is a sum of.
    spacing = (jnp.float64(_FINEST) if structure.pure else
               additive.grid_spacing(parameters.scale).astype(jnp.float64))
    told = jnp.round(told / spacing) * spacing
    after = after._replace(pending=pending)
    return (jax.tree.map(lambda new, old: jnp.where(going, new, old), after,
                         state), jnp.where(going, told, math.nan))
  return step


@functools.cache
def compiled(step: Step) -> Step:
  """The same, compiled."""
  return jax.jit(step)


@functools.cache
def in_turn(step: Step) -> Callable:
  """(parameters, state, items [n]) -> (state, sums [n]), compiled."""
  return jax.jit(lambda parameters, state, items: jax.lax.scan(
      functools.partial(step, parameters), state, items))


def num_levels(horizon: int, base: int) -> int:
  """Of nodes such that `base` of the widest reach the horizon."""
  levels = 1
  while base**levels < horizon:
    levels += 1
  return levels


@functools.lru_cache(64)
def signed_nodes(structure: Structure) -> np.ndarray:
  """Nodes that sums of signed nodes are made of, [N]."""
  time = np.arange(1, structure.horizon + 1)
  return sum(high - low for low, high, _ in _digits(time, structure, np))
