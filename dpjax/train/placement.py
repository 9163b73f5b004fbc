"""Where the arrays of a model are on a mesh, and how to divide them.

The user places the parameters with `jax.device_put`, `fully_sharded` or
`divided`; the states of steps follow them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

from dpjax.grads.shards import Shards
from dpjax.typing import Params, PyTree

AXIS = 'data'
"""The axis of a mesh along which devices share the rows of a batch."""

MODEL = 'model'
"""The axis over which `divided` divides outputs of layers."""

Place = Callable[[Params], Params]
"""Shapes of parameters -> the same shapes, with their shardings."""

# Smaller parameters are copied to all devices: collecting them costs more time
# than they cost memory.
_LEAST_DIVIDED = 2**14


class Placement(NamedTuple):
  """Where the arrays of a model are: trees of a `NamedSharding` for each array.

  Attributes:
    params: of the trainable parameters.
    frozen: of the other arrays.
  """
  params: PyTree
  frozen: PyTree

  @property
  def is_divided(self) -> bool:
    """Whether no device has all parameters."""
    return not all(each.is_fully_replicated
                   for each in jax.tree.leaves(self.params))

  @property
  def everywhere(self) -> NamedSharding:
    """The sharding of values that all devices have."""
    return NamedSharding(jax.tree.leaves(self.params)[0].mesh, PartitionSpec())

  @property
  def shards(self) -> Shards:
    """How the parameters are divided, as the kernel of gradients needs it."""
    dims, others, is_tensor = {}, {}, False
    for i, each in enumerate(jax.tree.leaves(self.params)):
      axes = [_names(entry) for entry in each.spec]
      rest = [tuple(name for name in names if name != AXIS) for names in axes]
      is_tensor = is_tensor or any(rest)
      for dim, names in enumerate(axes):
        if AXIS in names and each.mesh.shape[AXIS] > 1:
          dims[i] = dim - len(axes)
          others[i] = tuple(names or None for names in rest)
    return Shards(AXIS if dims else '', dims, others, is_tensor)

  @property
  def rows_only(self) -> PyTree:
    """Specs of the parameters, of the axis 'data' alone."""
    return jax.tree.map(lambda each: PartitionSpec(*(
        AXIS if over else None for over in _over_data(each))), self.params)


def _over_data(sharding: NamedSharding) -> list[bool]:
  """Returns for each dimension whether it is divided over the axis 'data'."""
  return [AXIS in _names(entry) for entry in sharding.spec]


def _names(entry: None | str | Sequence[str]) -> tuple[str, ...]:
  """Returns the axes over which one dimension is divided."""
  if entry is None:
    return ()
  return (entry,) if isinstance(entry, str) else tuple(entry)


def of_model(mesh: Mesh | None, params: Params,
              frozen: PyTree) -> Placement | None:
  """Returns where the arrays or shapes of a model were placed.

  Arrays that are not on the mesh, and those of a function that JAX traces,
  count as copied to every device.

  Args:
    mesh: of the steps; None for one device, which has no placement.
    params: trainable parameters.
    frozen: other arrays.

  Raises:
    ValueError: if an array is on other devices than those of the mesh, or if
      one dimension is divided over several axes of which 'data' is not first.
  """
  if mesh is None:
    return None

  def leaf(path: Any, value: Any) -> NamedSharding:
    sharding = None if isinstance(value, jax.core.Tracer) else getattr(
        value, 'sharding', None)
    if not isinstance(sharding, NamedSharding):
      return NamedSharding(mesh, PartitionSpec())
    name = jax.tree_util.keystr(path) or 'the parameters'
    if (sharding.mesh.axis_names != mesh.axis_names
        or list(sharding.mesh.devices.flat) != list(mesh.devices.flat)):
      raise ValueError(f'{name} must be placed on the mesh of the steps, '
                       f'{mesh}, got {sharding.mesh}')
    for entry in sharding.spec:
      if AXIS in _names(entry)[1:]:
        raise ValueError(f'{name} is divided over {entry}: put {AXIS!r} first')
    # The specification has an entry for each dimension.
    entries = (*sharding.spec, *[None] * (value.ndim - len(sharding.spec)))
    return NamedSharding(mesh, PartitionSpec(*entries))

  return Placement(jax.tree_util.tree_map_with_path(leaf, params),
                   jax.tree_util.tree_map_with_path(leaf, frozen))


def chosen(mesh: Mesh | None, place: Place | None,
           shapes: Params) -> Placement | None:
  """Returns where `place` puts parameters of these shapes; None without it.

  Raises:
    ValueError: if there is no mesh, if `place` returns other shapes, or if it
      divides a dimension into unequal parts; see also `of_model`.
  """
  if place is None:
    return None
  if mesh is None:
    raise ValueError('place needs a mesh, on which it places parameters')
  given = place(shapes)
  form = lambda params: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype),
                                     params)
  if form(given) != form(shapes):
    raise ValueError('place must return the shapes that it is given, with '
                     'their shardings')
  placed = of_model(mesh, given, ())
  for leaf, own in zip(jax.tree.leaves(shapes), jax.tree.leaves(
      placed.params if placed else ()), strict=True):
    own.shard_shape(leaf.shape)  # Raises.
  return placed


def of_runs(placed: Placement | None, state: Any) -> Any:
  """Returns shardings of a state of one run, whose leaves are [1, ...].

  Args:
    placed: where the parameters are; None returns one specification for all.
    state: arrays or shapes; it has `params`.
  """
  if placed is None:
    return PartitionSpec()
  one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(
      leaf.shape[1:], leaf.dtype), state)
  return jax.tree.map(
      lambda each: NamedSharding(each.mesh, PartitionSpec(None, *each.spec)),
      like_params(one.params, placed.params, one))


def like_params(params: Params, shardings: PyTree, values: PyTree) -> PyTree:
  """Returns shardings of values, those of parameters where values match them.

  A value matches a parameter if it has its shape, and if its path in the tree
  ends with the path of the parameter, as in the states of optimisers; so does a
  stack of such values, as in the history of correlated noise, whose first axis
  is not divided. All other values are copied to every device.

  Args:
    params: parameters or their shapes.
    shardings: a sharding for each parameter.
    values: a tree of arrays or shapes.
  """
  known = {path: (leaf.shape, own) for (path, leaf), own in zip(
      jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(shardings),
      strict=True)}
  whole = NamedSharding(next(iter(known.values()))[1].mesh, PartitionSpec())

  def leaf(path: tuple[Any, ...], value: Any) -> NamedSharding:
    for start in range(len(path) + 1):
      shape, own = known.get(path[start:], (None, whole))
      if shape == value.shape:
        return own
      if shape == value.shape[1:]:
        return NamedSharding(own.mesh, PartitionSpec(None, *own.spec))
    return whole

  return jax.tree_util.tree_map_with_path(leaf, values)


def fully_sharded(mesh: Mesh, params: Params, *,
                  least_size: int = _LEAST_DIVIDED) -> Params:
  """Divides parameters over the devices that share the rows of a batch.

  Each parameter is divided along its longest dimension that the number of
  devices divides, the last one of equal length; small ones, and those without
  such a dimension, are copied to every device. A dimension that is divided over
  other axes of the mesh stays so and is not divided again.

  Args:
    mesh: has an axis 'data'.
    params: a model of which every array is placed: a pytree of arrays, a module
      that is a pytree, or the state of one; or of shapes
      (`jax.ShapeDtypeStruct`). Other leaves stay as they are.
    least_size: parameters of fewer numbers are not divided.

  Returns:
    The same values, placed on the mesh.

  Examples:
    >>> from dpjax.train import placement, sharding
    >>> mesh = sharding.data_mesh(1)
    >>> placed = placement.fully_sharded(mesh, {'w': jnp.ones([300, 200])})
    >>> placed['w'].sharding.spec
    P('data', None)
  """

  def leaf(value: Any) -> Any:
    if not isinstance(value, _PLACED_TYPES):
      return value
    entries = _entries(value)
    lengths = {dim: length for dim, length in enumerate(value.shape)
               if length % mesh.shape[AXIS] == 0 and entries[dim] is None}
    if lengths and value.size >= least_size and not any(
        AXIS in _names(entry) for entry in entries):
      entries[max(lengths, key=lambda dim: (lengths[dim], dim))] = AXIS
    return _put(mesh, value, entries)

  return jax.tree.map(leaf, params)


def divided(mesh: Mesh, params: Params, *,
            least_size: int = _LEAST_DIVIDED) -> Params:
  """Divides parameters over the axes 'model' and 'data' of a mesh.

  The last dimension of a large parameter, which for kernels of dense layers and
  convolutions is that of the outputs, is divided over 'model', if the mesh has
  this axis and its size divides the dimension. JAX then divides the operations
  that read the parameter. Over 'data' parameters are divided as by
  `fully_sharded`.

  Args: see `fully_sharded`. Parameters that are placed already are placed anew.

  Returns:
    The same values, or shapes, placed on the mesh.

  Examples:
    >>> from jax.sharding import Mesh
    >>> from dpjax.train import placement
    >>> mesh = Mesh(np.array(jax.devices()[:1])[None], ('data', 'model'))
    >>> placed = placement.divided(mesh, {'w': jnp.ones([300, 200])})
    >>> placed['w'].sharding.spec
    P('data', 'model')
  """
  count = mesh.shape.get(MODEL)

  def leaf(value: Any) -> Any:
    if not isinstance(value, _PLACED_TYPES):
      return value
    entries: list[Any] = [None] * value.ndim
    if (count and value.ndim and value.size >= least_size
        and value.shape[-1] % count == 0):
      entries[-1] = MODEL
    return _put(mesh, value, entries)

  return fully_sharded(mesh, jax.tree.map(leaf, params), least_size=least_size)


_PLACED_TYPES = (jax.Array, np.ndarray, jax.ShapeDtypeStruct)


def _entries(value: Any) -> list[Any]:
  """Returns the entry of each dimension of the specification of a value."""
  given = getattr(value, 'sharding', None)
  entries = list(given.spec) if isinstance(given, NamedSharding) else []
  return entries + [None] * (value.ndim - len(entries))


def _put(mesh: Mesh, value: Any, entries: Sequence[Any]) -> Any:
  """Returns an array, or a shape, that is placed on the mesh."""
  where = NamedSharding(mesh, PartitionSpec(*entries))
  if isinstance(value, jax.ShapeDtypeStruct):
    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=where)
  return jax.device_put(value, where)
