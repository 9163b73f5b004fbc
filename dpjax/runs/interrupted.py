"""Resuming killed runs: which runs were trained together, and saved state.

The floating-point results of a run depend on how many runs are trained with it.
So a group that was started is finished as the same group, even if some of its
runs have summaries or more runs are requested since. It resumes with the same
secret keys. They are kept beside the checkpoints, readable by their owner only,
until the group is finished or has failed without a checkpoint. A folder or file
that other users could have written is refused: a planted key reveals the noise.
"""

from collections.abc import Sequence
import json
import os
import pathlib
import shutil
from typing import Any

import numpy as np

from dpjax import private_files
from dpjax.privacy import keys
from dpjax.report import files
from dpjax.runs.configuration import TrainingConfig
from dpjax.train import checkpoint

FOLDER = 'checkpoints'
"""Name in the output folder; has a subfolder per group if there are several."""

BATCHED = ('seed', 'epsilon')
"""Fields in which runs of one group, trained together, may differ."""

# A group's folder holds its runs, their secret keys and checkpoints.
_RUNS = 'runs.json'
_KEYS = 'keys.json'
_STEPS = 'steps'


def steps_folder(folder: pathlib.Path) -> pathlib.Path:
  """Returns the folder of a group's checkpoints."""
  return folder / _STEPS


def prepare(folder: pathlib.Path) -> None:
  """Creates the folder of a group, and its parent, for their owner only.

  Raises:
    PermissionError: if users other than the owner could have written to it.
  """
  for each in _private(folder):
    private_files.make_folder(each)


def start(folder: pathlib.Path, group: Sequence[TrainingConfig]) -> None:
  """Records which runs are trained together, before any of them has results."""
  runs = [_run(config) for config in group]
  # Most reports of progress bring nothing new to write.
  if runs != _recorded_runs(folder):
    _write(folder / _RUNS, runs)


def kept_words(folder: pathlib.Path,
               batch: Sequence[TrainingConfig]) -> np.ndarray:
  """Returns the words of the runs' secret keys, kept ones where there are any.

  Args:
    folder: folder of the group.
    batch: the L runs that are trained together.

  Returns:
    [L, 8] uint32 words, one row per run.

  Raises:
    PermissionError: if other users could have written the kept file.
  """
  _check(folder)
  try:
    stored = {(int(seed), float(epsilon)): bytes.fromhex(text)
              for seed, epsilon, text in json.loads(
                  private_files.read(folder / _KEYS))}
  # A PermissionError is not caught: somebody may have planted a key.
  except (FileNotFoundError, ValueError, TypeError):
    stored = {}
  # Runs without a complete key on disk keep these new words.
  words = keys.system_words(len(batch))
  for run, config in enumerate(batch):
    key_bytes = stored.get(_run(config), b'')
    if len(key_bytes) == words[run].nbytes:
      # Words are little-endian on disk, whatever the machine.
      words[run] = np.frombuffer(key_bytes, '<u4')
  return words


def keep_words(folder: pathlib.Path, batch: Sequence[TrainingConfig],
               words: np.ndarray) -> None:
  """Saves the key words for `kept_words`; called before the first step."""
  _write(folder / _KEYS, [
      [*_run(config), row.astype('<u4').tobytes().hex()]
      for config, row in zip(batch, words, strict=True)])


def finish(folder: pathlib.Path) -> None:
  """Removes checkpoints, then the files of keys and runs, then the folders.

  The files that describe the checkpoints are removed last, so that a kill in
  between leaves nothing that cannot be resumed or removed.
  """
  _check(folder)
  if not folder.exists():
    return
  if steps_folder(folder).exists():
    shutil.rmtree(steps_folder(folder))
  # Also temporary files that a kill left behind.
  for name in (_KEYS, _RUNS):
    for path in (*folder.glob(f'.{name}.*'), *folder.glob(name)):
      private_files.remove(path)
  if not any(folder.iterdir()):
    folder.rmdir()
  if folder.parent.name == FOLDER and not any(folder.parent.iterdir()):
    folder.parent.rmdir()


def failed(folder: pathlib.Path, *, released: bool) -> None:
  """Removes the keys and checkpoints of a failed group, unless it can resume.

  They are kept only if the same command can resume from a checkpoint. The key
  of a released run is never kept, though the other runs are then trained again.

  Args:
    folder: folder of the group.
    released: whether results of one of the runs have just been written.
  """
  if released or not checkpoint.saved_steps(steps_folder(folder)):
    finish(folder)


def is_begun(folder: pathlib.Path) -> bool:
  """Returns whether a killed run left keys, checkpoints or a list of runs."""
  return any(path.exists() for path in (
      folder / _KEYS, folder / _RUNS, steps_folder(folder)))


def batches(folder: pathlib.Path, group: Sequence[TrainingConfig],
            pending: Sequence[TrainingConfig]) -> list[list[TrainingConfig]]:
  """Splits the pending runs into batches to train; a killed batch comes first.

  Args:
    folder: folder of the group.
    group: runs that differ in batched fields only.
    pending: the runs of the group without results.

  Returns:
    At most two lists of runs: the batch to resume, and all others.

  Raises:
    ValueError: if a checkpoint belongs to a run that is not in the group.
    PermissionError: if other users could have written to the folder.
  """
  _check(folder)
  requested = {_run(config): config for config in group}
  recorded = _recorded_runs(folder)
  missing = [run for run in recorded if run not in requested]
  if missing and checkpoint.saved_steps(steps_folder(folder)):
    raise ValueError(
        f'{folder} holds the checkpoint of seed = {missing[0][0]}, epsilon = '
        f'{missing[0][1]:g}, which is not requested now; request it too, '
        'use another --output_dir, or remove the folder')
  # A killed batch is resumed whole, also runs with results, since its size
  # affects the floating-point results. If a run of it is not requested now, it
  # is forgotten; there is no checkpoint then.
  first = [] if missing else [requested[run] for run in recorded]
  if not pending or (first and not set(first) & set(pending)):
    # Also removes keys that a kill left before `start` recorded their runs.
    finish(folder)
    first = []
  rest = [config for config in pending if config not in first]
  return [batch for batch in (first, rest) if batch]


def _write(path: pathlib.Path, values: list[Any]) -> None:
  """Writes a JSON file of mode 0600 in a folder of mode 0700."""
  # The folder is closed to others before there is a secret in it.
  prepare(path.parent)
  with checkpoint.owner_only():
    files.replace(path, json.dumps(values).encode())


def _check(folder: pathlib.Path) -> None:
  """Raises PermissionError if other users could have put keys in the folder.

  A folder that others may read but not write is accepted: the files in it are
  checked when they are read.
  """
  for each in _private(folder):
    if os.path.lexists(each):
      private_files.make_folder(each)


def _private(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns a group's folder, preceded by the folder of all groups if any."""
  parents = [folder.parent] if folder.parent.name == FOLDER else []
  return [*parents, folder]


def _run(config: TrainingConfig) -> tuple[int, float]:
  """Returns (seed, epsilon), which identify a run within its group."""
  return config.seed, config.epsilon


def _recorded_runs(folder: pathlib.Path) -> list[tuple[int, float]]:
  """Returns the runs that `start` recorded; [] if none or unreadable."""
  try:
    runs = json.loads((folder / _RUNS).read_text())
    return [(int(seed), float(epsilon)) for seed, epsilon in runs]
  except (OSError, ValueError, TypeError):
    return []
