"""Runs that were killed: which were trained together, and what was saved.

The bits of a run depend on how many it was trained with, so a group that was
begun is finished as it was, also where the kill fell between the summaries of
its runs or where more runs are asked for by then. It goes on with the same
secret keys: they are kept beside the checkpoints, for their owner alone, until
the group is finished, or has failed without a checkpoint to go on from. A
folder or a file that others may have written is refused: whoever puts a key
there knows the noise.
"""

from collections.abc import Sequence
import json
import os
import pathlib
import shutil

import numpy as np

from dpjax import private_files
from dpjax.privacy import keys
from dpjax.report import files
from dpjax.train import checkpoint
from experiments.configuration import TrainingConfig

FOLDER = 'checkpoints'
"""In the output folder; holds one folder for each group if there are more."""

BATCHED = ('seed', 'epsilon')
"""Fields in which runs that are trained together may differ."""

_RUNS = 'runs.json'
_KEYS = 'keys.json'
_STEPS = 'steps'


def steps_folder(folder: pathlib.Path) -> pathlib.Path:
  """Where a group keeps its checkpoints."""
  return folder / _STEPS


def prepare(folder: pathlib.Path) -> None:
  """Makes the folder of a group for its owner alone, and the one of all.

  Raises:
    PermissionError: if others than its owner may have written to it.
  """
  for each in _private(folder):
    private_files.make_folder(each)


def start(folder: pathlib.Path, group: Sequence[TrainingConfig]) -> None:
  """Says which runs are trained together, before any of them has results."""
  runs = [_run(config) for config in group]
  if runs != _begun(folder):
    _write(folder / _RUNS, runs)


def kept_words(folder: pathlib.Path,
               batch: Sequence[TrainingConfig]) -> np.ndarray:
  """Returns the words [L, 8] of the runs' secret keys; new where none is kept.

  Args:
    folder: of the group's checkpoints.
    batch: runs that are trained together.

  Raises:
    PermissionError: if others than their owner may have written what is kept.
  """
  _check(folder)
  try:
    kept = {(int(seed), float(epsilon)): bytes.fromhex(text)
            for seed, epsilon, text in json.loads(
                private_files.read(folder / _KEYS))}
  except (FileNotFoundError, ValueError, TypeError):
    kept = {}
  words = keys.system_words(len(batch))
  for run, config in enumerate(batch):
    found = kept.get(_run(config), b'')
    if len(found) == words[run].nbytes:
      words[run] = np.frombuffer(found, '<u4')
  return words


def keep_words(folder: pathlib.Path, batch: Sequence[TrainingConfig],
               words: np.ndarray) -> None:
  """Keeps the words of `kept_words`, before the first step is done."""
  _write(folder / _KEYS, [
      [*_run(config), row.astype('<u4').tobytes().hex()]
      for config, row in zip(batch, words, strict=True)])


def finish(folder: pathlib.Path) -> None:
  """Removes the checkpoints; what tells of them comes last."""
  _check(folder)
  if not folder.exists():
    return
  if steps_folder(folder).exists():
    shutil.rmtree(steps_folder(folder))
  # And drafts that a kill has left.
  for name in (_KEYS, _RUNS):
    for path in (*folder.glob(f'.{name}.*'), *folder.glob(name)):
      private_files.remove(path)
  if not any(folder.iterdir()):
    folder.rmdir()
  if folder.parent.name == FOLDER and not any(folder.parent.iterdir()):
    folder.parent.rmdir()


def failed(folder: pathlib.Path, *, released: bool) -> None:
  """Removes what nobody needs after a failure: keys, and what goes with them.

  They are kept only where the same command can go on from a checkpoint. Keys of
  runs that were released are not kept at all, even if others of the group have
  to be trained again for it.

  Args:
    folder: of the group's checkpoints.
    released: whether results of one of the runs have just been written.
  """
  if released or not checkpoint.saved_steps(steps_folder(folder)):
    finish(folder)


def is_begun(folder: pathlib.Path) -> bool:
  """Whether a killed run has left keys, checkpoints or a list of runs."""
  return any(path.exists() for path in (
      folder / _KEYS, folder / _RUNS, steps_folder(folder)))


def batches(folder: pathlib.Path, group: Sequence[TrainingConfig],
            pending: Sequence[TrainingConfig]) -> list[list[TrainingConfig]]:
  """Pending runs as they are to be trained: what was begun comes first.

  Args:
    folder: of the group's checkpoints.
    group: runs that differ in batched fields only.
    pending: those of them that have no results.

  Raises:
    ValueError: if checkpoints are of runs that are not in the group.
    PermissionError: if others than its owner may have written to the folder.
  """
  _check(folder)
  asked = {_run(config): config for config in group}
  begun = _begun(folder)
  missing = [run for run in begun if run not in asked]
  if missing and checkpoint.saved_steps(steps_folder(folder)):
    raise ValueError(
        f'{folder} holds the checkpoint of seed = {missing[0][0]}, epsilon = '
        f'{missing[0][1]:g}, which is not asked for now; ask for it too, use '
        'another --output_dir, or remove the folder')
  first = [] if missing else [asked[run] for run in begun]
  if not pending or (first and not set(first) & set(pending)):
    # Also keys that were left before anything said whose they are.
    finish(folder)
    first = []
  rest = [config for config in pending if config not in first]
  return [batch for batch in (first, rest) if batch]


def _write(path: pathlib.Path, values: list) -> None:
  """Writes a file of mode 0600 in a folder of mode 0700."""
  prepare(path.parent)
  with checkpoint.owner_only():
    files.replace(path, json.dumps(values).encode())


def _check(folder: pathlib.Path) -> None:
  """Refuses the folder of a group, if it is there and may hold keys of others.

  Here its owner may have opened it to readers, but not to writers: files in it
  are checked when they are read.
  """
  for each in _private(folder):
    if os.path.lexists(each):
      private_files.make_folder(each)


def _private(folder: pathlib.Path) -> list[pathlib.Path]:
  """The folder of a group, after that of all groups if it is another one."""
  above = [folder.parent] if folder.parent.name == FOLDER else []
  return [*above, folder]


def _run(config: TrainingConfig) -> tuple[int, float]:
  """What tells the runs of a group apart."""
  return config.seed, config.epsilon


def _begun(folder: pathlib.Path) -> list[tuple[int, float]]:
  """What `start` said; nothing if it did not, or if that cannot be read."""
  try:
    runs = json.loads((folder / _RUNS).read_text())
    return [(int(seed), float(epsilon)) for seed, epsilon in runs]
  except (OSError, ValueError, TypeError):
    return []
