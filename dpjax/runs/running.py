"""Trains configurations, writes each into its folder, and resumes killed runs.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import pathlib
import sys
from typing import Any

import jax
import numpy as np

from dpjax.privacy import keys as key_lib
from dpjax.report import progress as progress_lib
from dpjax.runs import environment as environments
from dpjax.runs import interrupted
from dpjax.runs import run_sampling
from dpjax.runs import summary as summaries
from dpjax.runs import training
from dpjax.runs import training_methods
from dpjax.runs.configuration import TrainingConfig
from dpjax.runs.settings import known
from dpjax.train import processes
from dpjax.train.checkpoint import Checkpoints
from dpjax.train.placement import Place
from dpjax.train.plan import TrainingPlan

Plans = Sequence[tuple[TrainingConfig, TrainingPlan]]
"""Resolved configurations, each with its plan."""

_NOISE_NAMES = {'gaussian': 'floating-point noise',
                'lattice_gaussian': 'noise on a lattice'}
SEED_WARNING = (
    'warning: noise_seed = {} is for research: anybody who knows or guesses it '
    'can subtract the noise (epsilon_valid = false)')
"""Line for the holder of the data; lacks the seed."""
# Seconds between checkpoints if none is to be written.
_NEVER = sys.float_info.max
_TOO_LARGE = (
    'out of memory: hold the gradients of fewer records at once with a '
    'smaller --microbatch_size (dp_sgd), or compute fewer records at once '
    'with a smaller --max_batch_size')


def run(groups: Sequence[tuple[Sequence[TrainingConfig], pathlib.Path]],
        folders: Mapping[TrainingConfig, pathlib.Path], *,
        data_dir: str | None, checkpoint_seconds: float,
        mesh: jax.sharding.Mesh | None = None, place: Place | None = None
        ) -> dict[TrainingConfig, dict[str, Any]]:
  """Trains the runs that have no summary yet; returns the summaries of all.

  Args:
    groups: pairs of runs to train together and a folder for their checkpoints.
    folders: run -> its output folder.
    data_dir: folder of the data sets; None for the default folder.
    checkpoint_seconds: least seconds between checkpoints; 0 writes none, but
      still resumes from those of a killed run.
    mesh: devices that share each batch, or None.
    place: divides parameters over them, see `loop.fit`.

  Raises:
    ValueError, OSError: in one line, for example if a folder has another run.
    MemoryError: names the flags that reduce the memory needed.
  """
  stored = processes.from_first(lambda: [
      summaries.find(folder, config) for config, folder in folders.items()])
  completed = {config: summary
               for config, summary in zip(folders, stored, strict=True)
               if summary is not None}
  if completed:
    print(f'{len(completed)} of {len(folders)} runs are finished already')
  progress = progress_lib.Progress(len(folders) - len(completed), sys.stderr)
  environment = environments.current(1 if mesh is None else mesh.size)
  for group, folder in groups:
    pending = [config for config in group if config not in completed]
    for batch in processes.from_first(
        lambda: interrupted.batches(folder, group, pending)):
      progress.start_group(sum(config not in completed for config in batch))
      seconds, words = _seconds_and_words(batch, folder, checkpoint_seconds)
      num_before = len(completed)
      try:
        results = _train(batch, folder, progress, data_dir, seconds, words,
                         mesh, place)
        for config, result in zip(batch, results, strict=True):
          if config not in completed:
            summary = summaries.summarize(result, environment)
            if processes.is_first():
              summaries.write(folders[config], summary, result)
            completed[config] = summary
            progress.finish()
      # `failed` removes the key if results are out, so none uses it again.
      except Exception:
        if processes.is_first():
          interrupted.failed(folder, released=len(completed) > num_before)
        raise
      if processes.is_first():
        interrupted.finish(folder)
  progress.close()
  return completed


def _seconds_and_words(batch: Sequence[TrainingConfig], folder: pathlib.Path,
                       checkpoint_seconds: float
                       ) -> tuple[float | None, np.ndarray | None]:
  """Returns the seconds between checkpoints and the words of secret keys.

  The seconds are None for no checkpoints; the words are None for runs with a
  noise_seed. A killed run is resumed with its checkpoints and keys even if no
  new checkpoints are wanted: the two attempts are then one release, not two.
  """
  seconds = checkpoint_seconds or None
  if not checkpoint_seconds and processes.from_first(
      lambda: interrupted.is_begun(folder)):
    seconds = _NEVER
  if seconds is None or batch[0].noise_seed is not None:
    return seconds, None
  return seconds, processes.from_first(
      lambda: interrupted.kept_words(folder, batch))


def _train(batch: Sequence[TrainingConfig], folder: pathlib.Path,
           progress: progress_lib.Progress, data_dir: str | None,
           checkpoint_seconds: float | None, words: np.ndarray | None,
           mesh: jax.sharding.Mesh | None,
           place: Place | None) -> list[training.TrainingResult]:
  """Trains runs together; raises MemoryError if they need too much memory."""
  def say(line: str) -> None:
    # Ends the line of progress, so that the message has a line of its own.
    progress.close()
    print(line, file=sys.stderr)

  def on_progress(done: int, total: int) -> None:
    if checkpoints is not None and processes.is_first():
      interrupted.start(folder, batch)
    progress.fraction(done / total)

  def on_plans(plans: Plans) -> None:
    _announce_all(plans)
    if checkpoints is not None and processes.is_first():
      interrupted.prepare(folder)
      # Kept before any noise is drawn: training again with another key would
      # be a second release.
      if words is not None:
        interrupted.keep_words(folder, batch, words)

  checkpoints = Checkpoints(
      folder=interrupted.steps_folder(folder), say=say,
      every_seconds=checkpoint_seconds) if checkpoint_seconds else None
  with explained_memory():
    return training.train(
        batch, data_dir=data_dir, on_plans=on_plans, on_progress=on_progress,
        mesh=mesh, place=place, checkpoints=checkpoints,
        keys=None if words is None else key_lib.from_words(words))


@contextlib.contextmanager
def explained_memory() -> Iterator[None]:
  """Raises a MemoryError that names flags if JAX runs out of memory."""
  try:
    yield
  except RuntimeError as error:
    # JAX has no exception type for running out of memory.
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    raise MemoryError(_TOO_LARGE) from error


def _announce_all(plans: Plans) -> None:
  """Prints the privacy cost of each run before training, once for all seeds."""
  for config, plan in plans:
    if config.seed == plans[0][0].seed:
      _announce(config, plan)
  config, plan = plans[0]
  if config.noise_seed is not None and plan.noise_multiplier is not None:
    print(SEED_WARNING.format(config.noise_seed), file=sys.stderr)


def _announce(config: TrainingConfig, plan: TrainingPlan) -> None:
  """Prints the guarantee, steps and noise of one run."""
  unit = '' if config.user_column is None else ' users'
  what = (f'{config.method} on {config.dataset}, n = {config.num_examples}'
          f'{unit}, depth {config.depth}')
  if config.num_canaries:
    what += f', {config.num_canaries} canaries ({config.canary_kind})'
  delta = known(config.delta)
  if plan.noise_multiplier is None:
    print(f'{what}: not private (epsilon = inf)')
    return
  if not training_methods.METHODS[config.method].epsilon_valid:
    print(f'{what}: NOT private; its claim of epsilon {config.epsilon:g} does '
          'not hold')
    return
  print(f'{what}: at most ({config.epsilon:g}, {delta:.3g})-DP, '
        f'{config.adjacency}{_unit(config)}; {config.num_steps} steps of '
        f'{run_sampling.batches(plan.sampler)}, joint noise multiplier '
        f'{plan.noise_multiplier:.5g}, {_NOISE_NAMES[config.noise]}'
        f'{run_sampling.correlated_by(config)}')
  if delta >= 1 / config.num_slots:
    print(f'warning: delta = {delta:.3g} is not below 1/n: publishing '
          'one record at random would satisfy it', file=sys.stderr)


def _unit(config: TrainingConfig) -> str:
  """Returns what neighbouring data sets differ by, if it is not a record."""
  if config.user_column is None:
    return ''
  return ' (one user with all their records)'
