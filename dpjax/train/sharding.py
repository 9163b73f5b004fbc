"""Data-parallel steps: devices share the rows of a batch; noise is added once.

Every device runs the same program. Keys, batch selection, noise, optimiser and
constraint are replicated. Only `GradientBounder.sums` is divided: each device
sums the contributions of its rows, and one all-reduce adds these sums.

Privacy: each record is bounded separately on whichever device has it, so the
sensitivity of the sums does not change. Noise is added after the all-reduce,
from a replicated key, so it enters exactly once.

Results equal those of one device up to the order of float32 additions.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

from dpjax import errors
from dpjax.grads.bounder import BoundedSums
from dpjax.grads.bounder import GradientBounder
from dpjax.sampling import Sampler
from dpjax.typing import Array, Batch, Params, PyTree

AXIS = 'data'


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
  if num_devices is not None:
    errors.check_at_least('num_devices', num_devices, 1)
    if num_devices > len(devices):
      raise ValueError(f'num_devices must be at most {len(devices)}, the '
                       f'number of devices, got {num_devices}')
    devices = devices[:num_devices]
  processes = {device.process_index for device in devices}
  if jax.process_index() not in processes:
    raise ValueError(f'none of the {len(devices)} devices of the mesh belongs '
                     f'to process {jax.process_index()}')
  return Mesh(np.array(devices), (AXIS,))


def check(mesh: Mesh | None, max_batch_size: int | None) -> None:
  """Checks that the rows of a batch divide evenly over a mesh.

  The expected batch size need not divide, because batches are padded. A sampler
  without `max_batch_size` chooses a number of rows that divides.

  Args:
    mesh: None for one device, which passes.
    max_batch_size: largest batch of the sampler; None passes.

  Raises:
    ValueError: if the mesh has other axes than 'data', or if its size does not
      divide `max_batch_size`.
  """
  if mesh is None:
    return
  if mesh.axis_names != (AXIS,):
    raise ValueError(f'the mesh must have one axis, {AXIS!r}, got '
                     f'{", ".join(map(repr, mesh.axis_names))}')
  if max_batch_size is not None and (rest := -max_batch_size % mesh.size):
    raise ValueError(f'max_batch_size must be a multiple of the {mesh.size} '
                     f'devices of the mesh, got {max_batch_size}; '
                     f'{max_batch_size + rest} is one')


def split_sampler(mesh: Mesh | None, sampler: Sampler) -> Sampler:
  """Returns a sampler of the same batches in parts that the mesh divides.

  Rows that fill up a part are masked.
  """
  if mesh is None:
    return sampler
  return dataclasses.replace(sampler, row_multiple=mesh.size)


def split_sums(mesh: Mesh | None, bounder: GradientBounder) -> GradientBounder:
  """Returns a bounder whose `sums` are computed by all devices together.

  Args:
    mesh: None returns the bounder as it is.
    bounder: its sums must add one contribution per record, each from that
      record only (which is false of `lip_printed`). The number of rows must be
      a multiple of the number of devices.
  """
  if mesh is None:
    return bounder

  def sums(params: Params, batch: Batch, mask: Array,
           *radii: PyTree) -> BoundedSums:
    whole, rows = PartitionSpec(), PartitionSpec(AXIS)
    # check_vma=True would all-reduce the gradients by the replicated
    # parameters inside `bounder.sums`, that is before records are bounded.
    return jax.shard_map(
        lambda *local: jax.lax.psum(bounder.sums(*local), AXIS), mesh=mesh,
        in_specs=(whole, rows, rows, *[whole] * len(radii)), out_specs=whole,
        check_vma=False)(params, batch, mask, *radii)

  return bounder._replace(sums=sums)


def jit(mesh: Mesh | None, function: Callable[..., PyTree], *,
        num_arguments: int = 0, split_arguments: Sequence[int] = (),
        **options: Any) -> jax.stages.Wrapped:
  """Returns `jax.jit` of a function of replicated arguments and results.

  Args:
    mesh: None for one device.
    function: the function.
    num_arguments: number of its arguments; needed if some are split.
    split_arguments: places of the arguments whose rows the devices share.
    **options: of `jax.jit`.
  """
  if mesh is not None:
    whole, rows = (NamedSharding(mesh, PartitionSpec(*axes))
                   for axes in ((), (AXIS,)))
    options |= dict(out_shardings=whole, in_shardings=tuple(
        rows if place in split_arguments else whole
        for place in range(num_arguments)) or whole)
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


def place_rows(mesh: Mesh | None, values: PyTree) -> PyTree:
  """Copies arrays [b, ...] to the mesh, to each device its share of the rows.
  """
  if mesh is None:
    return jax.device_put(values)
  return jax.device_put(values, NamedSharding(mesh, PartitionSpec(AXIS)))


def local(mesh: Mesh | None, values: PyTree) -> PyTree:
  """Returns replicated values as arrays on one device of this process."""
  if mesh is None:
    return values
  return jax.tree.map(lambda leaf: leaf.addressable_data(0), values)
