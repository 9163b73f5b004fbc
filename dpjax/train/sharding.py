"""Data-parallel steps: the rows of a batch over devices, the noise once.

A step stays one program, the same on every device: key, batch, noise, optimiser
and constraint are computed from replicated values, and so is the result. Only
`GradientBounder.sums` is divided: every device adds up its rows of a part, and
one all-reduce adds up the devices. Records are bounded one by one, whichever
device they are on, so the sensitivity of the sums is what it was; noise is
drawn after the all-reduce, so it is neither repeated nor missing.

Results equal those of one device up to the order of a float32 sum.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np

from dpjax import errors
from dpjax.grads.bounder import GradientBounder
from dpjax.sampling import PoissonSampler
from dpjax.typing import PyTree

AXIS = 'data'


def data_mesh(num_devices: int | None = None, *,
              devices: Sequence[jax.Device] | None = None) -> Mesh:
  """A mesh of one axis, 'data', over these devices.

  Args:
    num_devices: how many, the first ones; None for all.
    devices: to choose from; None for all of all processes.

  Raises:
    ValueError: if there are not so many, or if a process is left without one.
  """
  devices = list(jax.devices() if devices is None else devices)
  if num_devices is not None:
    errors.check_at_least('num_devices', num_devices, 1)
    if num_devices > len(devices):
      raise ValueError(f'num_devices must be at most {len(devices)}, the '
                       f'devices there are, got {num_devices}')
    devices = devices[:num_devices]
  processes = {device.process_index for device in devices}
  if jax.process_index() not in processes:
    raise ValueError(f'none of the {len(devices)} devices of the mesh belongs '
                     f'to process {jax.process_index()}')
  return Mesh(np.array(devices), (AXIS,))


def check(mesh: Mesh | None, max_batch_size: int | None) -> None:
  """Refuses a mesh over which the rows that are asked for do not divide.

  What a batch has in expectation need not divide: its rows are padded, and a
  sampler without `max_batch_size` chooses them so that they do.

  Args:
    mesh: None is one device, over which everything divides.
    max_batch_size: of the sampler.
  """
  if mesh is None:
    return
  if mesh.axis_names != (AXIS,):
    raise ValueError(f'the mesh must have one axis, {AXIS!r}, got '
                     f'{", ".join(map(repr, mesh.axis_names))}')
  rest = -(max_batch_size or 0) % mesh.size
  if rest:
    raise ValueError(f'max_batch_size must divide by the {mesh.size} devices '
                     f'of the mesh, got {max_batch_size}; '
                     f'{max_batch_size + rest} does')


def split_sampler(mesh: Mesh | None, sampler: PoissonSampler) -> PoissonSampler:
  """The same batches in parts that divide; what fills them up is masked."""
  if mesh is None:
    return sampler
  return dataclasses.replace(sampler, row_multiple=mesh.size)


def split_sums(mesh: Mesh | None, bounder: GradientBounder) -> GradientBounder:
  """The bounder whose `sums` are computed by all devices together.

  Args:
    mesh: None leaves the bounder as it is.
    bounder: any that keeps the contract, sums of contributions of one record
      each, so not `lip_printed`; its rows must divide by the devices.
  """
  if mesh is None:
    return bounder

  def sums(params, batch, mask, *radii):
    whole, rows = PartitionSpec(), PartitionSpec(AXIS)
    # Not check_vma: it would sum each record's gradient by the replicated
    # parameters over the devices, before the record is bounded.
    return jax.shard_map(
        lambda *local: jax.lax.psum(bounder.sums(*local), AXIS), mesh=mesh,
        in_specs=(whole, rows, rows, *[whole] * len(radii)), out_specs=whole,
        check_vma=False)(params, batch, mask, *radii)

  return bounder._replace(sums=sums)


def jit(mesh: Mesh | None, function: Callable, **options: Any) -> Callable:
  """`jax.jit` of a function whose arguments and results are replicated."""
  if mesh is not None:
    whole = NamedSharding(mesh, PartitionSpec())
    options |= dict(in_shardings=whole, out_shardings=whole)
  return jax.jit(function, **options)


def replicate(mesh: Mesh | None, values: PyTree) -> PyTree:
  """Puts values, the same in all processes, on every device of the mesh."""
  if mesh is None:
    return values
  put = functools.partial(jax.device_put,
                          device=NamedSharding(mesh, PartitionSpec()))

  def leaf(value):
    if not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
      return put(value)
    return jax.random.wrap_key_data(put(jax.random.key_data(value)),
                                    impl=jax.random.key_impl(value))

  return jax.tree.map(leaf, values)


def local(mesh: Mesh | None, values: PyTree) -> PyTree:
  """Replicated values as ordinary arrays on a device of this process."""
  if mesh is None:
    return values
  return jax.tree.map(lambda leaf: leaf.addressable_data(0), values)
