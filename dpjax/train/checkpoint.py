"""Runs saved between chunks, so that a killed one goes on as if it were not.

Orbax writes the arrays and commits a checkpoint by renaming its folder. The
checksums of all of its files are written last: a checkpoint that was not
finished, or was changed since, is not used, and the one before it is.
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
from dpjax.train.plan import TrainingPlan
from dpjax.train.state import StepInfo, TrainState
from dpjax.typing import Array, Batch, PyTree

KEPT = 2

_CHECKSUMS = 'checksums'
_CHECKED_BY_DIGEST = ('keys', 'rows', 'records')


def _to_stderr(line: str) -> None:
  print(line, file=sys.stderr)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoints:
  """Where and how often a fit is saved; the last two are kept.

  A checkpoint holds the keys of the noise and exact statistics of the records:
  it is as private as the records are, and to be removed after the run. Nobody
  but its owner may read its folder (mode 0700) and the files in it (0600); a
  checkpoint of which anything belongs to somebody else, is open to others or is
  a symbolic link is refused, because its keys may be known.

  Attributes:
    folder: of these runs alone; made when it is not there.
    every_seconds: least time from one to the next. Runs are saved between
      chunks, while training waits; 0 saves after each chunk.
    description: name -> value of what makes the runs what they are and hides
      inside of functions: clip norm, learning rate, depth. A checkpoint of
      another description is refused.
    say: is told in one line what is resumed and what is not used.
  """
  folder: str | os.PathLike
  every_seconds: float = 60.0
  description: Mapping[str, str] = dataclasses.field(default_factory=dict)
  say: Callable[[str], None] = _to_stderr

  def __post_init__(self):
    errors.check_non_negative('every_seconds', self.every_seconds)


@contextlib.contextmanager
def owner_only() -> Iterator[None]:
  """Makes new files and folders of this process for their owner alone.

  The mask is one for all threads: it is for short pieces of work.
  """
  before = os.umask(0o077)
  try:
    yield
  finally:
    os.umask(before)


class Part(NamedTuple):
  """How far one group of runs is.

  Attributes:
    state: after the last step, every leaf with a leading axis of runs.
    infos: of the chunks so far, leaves [steps, runs, ...] in NumPy.
  """
  state: TrainState
  infos: tuple[StepInfo, ...]

  @property
  def info(self) -> StepInfo:
    """Of all steps so far."""
    return jax.tree.map(lambda *parts: np.concatenate(parts), *self.infos)

  @property
  def num_steps(self) -> int:
    """Steps that ran."""
    return sum(info.batch_size.shape[0] for info in self.infos)


def describe(values: Sequence) -> dict[str, str]:
  """Field -> its value in dataclasses of one kind; all of them if they differ.

  Args:
    values: one for each run.
  """
  described = {}
  for field in dataclasses.fields(values[0]):
    each = [str(getattr(value, field.name)) for value in values]
    described[field.name] = each[0] if len(set(each)) == 1 else ', '.join(each)
  return described


def fingerprint(keys: PyTree, *, plans: Sequence[TrainingPlan],
                method_name: str, records: Batch, rows: Array, allocation: str,
                num_groups: int, chunks: Sequence[int],
                num_devices: int = 1) -> dict[str, str]:
  """Name -> value of all that decides on the bits of a fit and can be seen.

  Keys, rows and records are there by a checksum. Whoever sees it can try seeds
  and guesses of records against it, so it stays in the checkpoint.
  """
  return {
      'runs': str(len(plans)), 'method': method_name, **describe(plans),
      'allocation': allocation, 'groups of runs': str(num_groups),
      'chunks of steps': ' '.join(map(str, chunks)),
      'keys': _digest(keys), 'rows': _digest(rows), 'records': _digest(records),
      'jax': jax.__version__, 'device': jax.devices()[0].device_kind,
      'devices': str(num_devices)
  }


class Saver:
  """Saves one fit now and then, and finds what was saved of it before.

  Of many processes the first one reads and writes.

  Attributes:
    seconds: that training took before this process, as saved.
  """

  def __init__(self, checkpoints: Checkpoints, values: Mapping[str, str]):
    """Looks for the newest usable checkpoint.

    Args:
      checkpoints: where and how often.
      values: the `fingerprint` of the fit.

    Raises:
      ValueError: if it is of another configuration; says which value differs.
      PermissionError: if others than its owner may have written it.
    """
    self._where = checkpoints
    self._folder = pathlib.Path(checkpoints.folder).absolute()
    self._values = {**checkpoints.description, **values}
    self._last = time.monotonic()
    self._found = processes.from_first(self._find)
    self.seconds = self._found['meta']['seconds'] if self._found else 0.0

  def _find(self) -> Mapping[str, Any] | None:
    """The newest usable checkpoint; the others are told of and removed."""
    say = self._where.say
    if os.path.lexists(self._folder):
      private_files.make_folder(self._folder)
    for number in saved_steps(self._folder):
      private_files.check_tree(self._folder / str(number))
    step, damaged = _newest(self._folder)
    found = None if step is None else _load(self._folder / str(step))
    if found is not None:
      self._refuse(found['meta']['values'], self._values)
    # Not before a checkpoint of something else is refused.
    for number in damaged:
      shutil.rmtree(self._folder / str(number))
      if step is None or number > step:
        say(f'warning: checkpoint {self._folder / str(number)} is damaged or '
            'unfinished, and not used')
    if step is not None:
      say(f'resuming at step {step}, from {self._folder / str(step)}')
    elif damaged:
      say('no checkpoint is usable: starting from the beginning')
    return found

  def restore(self, like: TrainState, structure: Any) -> list[Part]:
    """The groups of runs as they were saved; none if there is no checkpoint.

    Args:
      like: state of a group before its first step: gives key types, devices.
      structure: the treedef of (state, info).

    Raises:
      ValueError: if the states that were saved are not of this form.
    """
    self._last = time.monotonic()
    if self._found is None:
      return []
    self._refuse(self._found['meta']['state'], _form(like))
    leaves = [self._found['arrays'][name]
              for name in sorted(self._found['arrays'])]
    self._found = None
    size = structure.num_leaves
    parts = []
    for start in range(0, len(leaves), size):
      state, info = structure.unflatten(leaves[start:start + size])
      parts.append(Part(jax.tree.map(_to_device, state, like), (info,)))
    return parts

  def after_chunk(self, steps: int, parts: Sequence[Part],
                  seconds: float) -> None:
    """Saves if it is time.

    Args:
      steps: done by now, summed over groups.
      parts: groups that are finished, and the one that is not.
      seconds: that training took in this process.
    """
    waited = time.monotonic() - self._last
    if waited < self._where.every_seconds or not processes.is_first():
      return
    _save(self._folder, steps, parts, meta={
        'values': self._values, 'state': _form(parts[0].state),
        'seconds': self.seconds + seconds})
    self._last = time.monotonic()

  def _refuse(self, theirs: Mapping[str, str],
              ours: Mapping[str, str]) -> None:
    for name in {**ours, **theirs}:
      found, now = theirs.get(name, 'none'), ours.get(name, 'none')
      if found == now:
        continue
      # Who reads a digest can try keys and records against it.
      differs = (f'other {name}' if name in _CHECKED_BY_DIGEST else
                 f'{name} = {found}, now {now}')
      raise ValueError(
          f'the checkpoint in {self._folder} is of another configuration: '
          f'{differs}; use another folder, or remove it')


def saved_steps(folder: str | os.PathLike) -> list[int]:
  """Steps of the checkpoints in a folder, usable or not, newest first."""
  return sorted((int(path.name) for path in pathlib.Path(folder).glob('*')
                 if path.name.isdecimal() and path.is_dir()), reverse=True)


def _newest(folder: pathlib.Path) -> tuple[int | None, list[int]]:
  """The newest step that is whole, and all steps that are not."""
  steps = saved_steps(folder)
  damaged = [step for step in steps if not _is_whole(folder / str(step))]
  return next((s for s in steps if s not in damaged), None), damaged


# Orbax is imported where it is used: most fits are not saved.


def _save(folder: pathlib.Path, step: int, parts: Sequence[Part], *,
          meta) -> None:
  from orbax import checkpoint as orbax
  leaves = jax.tree.leaves([(part.state, part.info) for part in parts])
  arrays = {f'{i:06d}': _to_host(leaf) for i, leaf in enumerate(leaves)}
  # Without threads; removes what a kill left of a write.
  options = orbax.CheckpointManagerOptions(
      preservation_policy=orbax.checkpoint_managers.LatestN(KEPT),
      create=False, cleanup_tmp_directories=True,
      enable_async_checkpointing=False,
      multiprocessing_options=_alone(orbax))
  private_files.make_folder(folder)
  with owner_only():
    with orbax.CheckpointManager(folder, options=options) as manager:
      manager.save(step, force=True, args=orbax.args.Composite(
          arrays=orbax.args.StandardSave(arrays),
          meta=orbax.args.JsonSave(meta)))
    path = folder / str(step)
    (path / _CHECKSUMS).write_text(_checksums(path))


def _load(path: pathlib.Path):
  from orbax import checkpoint as orbax
  # No manager: it would read the damaged ones beside this one.
  with orbax.Checkpointer(
      orbax.CompositeCheckpointHandler(),
      multiprocessing_options=_alone(orbax)) as checkpointer:
    found = checkpointer.restore(path, args=orbax.args.Composite(
        arrays=orbax.args.StandardRestore(), meta=orbax.args.JsonRestore()))
  # Its own type cannot be pickled, for other processes.
  return {name: found[name] for name in ('arrays', 'meta')}


def _alone(orbax):
  """Waits for no other process: the others neither read nor write."""
  return orbax.options.MultiprocessingOptions(
      primary_host=0, active_processes={0}, barrier_sync_key_prefix='first')


def _checksums(path: pathlib.Path) -> str:
  """One line for each file of a checkpoint."""
  lines = []
  for file in sorted(path.rglob('*')):
    if file.is_file() and file.name != _CHECKSUMS:
      with file.open('rb') as content:
        digest = hashlib.file_digest(content, 'sha256').hexdigest()
      lines.append(f'{digest}  {file.relative_to(path).as_posix()}\n')
  return ''.join(lines)


def _is_whole(path: pathlib.Path) -> bool:
  try:
    return (path / _CHECKSUMS).read_bytes() == _checksums(path).encode()
  except OSError:
    return False


def _is_key(leaf) -> bool:
  return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_host(leaf) -> np.ndarray:
  if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
    leaf = leaf.addressable_data(0)
  return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _to_device(leaf: np.ndarray, like: jax.Array) -> jax.Array:
  """The same bits where `like` is, as a key if it is one."""
  leaf = jax.device_put(leaf, like.sharding)
  if not _is_key(like):
    return leaf
  return jax.random.wrap_key_data(leaf, impl=jax.random.key_impl(like))


def _form(tree: PyTree) -> dict[str, str]:
  """Path -> type and shape of every leaf."""
  return {f'state{jax.tree_util.keystr(path)}':
          f'{leaf.dtype}{list(leaf.shape)}'
          for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _digest(tree: PyTree) -> str:
  digest = hashlib.sha256()
  for leaf in jax.tree.leaves(tree):
    value = _to_host(leaf)
    digest.update(f'{value.dtype}{value.shape}'.encode())
    digest.update(np.ascontiguousarray(value).data)
  return digest.hexdigest()[:16]
