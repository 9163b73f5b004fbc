"""Steps on several devices, which share the rows of a batch and the parameters.

A mesh has an axis 'data', over which the rows of a batch are divided, and may
have others. Parameters are divided as they were placed: over 'data' (fully
sharded data parallelism), over other axes (tensor parallelism), or both.
Whatever has the shape of a parameter is divided like it: its sum of clipped
gradients, its noise, its average, and the state of the optimiser.

`GradientBounder.sums` runs under `jax.shard_map` over 'data': each device
bounds the records of its rows, and one all-reduce, or for divided parameters a
reduce-scatter, adds the sums. JAX divides the operations over other axes. All
else is one program over whole arrays, of which JAX keeps the parts.

Privacy: the contribution of a record is bounded by the norm of its gradient by
all parameters, wherever their parts are, so the sensitivity of the sums does
not change. Noise is added to the finished sums, from one key: each device draws
the numbers of its own parts (`privacy.sharded`), so each coordinate gets noise
exactly once.

Results equal those of one device up to the order of float32 additions.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

from dpjax import errors
from dpjax.grads import convolutions
from dpjax.grads import shards as shards_lib
from dpjax.grads.bounder import BoundedSums
from dpjax.grads.bounder import GradientBounder
from dpjax.grads.bounder import Method
from dpjax.privacy import sharded
from dpjax.sampling import Sampler
from dpjax.train.placement import AXIS
from dpjax.train.placement import Placement
from dpjax.typing import Array, Batch, Params, PRNGKey, PyTree


def data_mesh(num_devices: int | None = None, *,
              devices: Sequence[jax.Device] | None = None) -> Mesh:
  """Returns a mesh with one axis, 'data', over the first `num_devices`.

  Args:
    num_devices: number of devices; None for all.
    devices: to choose from; None for the devices of all processes.

  Raises:
    ValueError: if there are fewer devices, or if this process has none of them.
  """
  devices = list(jax.devices() if devices is None else devices)
  if num_devices is None:
    num_devices = len(devices)
  errors.check_at_least('num_devices', num_devices, 1)
  return device_mesh({AXIS: num_devices}, devices=devices)


def device_mesh(sizes: Mapping[str, int], *,
                devices: Sequence[jax.Device] | None = None) -> Mesh:
  """Returns a mesh over the first devices, the last axis innermost.

  Args:
    sizes: name -> size of each axis, in order.
    devices: to choose from; None for the devices of all processes.

  Raises:
    ValueError: if there is no axis 'data', if a size is no integer >= 1, if
      there are fewer devices, or if this process has none of them.
  """
  devices = list(jax.devices() if devices is None else devices)
  if AXIS not in sizes:
    raise ValueError(f'a mesh needs an axis {AXIS!r}, over which the rows of a '
                     f'batch are divided, got {", ".join(map(repr, sizes))}')
  for name, size in sizes.items():
    errors.check_at_least(f'the size of {name}', size, 1)
  count = math.prod(sizes.values())
  if count > len(devices):
    raise ValueError(f'num_devices must be at most {len(devices)}, the '
                     f'number of devices, got {count}')
  devices = devices[:count]
  processes = {device.process_index for device in devices}
  if jax.process_index() not in processes:
    raise ValueError(f'none of the {len(devices)} devices of the mesh belongs '
                     f'to process {jax.process_index()}')
  return Mesh(np.array(devices).reshape(tuple(sizes.values())), tuple(sizes))


def check(mesh: Mesh | None, max_batch_size: int | None, *,
          data_only: bool = False) -> None:
  """Checks that the rows of a batch divide evenly over a mesh.

  The expected batch size need not divide, because batches are padded. A sampler
  without `max_batch_size` chooses a number of rows that divides.

  Args:
    mesh: None for one device, which passes.
    max_batch_size: largest batch of the sampler; None passes.
    data_only: whether other axes than 'data' are refused.

  Raises:
    ValueError: if the mesh has no axis 'data', or one that is refused, or if
      the size of that axis does not divide `max_batch_size`.
  """
  if mesh is None:
    return
  names = ", ".join(map(repr, mesh.axis_names))
  if data_only and mesh.axis_names != (AXIS,):
    raise ValueError(f'the mesh must have one axis, {AXIS!r}, got {names}')
  if AXIS not in mesh.axis_names:
    raise ValueError(f'the mesh must have an axis {AXIS!r}, over which the '
                     f'rows of a batch are divided, got {names}')
  count = mesh.shape[AXIS]
  if max_batch_size is not None and (rest := -max_batch_size % count):
    raise ValueError(f'max_batch_size must be a multiple of the {count} '
                     f'devices of the mesh, got {max_batch_size}; '
                     f'{max_batch_size + rest} is one')


def described(mesh: Mesh | None, placed: Placement | None = None) -> str:
  """Returns the devices of a fit in words; with others its roundings differ."""
  if placed is None:
    return str(1 if mesh is None else mesh.size)
  shardings = {str(each.spec) for each in jax.tree.leaves(placed.params)}
  return f'{dict(placed.everywhere.mesh.shape)} {" ".join(sorted(shardings))}'


def automatic(mesh: Mesh | None) -> Mesh | None:
  """Returns the mesh with axes over which JAX divides operations by itself."""
  if mesh is None:
    return None
  return Mesh(mesh.devices, mesh.axis_names)


def split_sampler(mesh: Mesh | None, sampler: Sampler) -> Sampler:
  """Returns a sampler of the same batches in parts that the mesh divides.

  Rows that fill up a part are masked.
  """
  if mesh is None:
    return sampler
  return dataclasses.replace(sampler, row_multiple=mesh.shape[AXIS])


def split_sums(mesh: Mesh | None, bounder: GradientBounder,
               placed: Placement | None = None) -> GradientBounder:
  """Returns a bounder whose `sums` are computed by all devices together.

  Args:
    mesh: None returns the bounder as it is.
    bounder: its sums must add one contribution per record, each from that
      record only (which is false of `lip_printed`). The number of rows must be
      a multiple of the number of devices. It reads and returns the parts of
      parameters that are divided over the axis 'data', see
      `weighted.of_record_loss`.
    placed: where the parameters are; None if every device has all of them.
  """
  if mesh is None:
    return bounder
  whole: Any = PartitionSpec()
  rows = PartitionSpec(AXIS)
  params_specs = whole if placed is None else placed.rows_only
  shards = shards_lib.WHOLE if placed is None else placed.shards

  def summed(*local: PyTree) -> BoundedSums:
    sums = bounder.sums(*local)
    leaves, structure = jax.tree.flatten(sums.total)
    copied = [leaf for i, leaf in enumerate(leaves) if i not in shards.dims]
    copied, rest = jax.lax.psum((copied, sums._replace(total=())), AXIS)
    added = iter(copied)
    return rest._replace(total=jax.tree.unflatten(structure, [
        leaf if i in shards.dims else next(added)
        for i, leaf in enumerate(leaves)]))

  def sums(params: Params, batch: Batch, mask: Array,
           *radii: PyTree) -> BoundedSums:
    # check_vma=True would all-reduce the gradients by the replicated
    # parameters inside `bounder.sums`, that is before records are bounded.
    # XLA cannot compile collectives over an axis of one device.
    added = bounder.sums if mesh.shape[AXIS] == 1 else jax.shard_map(
        summed, mesh=mesh, axis_names={AXIS},
        in_specs=(params_specs, rows, rows, *[whole] * len(radii)),
        out_specs=BoundedSums(params_specs, whole, whole, whole),
        check_vma=False)
    result = added(params, batch, mask, *radii)
    if placed is None:
      return result
    return result._replace(total=jax.lax.with_sharding_constraint(
        result.total, placed.params))

  return bounder._replace(sums=sums)


def split_method(mesh: Mesh | None, method: Method,
                 placed: Placement | None = None) -> Method:
  """Returns the method with its sums divided over the devices of the mesh.

  Args:
    mesh: None for one device.
    method: sums that are not `shards.Divisible` collect all parameters.
    placed: see `split_sums`.
  """
  sums = method.bounder.sums
  if placed is not None:
    sums = shards_lib.divided(sums, placed.shards)
  # Convolutions first: `fast_in_loops` does not rewrite inside of shard_map.
  bounder = method.bounder._replace(sums=convolutions.fast_in_loops(sums))
  return method._replace(bounder=split_sums(mesh, bounder, placed))


def noise_in_parts(placed: Placement | None, key: PRNGKey, step: Array,
                   params: Params, radii: PyTree = ()) -> PyTree | None:
  """Returns the Gaussian noise of a step, each device its own parts.

  Args:
    placed: where the parameters are.
    key: of all noise of the run.
    step: number of the step.
    params: parameters or their shapes.
    radii: those that adapt, which are noised too; () for none.

  Returns:
    Numbers for `privatizer.gaussian_privatizer`, which draws the same without
    them; None if no parameter is divided.
  """
  if placed is None or not placed.is_divided:
    return None
  released, shardings = params, placed.params
  if jax.tree.leaves(radii):
    released, shardings = (params, radii), (
        shardings, jax.tree.map(lambda _: placed.everywhere, radii))
  return sharded.unit_noise(jax.random.fold_in(key, step), released, shardings)


def jit(mesh: Mesh | None, function: Callable[..., PyTree], *,
        arguments: PyTree = PartitionSpec(), results: PyTree = PartitionSpec(),
        **options: Any) -> jax.stages.Wrapped:
  """Returns `jax.jit` of a function, with where its arrays are.

  Args:
    mesh: None for one device.
    function: the function.
    arguments: tree prefix of the tuple of its arguments, of specifications or
      shardings. By default every device has all of them.
    results: likewise, of its result.
    **options: of `jax.jit`.
  """
  if mesh is not None:
    placed = functools.partial(jax.tree.map, lambda each: NamedSharding(
        mesh, each) if isinstance(each, PartitionSpec) else each,
                               is_leaf=lambda each: isinstance(
                                   each, PartitionSpec))
    options |= dict(in_shardings=placed(arguments),
                    out_shardings=placed(results))
  return jax.jit(function, **options)


def replicate(mesh: Mesh | None, values: PyTree) -> PyTree:
  """Copies values, equal in all processes, to every device of the mesh."""
  if mesh is None:
    return values
  put = functools.partial(jax.device_put,
                          device=NamedSharding(mesh, PartitionSpec()))

  def leaf(value: Array) -> Array:
    # Typed keys are placed by their words.
    if not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
      return put(value)
    return jax.random.wrap_key_data(put(jax.random.key_data(value)),
                                    impl=jax.random.key_impl(value))

  return jax.tree.map(leaf, values)


def put(mesh: Mesh | None, values: PyTree,
        placed: PyTree = PartitionSpec()) -> PyTree:
  """Returns values of the host, equal in all processes, as arrays of a mesh.

  With one process, and for arrays that are on several processes already,
  compiled functions do this by themselves, and the values are returned.

  Args:
    mesh: None for one device.
    values: a tree of arrays; typed keys are copied to every device.
    placed: a specification for all leaves; or of the values (trainable, other)
      arrays of a model where they are.
  """
  if mesh is None or not mesh.is_multi_process:
    return values
  if isinstance(placed, PartitionSpec):
    everywhere = NamedSharding(mesh, placed)
    placed = jax.tree.map(lambda _: everywhere, values)
  else:
    placed = tuple(placed)

  def leaf(value: Any, sharding: NamedSharding) -> Array:
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
      return value
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
      return replicate(mesh, value)
    whole = np.asarray(value)
    # Each process copies only the parts of its own devices.
    return jax.make_array_from_callback(whole.shape, sharding,
                                        lambda index: whole[index])

  return jax.tree.map(leaf, values, placed)


def place_rows(mesh: Mesh | None, values: PyTree) -> PyTree:
  """Copies arrays [b, ...] to the mesh, to each device its share of the rows.
  """
  if mesh is None:
    return jax.device_put(values)
  rows = PartitionSpec(AXIS)
  if mesh.is_multi_process:
    return put(mesh, values, rows)
  return jax.device_put(values, NamedSharding(mesh, rows))


def on_host(values: PyTree) -> PyTree:
  """Returns whole arrays of NumPy, of arrays that may be divided over a mesh.

  With several processes each of them calls it, and gets all values.
  """

  def leaf(value: Any) -> np.ndarray:
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
      where: Any = value.sharding
      if not where.is_fully_replicated:
        value = jax.jit(lambda each: each, out_shardings=NamedSharding(
            where.mesh, PartitionSpec()))(value)
      value = value.addressable_data(0)
    return np.asarray(value)

  return jax.tree.map(leaf, values)


def local(mesh: Mesh | None, values: PyTree) -> PyTree:
  """Returns replicated values as arrays on one device of this process."""
  if mesh is None:
    return values
  return jax.tree.map(lambda leaf: leaf.addressable_data(0), values)
