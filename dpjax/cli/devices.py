"""Flags for several devices and processes, and the device mesh they form."""

from collections.abc import Iterator
import contextlib
import functools
import math
import os

from absl import flags
import jax

from dpjax import errors
from dpjax.train import placement
from dpjax.train import processes
from dpjax.train import sharding

FLAGS = flags.FlagValues()
"""The flags of this module; a command adds them to its own."""

_NUM_DEVICES = flags.DEFINE_string(
    'num_devices', None, 'Devices that share every batch, a number or "all". '
    'The number must divide --max_batch_size, if that is given. Default: 1, or '
    'all devices with several processes. Each device has all parameters.',
    FLAGS)
_MESH = flags.DEFINE_string(
    'mesh', None, 'Axes of devices with their sizes, such as data:2,model:4, '
    'instead of --num_devices. Devices along data share every batch, and their '
    'number must divide --max_batch_size, if that is given. Parameters of '
    '16384 numbers or more are divided: over model their last dimension, which '
    'is that of the outputs of a layer, and over data the longest other one; a '
    'dimension that the size does not divide is not divided. So are the state '
    'of the optimiser and the noise. Runs are trained one after the other.',
    FLAGS)
_DISTRIBUTED = flags.DEFINE_bool(
    'distributed', False, 'This is one of several processes, which find each '
    'other through Slurm, Open MPI or a TPU pod. All get the same flags and '
    'read the records; the first one prints and writes.', FLAGS)
_COORDINATOR_ADDRESS = flags.DEFINE_string(
    'coordinator_address', None, 'HOST:PORT of the first of several processes, '
    'without a cluster manager; with --num_processes and --process_id.', FLAGS)
_NUM_PROCESSES = flags.DEFINE_integer(
    'num_processes', None, 'Number of processes.', flag_values=FLAGS)
_PROCESS_ID = flags.DEFINE_integer(
    'process_id', None, 'Number of this process, from 0.', flag_values=FLAGS)


def start() -> None:
  """Connects to the other processes, if any; call it before any computation.

  Raises:
    ValueError: if flags are missing.
    ConnectionError: if the other processes cannot be reached.
  """
  address, num_processes, process_id = (
      _COORDINATOR_ADDRESS.value, _NUM_PROCESSES.value, _PROCESS_ID.value)
  if address is None and num_processes is None and process_id is None:
    if not _DISTRIBUTED.value:
      return
    # JAX asks the cluster manager.
  elif address is None or num_processes is None or process_id is None:
    missing = [flag.name for flag in (
        _COORDINATOR_ADDRESS, _NUM_PROCESSES, _PROCESS_ID)
               if flag.value is None]
    raise ValueError(f'--{" and --".join(missing)} must be given too')
  else:
    errors.check_at_least('num_processes', num_processes, 1)
    if not 0 <= process_id < num_processes:
      raise ValueError('process_id must be an integer from 0 to '
                       f'{num_processes - 1}, got {process_id}')
  try:
    jax.distributed.initialize(
        coordinator_address=address, num_processes=num_processes,
        process_id=process_id)
  except ValueError as error:
    raise ValueError('--distributed found no cluster; give '
                     '--coordinator_address, --num_processes and --process_id '
                     f'({errors.one_line(error)})') from None
  except RuntimeError as error:
    raise ConnectionError('could not reach the other processes: '
                          f'{errors.one_line(error)}') from error


def several() -> bool:
  """Returns whether flags ask for several devices or processes."""
  return _DISTRIBUTED.value or any(
      flag.value is not None for flag in (
          _COORDINATOR_ADDRESS, _NUM_PROCESSES, _PROCESS_ID)) or (
              _NUM_DEVICES.value not in (None, '1')) or (
                  _MESH.value is not None)


def mesh() -> jax.sharding.Mesh | None:
  """Returns the mesh of devices that share each batch; None for one device."""
  if _MESH.value is not None:
    return _divided_mesh(_MESH.value)
  # Processes share a batch, and all devices take part.
  text = _NUM_DEVICES.value or ('all' if jax.process_count() > 1 else '1')
  if text == 'all':
    return sharding.data_mesh() if len(jax.devices()) > 1 else None
  if not text.isdecimal():
    raise ValueError(f'--num_devices must be an integer or all, got {text!r}')
  if jax.process_count() > 1 and int(text) != len(jax.devices()):
    raise ValueError(f'{jax.process_count()} processes use all of their '
                     f'{len(jax.devices())} devices; --num_devices must be '
                     f'all, got {text}')
  return None if int(text) == 1 else sharding.data_mesh(int(text))


def _divided_mesh(text: str) -> jax.sharding.Mesh:
  """Returns the mesh that --mesh asks for."""
  if _NUM_DEVICES.value is not None:
    raise ValueError('--mesh and --num_devices exclude each other: the sizes '
                     'of --mesh say how many devices there are')
  axes = [each.strip().partition(':') for each in text.split(',')]
  names = [name for name, _, _ in axes]
  if (placement.AXIS not in names or len(set(names)) < len(names)
      or not {*names} <= {placement.AXIS, placement.MODEL}
      or not all(size.isdecimal() and int(size) for _, _, size in axes)):
    raise ValueError('--mesh must be data:N, or data:N and model:M separated '
                     f'by a comma, with integers >= 1, got {text!r}')
  sizes = {name: int(size) for name, _, size in axes}
  count = math.prod(sizes.values())
  if jax.process_count() > 1 and count != len(jax.devices()):
    raise ValueError(f'{jax.process_count()} processes use all of their '
                     f'{len(jax.devices())} devices; the sizes of --mesh '
                     f'multiply to {count}')
  return sharding.device_mesh(sizes)


def place(mesh: jax.sharding.Mesh | None) -> placement.Place | None:
  """Returns how --mesh divides parameters over a mesh; None without it."""
  if _MESH.value is None or mesh is None:
    return None
  return functools.partial(placement.divided, mesh)


@contextlib.contextmanager
def first_speaks() -> Iterator[None]:
  """Context in which only the first process prints."""
  if processes.is_first():
    yield
    return
  with (open(os.devnull, 'w', encoding='utf-8') as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere)):
    yield
