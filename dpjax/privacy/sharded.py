"""Noise of arrays that are divided over devices.

Each device draws the noise of its own part only, and the numbers are those that
`additive.unit_noise` or, on a lattice, `integers.draw_rows` draws for the whole
arrays on one device: the generators compute any word of a key's sequence from
its place. No device holds a whole array, and no word is sent from one device to
another.

Privacy: a coordinate of an array has one place in the sequence of the key,
whichever device computes it, and two coordinates never share one. So noise on
D devices has the distribution of noise on one: independent coordinates, each
drawn once. Devices that hold copies of one part compute the same numbers.

Cost: the generators return blocks of 16 (ChaCha20) or 2 (threefry) words whose
places lie far apart, and a device takes one word of each. With D parts of an
array a device computes 16 / D, or 2 / D, of the blocks that one device computes
for all of it.
"""

from collections.abc import Callable, Sequence
import functools
import math

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

from dpjax.privacy import additive
from dpjax.privacy import chacha
from dpjax.privacy import threefry
from dpjax.typing import Array, PRNGKey, PyTree

# A device draws its part in at most `_NUM_CHUNKS` chunks, or in chunks of
# `_LEAST_CHUNK` numbers, so that the blocks take less memory than the numbers.
_NUM_CHUNKS = 64
_LEAST_CHUNK = 2**14


def unit_noise(key: PRNGKey, values: PyTree, shardings: PyTree) -> PyTree:
  """Draws `additive.unit_noise`, each device its own parts.

  Args:
    key: of threefry or ChaCha20, fresh for this call.
    values: arrays or their shapes.
    shardings: a `NamedSharding` for each leaf of `values`, all of one mesh.

  Returns:
    Standard normal numbers with the shapes of `values`, divided like them. They
    equal those of one device up to float32 rounding.

  Raises:
    ValueError: if a leaf is divided and the key is of another generator; for
      2^32 values or more.
  """
  leaves, structure = jax.tree.flatten(values)
  draws: list[Array] = []
  run: list[Array] = []  # Leaves that every device has, one after another.
  start = 0
  for leaf, sharding in zip(leaves, jax.tree.leaves(shardings), strict=True):
    if sharding.is_fully_replicated:
      run.append(leaf)
      continue
    draws += additive.unit_noise(key, run, start)
    start += sum(math.prod(each.shape) for each in run)
    draws.append(_divided(key, leaf.shape, start, sharding))
    start, run = start + math.prod(leaf.shape), []
  draws += additive.unit_noise(key, run, start)
  return jax.tree.unflatten(structure, draws)


def _divided(key: PRNGKey, shape: tuple[int, ...], start: int,
             sharding: NamedSharding) -> Array:
  """Returns `additive.standard_normal` of one leaf, divided over devices."""
  additive.check_places(start + math.prod(shape))
  words_at = functools.partial(_WORDS_AT[_generator(key)], start=start,
                               size=math.prod(shape))
  return computed(lambda words, places: additive.normal_of(
      words_at(words, places)), key, shape, sharding)


def pairs_at(key: PRNGKey, places: Array,
             size: int) -> tuple[Array, Array]:
  """Returns `additive.random_pairs(key, (size,))` at `places`, only these.

  Args:
    key: of threefry or ChaCha20.
    places: [n] uint32, below `size`.
    size: number of pairs of the sequence, static.

  Raises:
    ValueError: if the key is of another generator.
  """
  return _PAIRS_AT[_generator(key)](jax.random.key_data(key), places, size=size)


def _generator(key: PRNGKey) -> str:
  """Returns the name of a generator that computes words from their places."""
  generator = str(jax.random.key_impl(key))
  if generator not in _WORDS_AT:
    raise ValueError('noise of divided arrays needs a key of '
                     f'{" or ".join(_WORDS_AT)}, got one of {generator}')
  return generator


def computed(draw_at: Callable[[Array, Array], PyTree], key: PRNGKey,
             shape: Sequence[int], sharding: NamedSharding) -> PyTree:
  """Returns numbers of an array, of which each device computes its own part.

  Args:
    draw_at: (data of the key, places [k] uint32) -> arrays [k], where places
      count the entries of the array, row by row.
    key: of the numbers.
    shape: shape of the array.
    sharding: where its parts are.

  Returns:
    What `draw_at` returns, with arrays of this shape.
  """
  shape = tuple(shape)
  mesh, spec = sharding.mesh, sharding.spec
  own = sharding.shard_shape(shape)
  # Devices draw the same numbers unless they are along one of these axes.
  names = [_names(entry) for entry in (*spec, *[None] * len(shape))][
      :len(shape)]

  def draw(words: Array) -> PyTree:
    firsts = [_position(mesh, axes) * jnp.uint32(size)
              for axes, size in zip(names, own, strict=True)]
    return _part(functools.partial(draw_at, words), firsts, own, shape)

  return jax.shard_map(draw, mesh=mesh, in_specs=PartitionSpec(),
                       out_specs=spec, check_vma=False)(
                           jax.random.key_data(key))


def _names(entry: None | str | Sequence[str]) -> tuple[str, ...]:
  """Returns the axes of the mesh over which one dimension is divided."""
  if entry is None:
    return ()
  return (entry,) if isinstance(entry, str) else tuple(entry)


def _position(mesh: Mesh | AbstractMesh, axes: Sequence[str]) -> Array:
  """Returns the number of this device along axes, the first one outermost."""
  position = jnp.uint32(0)
  for axis in axes:
    position = (position * jnp.uint32(mesh.shape[axis])
                + jax.lax.axis_index(axis).astype(jnp.uint32))
  return position


def _part(draw_at: Callable[[Array], PyTree], firsts: Sequence[Array],
          own: Sequence[int], shape: Sequence[int]) -> PyTree:
  """Returns the numbers of the part [*own] of an array [*shape].

  Args:
    draw_at: places in the array, row by row -> their numbers.
    firsts: index of the first entry of the part along each axis.
    own: shape of the part.
    shape: shape of the array.
  """
  size = math.prod(own)
  length = max(_LEAST_CHUNK, -(-size // _NUM_CHUNKS))
  length = min(length, size)

  def chunk(number: Array) -> PyTree:
    rest = number * jnp.uint32(length) + jax.lax.iota(jnp.uint32, length)
    place, stride = jnp.zeros([length], jnp.uint32), 1
    for first, width, whole in reversed(list(zip(firsts, own, shape,
                                                 strict=True))):
      index = first + rest % jnp.uint32(width)
      place, rest = place + index * jnp.uint32(stride), rest // jnp.uint32(
          width)
      stride *= whole
    return draw_at(place)

  count = -(-size // length)
  return jax.tree.map(
      lambda numbers: numbers.reshape(-1)[:size].reshape(own),
      jax.lax.map(chunk, jax.lax.iota(jnp.uint32, count)))


def _threefry_at(key: Array, places: Array, *, start: int, size: int) -> Array:
  return threefry.words_at((key[0], key[1]), places, start, size)


def _threefry_pairs_at(key: Array, places: Array, *,
                       size: int) -> tuple[Array, Array]:
  del size
  return threefry.pairs_at((key[0], key[1]), places)


_PAIRS_AT: dict[str, Callable[..., tuple[Array, Array]]] = {
    chacha.NAME: functools.partial(chacha.pairs_at, start=0),
    'threefry2x32': _threefry_pairs_at}
_WORDS_AT = {chacha.NAME: chacha.words_at, 'threefry2x32': _threefry_at}
