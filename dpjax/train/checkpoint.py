"""Checkpoints: a killed run resumes and gives the same bits.

Orbax writes the arrays and commits a checkpoint by renaming its folder. The
checksums of all its files are written last. A checkpoint that is unfinished or
was changed later is not used; the one before it is used instead.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import shutil
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax import private_files
from dpjax.train import processes
from dpjax.train import sharding
from dpjax.train.plan import TrainingPlan
from dpjax.train.state import StepInfo
from dpjax.train.state import TrainState
from dpjax.typing import Array, Batch, PyTree

KEPT = 2  # Checkpoints that stay in a folder.

_CHECKSUMS = 'checksums'
ALL_RECORDS = 'records on disk'
"""Name of a description by a digest, which messages do not show."""
_CHECKED_BY_DIGEST = ('keys', 'rows', 'records', ALL_RECORDS)


def _to_stderr(line: str) -> None:
  """Prints a line to the standard error stream."""
  print(line, file=sys.stderr)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoints:
  """Where and how often a fit is saved; the last two checkpoints are kept.

  A checkpoint holds the keys of the noise and exact statistics of the records.
  It is as private as the records, and should be removed after the run. Its
  folder has mode 0700 and its files have mode 0600. A checkpoint is rejected if
  any part of it belongs to another user, is accessible to others or is a
  symbolic link, because its keys may be known.

  Attributes:
    folder: used for these runs only; created if it does not exist.
    every_seconds: least time between two checkpoints, >= 0. Runs are saved
      between chunks of steps, while training waits; 0 saves after each chunk.
    description: name -> value of settings that are hidden inside functions,
      such as clip norm, learning rate and depth. A checkpoint with another
      description is rejected.
    say: called with one line of text when a fit is resumed and when a
      checkpoint is not used; prints to stderr by default.
    most_chunks: largest number of chunks of steps, as in `loop.chunk_lengths`;
      more chunks lose less of a killed run. None uses its default.
    other_devices: True also resumes from a checkpoint of another kind of
      device. Privacy does not change, but the results then have the roundings
      of both devices, and are not those of an uninterrupted run bit by bit.
  """
  folder: str | os.PathLike[str]
  every_seconds: float = 60.0
  description: Mapping[str, str] = dataclasses.field(default_factory=dict)
  say: Callable[[str], None] = _to_stderr
  most_chunks: int | None = None
  other_devices: bool = False

  def __post_init__(self) -> None:
    errors.check_non_negative('every_seconds', self.every_seconds)
    if self.most_chunks is not None:
      errors.check_at_least('most_chunks', self.most_chunks, 1)


@contextlib.contextmanager
def owner_only() -> Iterator[None]:
  """Lets only the owner access files and folders created in this context.

  The umask is shared by all threads, so keep the context short.
  """
  umask_before = os.umask(0o077)
  try:
    yield
  finally:
    os.umask(umask_before)


class Part(NamedTuple):
  """The progress of one group of runs.

  Attributes:
    state: after the last step; every leaf has a leading axis of runs.
    infos: `StepInfo` of each finished chunk, NumPy leaves [steps, runs, ...].
  """
  state: TrainState
  infos: tuple[StepInfo, ...]

  @property
  def info(self) -> StepInfo:
    """Diagnostics of all steps so far, leaves [steps, runs, ...]."""
    return jax.tree.map(lambda *parts: np.concatenate(parts), *self.infos)

  @property
  def num_steps(self) -> int:
    """Number of steps that have run."""
    return sum(info.batch_size.shape[0] for info in self.infos)


def describe(values: Sequence[Any]) -> dict[str, str]:
  """Returns the fields of dataclasses as text, name -> value.

  Args:
    values: dataclasses of one type, one for each run. Where they differ in a
      field, its text lists the value of every run.
  """
  described = {}
  for field in dataclasses.fields(values[0]):
    texts = [str(getattr(value, field.name)) for value in values]
    described[field.name] = (
        texts[0] if len(set(texts)) == 1 else ', '.join(texts))
  return described


def fingerprint(keys: PyTree, *, plans: Sequence[TrainingPlan],
                method_name: str, records: Batch, rows: Array, allocation: str,
                num_groups: int, chunks: Sequence[int],
                devices: str = '1') -> dict[str, str]:
  """Returns name -> value of every visible setting that decides a fit's bits.

  Keys, rows and records enter by a checksum. Whoever sees a checksum can test
  guesses of the seed and of the records against it, so it must stay in the
  checkpoint.
  """
  return {
      'runs': str(len(plans)), 'method': method_name, **describe(plans),
      'allocation': allocation, 'groups of runs': str(num_groups),
      'chunks of steps': ' '.join(map(str, chunks)),
      'keys': _digest(keys), 'rows': _digest(rows), 'records': _digest(records),
      # Another version or device may compile to other roundings.
      'jax': jax.__version__, 'device': jax.devices()[0].device_kind,
      'devices': devices
  }


class Saver:
  """Saves one fit from time to time, and restores its newest checkpoint.

  If there are several processes, only the first one reads and writes.

  Attributes:
    seconds: training time before this process, from the checkpoint.
  """

  def __init__(self, checkpoints: Checkpoints, values: Mapping[str, str]):
    """Looks for the newest usable checkpoint.

    Args:
      checkpoints: where and how often to save.
      values: the `fingerprint` of the fit.

    Raises:
      ValueError: if the checkpoint is of another configuration; the message
        names a value that differs.
      PermissionError: if somebody else may have read or written it.
    """
    self._settings = checkpoints
    self._folder = pathlib.Path(checkpoints.folder).absolute()
    self._values = {**checkpoints.description, **values}
    self._last = time.monotonic()
    self._saved = processes.from_first(self._find)
    self.seconds = self._saved['meta']['seconds'] if self._saved else 0.0

  def _find(self) -> Mapping[str, Any] | None:
    """Returns the newest usable checkpoint; reports and removes damaged ones.

    Returns None if there is no usable one.
    """
    say = self._settings.say
    if os.path.lexists(self._folder):
      private_files.make_folder(self._folder)
    for number in saved_steps(self._folder):
      private_files.check_tree(self._folder / str(number))
    step, damaged = _newest(self._folder)
    content = None if step is None else _load(self._folder / str(step))
    if content is not None:
      self._refuse(content['meta']['values'], self._values)
    # Remove nothing before the check above: the folder may be another fit's.
    for number in damaged:
      shutil.rmtree(self._folder / str(number))
      if step is None or number > step:
        say(f'warning: checkpoint {self._folder / str(number)} is damaged or '
            'unfinished, and not used')
    if step is not None:
      say(f'resuming at step {step}, from {self._folder / str(step)}')
    elif damaged:
      say('no checkpoint is usable: starting from the beginning')
    return content

  def restore(self, like: TrainState, structure: Any) -> list[Part]:
    """Returns the saved groups of runs; [] if there is no checkpoint.

    Args:
      like: state of a group before its first step; restored arrays get its key
        types and its devices.
      structure: the treedef of (state, info).

    Raises:
      ValueError: if the saved states have other leaves, types or shapes.
    """
    # The first interval starts here, after the time spent on compilation.
    self._last = time.monotonic()
    if self._saved is None:
      return []
    self._refuse(self._saved['meta']['state'], _form(like))
    leaves = [array for _, array in sorted(self._saved['arrays'].items())]
    self._saved = None  # Frees the memory.
    size = structure.num_leaves
    parts = []
    for start in range(0, len(leaves), size):
      state, info = structure.unflatten(leaves[start:start + size])
      parts.append(Part(jax.tree.map(_to_device, state, like), (info,)))
    return parts

  def after_chunk(self, steps: int, parts: Sequence[Part],
                  seconds: float) -> None:
    """Saves the fit if `every_seconds` have passed since the last checkpoint.

    Args:
      steps: number of steps done, summed over groups.
      parts: the finished groups, and the one that is running.
      seconds: training time in this process.
    """
    is_due = (time.monotonic() - self._last >= self._settings.every_seconds)
    if any(map(_is_in_parts, jax.tree.leaves(parts[-1].state))):
      # All processes must send their parts to the first one, or none.
      is_due = processes.from_first(lambda: is_due)
    elif not processes.is_first():
      return
    if not is_due:
      return
    # Six digits: names sort in the order of the leaves, as `restore` needs.
    leaves = jax.tree.leaves([(part.state, part.info) for part in parts])
    arrays = {f'{i:06d}': _to_host(leaf) for i, leaf in enumerate(leaves)}
    if processes.is_first():
      _save(self._folder, steps, arrays, meta={
          'values': self._values, 'state': _form(parts[0].state),
          'seconds': self.seconds + seconds})
    self._last = time.monotonic()

  def _refuse(self, theirs: Mapping[str, str],
              ours: Mapping[str, str]) -> None:
    """Raises if a value of the checkpoint differs from that of this fit."""
    for name in {**ours, **theirs}:
      saved, now = theirs.get(name, 'none'), ours.get(name, 'none')
      if saved == now or (name == 'device' and self._settings.other_devices):
        continue
      # Digests are not printed: guesses of keys and records could be tested.
      differs = (f'other {name}' if name in _CHECKED_BY_DIGEST else
                 f'{name} = {saved}, now {now}')
      raise ValueError(
          f'the checkpoint in {self._folder} is of another configuration: '
          f'{differs}; use another folder, or remove it')


def saved_steps(folder: str | os.PathLike[str]) -> list[int]:
  """Returns the steps of all checkpoints in a folder, newest first.

  Damaged checkpoints are listed too.
  """
  return sorted((int(path.name) for path in pathlib.Path(folder).glob('*')
                 if path.name.isdecimal() and path.is_dir()), reverse=True)


def _newest(folder: pathlib.Path) -> tuple[int | None, list[int]]:
  """Returns the newest undamaged step, or None, and all damaged steps."""
  steps = saved_steps(folder)
  damaged = [step for step in steps if not _is_whole(folder / str(step))]
  return next((s for s in steps if s not in damaged), None), damaged


# Orbax is imported where it is used: most fits are not saved.


def _save(folder: pathlib.Path, step: int, arrays: Mapping[str, np.ndarray],
          *, meta: Mapping[str, Any]) -> None:
  """Writes a checkpoint, its checksums last."""
  from orbax import checkpoint as orbax
  # No threads; `cleanup` removes the unfinished folder of a killed write.
  options = orbax.CheckpointManagerOptions(
      preservation_policy=orbax.checkpoint_managers.LatestN(KEPT),
      create=False, cleanup_tmp_directories=True,
      enable_async_checkpointing=False,
      multiprocessing_options=_alone(orbax))
  private_files.make_folder(folder)
  # The umask sets the modes of the files that Orbax creates.
  with owner_only():
    with orbax.CheckpointManager(folder, options=options) as manager:
      manager.save(step, force=True, args=orbax.args.Composite(
          arrays=orbax.args.StandardSave(arrays),
          meta=orbax.args.JsonSave(meta)))
    path = folder / str(step)
    (path / _CHECKSUMS).write_text(_checksums(path))


def _load(path: pathlib.Path) -> dict[str, Any]:
  """Returns the content of one checkpoint: {'arrays': ..., 'meta': ...}."""
  from orbax import checkpoint as orbax
  # No CheckpointManager: it would also read damaged checkpoints next to it.
  with orbax.Checkpointer(
      orbax.CompositeCheckpointHandler(),
      multiprocessing_options=_alone(orbax)) as checkpointer:
    content = checkpointer.restore(path, args=orbax.args.Composite(
        arrays=orbax.args.StandardRestore(), meta=orbax.args.JsonRestore()))
  # A plain dict: Orbax's type cannot be pickled for the other processes.
  return {name: content[name] for name in ('arrays', 'meta')}


def _alone(orbax: Any) -> Any:
  """Returns options not to wait for other processes, which do no I/O here."""
  return orbax.options.MultiprocessingOptions(
      primary_host=0, active_processes={0}, barrier_sync_key_prefix='first')


def _checksums(path: pathlib.Path) -> str:
  """Returns one line 'SHA-256  path' for each file of a checkpoint."""
  lines = []
  for file in sorted(path.rglob('*')):
    if file.is_file() and file.name != _CHECKSUMS:
      with file.open('rb') as content:
        digest = hashlib.file_digest(content, 'sha256').hexdigest()
      lines.append(f'{digest}  {file.relative_to(path).as_posix()}\n')
  return ''.join(lines)


def _is_whole(path: pathlib.Path) -> bool:
  """Returns whether the files of a checkpoint match its checksums."""
  try:
    return (path / _CHECKSUMS).read_bytes() == _checksums(path).encode()
  except OSError:
    return False


def _is_key(leaf: Array | np.ndarray) -> bool:
  """Returns whether an array holds typed keys."""
  return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_host(leaf: Array | np.ndarray) -> np.ndarray:
  """Returns a whole leaf as a NumPy array; keys as their data."""
  value: np.ndarray = sharding.on_host(
      jax.random.key_data(leaf) if _is_key(leaf) else leaf)
  return value


def _is_in_parts(leaf: Array | np.ndarray) -> bool:
  """Returns whether no process has all of a leaf."""
  return isinstance(leaf, jax.Array) and not (
      leaf.is_fully_addressable or leaf.is_fully_replicated)


def _to_device(leaf: np.ndarray, like: jax.Array) -> jax.Array:
  """Puts a leaf on the devices of `like`; as a typed key if `like` is one."""
  placed: Array = jax.device_put(leaf, like.sharding)
  if not _is_key(like):
    return placed
  return jax.random.wrap_key_data(placed, impl=jax.random.key_impl(like))


def _form(tree: PyTree) -> dict[str, str]:
  """Returns path -> 'type[shape]' of every leaf."""
  return {f'state{jax.tree_util.keystr(path)}':
          f'{leaf.dtype}{list(leaf.shape)}'
          for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _digest(tree: PyTree) -> str:
  """Returns 16 hexadecimal digits of the SHA-256 of all leaves."""
  digest = hashlib.sha256()
  for leaf in jax.tree.leaves(tree):
    value = _to_host(leaf)
    digest.update(f'{value.dtype}{value.shape}'.encode())
    digest.update(np.ascontiguousarray(value).data)
  return digest.hexdigest()[:16]
