"""Runs that were killed: which were trained together, and what was saved.

The bits of a run depend on how many it was trained with, so a group that was
begun is finished as it was, also where the kill fell between the summaries of
its runs or where more runs are asked for by then.
"""

from collections.abc import Sequence
import json
import pathlib
import shutil

from dpjax.report import files
from dpjax.train import checkpoint
from experiments.configuration import TrainingConfig

FOLDER = 'checkpoints'
"""In the output folder; holds one folder for each group if there are more."""

BATCHED = ('seed', 'epsilon')
"""Fields in which runs that are trained together may differ."""

_RUNS = 'runs.json'
_STEPS = 'steps'


def steps_folder(folder: pathlib.Path) -> pathlib.Path:
  """Where a group keeps its checkpoints."""
  return folder / _STEPS


def start(folder: pathlib.Path, group: Sequence[TrainingConfig]) -> None:
  """Says which runs are trained together, before any of them has results."""
  runs = [_run(config) for config in group]
  if runs != _begun(folder):
    folder.mkdir(parents=True, exist_ok=True)
    files.replace(folder / _RUNS, json.dumps(runs).encode())


def finish(folder: pathlib.Path) -> None:
  """Removes the checkpoints; what tells of them comes last."""
  if not folder.exists():
    return
  if steps_folder(folder).exists():
    shutil.rmtree(steps_folder(folder))
  # And drafts of it that a kill has left.
  for path in (*folder.glob(f'.{_RUNS}.*'), folder / _RUNS):
    path.unlink(missing_ok=True)
  if not any(folder.iterdir()):
    folder.rmdir()
  if folder.parent.name == FOLDER and not any(folder.parent.iterdir()):
    folder.parent.rmdir()


def batches(folder: pathlib.Path, group: Sequence[TrainingConfig],
            pending: Sequence[TrainingConfig]) -> list[list[TrainingConfig]]:
  """Pending runs as they are to be trained: what was begun comes first.

  Args:
    folder: of the group's checkpoints.
    group: runs that differ in batched fields only.
    pending: those of them that have no results.

  Raises:
    ValueError: if checkpoints are of runs that are not in the group.
  """
  asked = {_run(config): config for config in group}
  begun = _begun(folder)
  missing = [run for run in begun if run not in asked]
  if missing and checkpoint.saved_steps(steps_folder(folder)):
    raise ValueError(
        f'{folder} holds the checkpoint of seed = {missing[0][0]}, epsilon = '
        f'{missing[0][1]:g}, which is not asked for now; ask for it too, use '
        'another --output_dir, or remove the folder')
  first = [] if missing else [asked[run] for run in begun]
  if first and not set(first) & set(pending):
    finish(folder)
    first = []
  rest = [config for config in pending if config not in first]
  return [batch for batch in (first, rest) if batch]


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
