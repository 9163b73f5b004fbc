"""Where the arrays of a model are on a mesh, and how to divide them.

The user places the parameters with `jax.device_put` or `fully_sharded`; the
states of steps follow them.
"""

from collections.abc import Sequence
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
  """Returns where the arrays of a model were placed by `jax.device_put`.

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
      raise ValueError(f'{name} must be placed on the mesh of make_private, '
                       f'{mesh}, got {sharding.mesh}')
    for entry in sharding.spec:
      if AXIS in _names(entry)[1:]:
        raise ValueError(f'{name} is divided over {entry}: put {AXIS!r} first')
    # The specification has an entry for each dimension.
    entries = (*sharding.spec, *[None] * (value.ndim - len(sharding.spec)))
    return NamedSharding(mesh, PartitionSpec(*entries))

  return Placement(jax.tree_util.tree_map_with_path(leaf, params),
                   jax.tree_util.tree_map_with_path(leaf, frozen))


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
      that is a pytree, or the state of one. Other leaves stay as they are.
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
    if not isinstance(value, (jax.Array, np.ndarray)):
      return value
    given = getattr(value, 'sharding', None)
    entries = list(given.spec) if isinstance(given, NamedSharding) else []
    entries += [None] * (value.ndim - len(entries))
    lengths = {dim: length for dim, length in enumerate(value.shape)
               if length % mesh.shape[AXIS] == 0 and entries[dim] is None}
    if lengths and value.size >= least_size and not any(
        AXIS in _names(entry) for entry in entries):
      entries[max(lengths, key=lambda dim: (lengths[dim], dim))] = AXIS
    return jax.device_put(value, NamedSharding(mesh, PartitionSpec(*entries)))

  return jax.tree.map(leaf, params)
