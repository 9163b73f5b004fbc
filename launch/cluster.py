"""Runs sweeps as cluster jobs through submitit, and the flags for it."""

from collections.abc import Sequence
import importlib.util
import pathlib
import shlex
import shutil
import subprocess
import sys
from typing import Any, NamedTuple, TextIO

from absl import flags

from dpjax import errors
from experiments import engine
from experiments import registry
from experiments import selection
from experiments import shards

_SUBMITIT = flags.DEFINE_enum(
    'submitit', 'none', ['none', 'local', 'slurm'], 'Run the sweep as jobs: '
    'processes on this machine, or jobs of the Slurm cluster whose login node '
    'this is. Needs the extra "cluster".')
_NUM_SHARDS = flags.DEFINE_integer(
    'num_shards', 2, 'Number of jobs; each runs a part of the settings.')
_WAIT = flags.DEFINE_bool(
    'wait', True, 'Wait for the jobs and merge their rows. With --nowait, '
    'repeat the command when they are done to merge them.')
_PARTITION = flags.DEFINE_string(
    'partition', None, 'Slurm partition of the jobs.')
_ACCOUNT = flags.DEFINE_string('account', None, 'Slurm account of the jobs.')
_TIME = flags.DEFINE_integer(
    'time', 24 * 60, 'Time limit of a job in minutes. Rows of settings that '
    'are finished by then are kept.')
_GPUS = flags.DEFINE_integer('gpus', 0, 'GPUs of each job.')
_CPUS = flags.DEFINE_integer('cpus', 1, 'CPU cores of each job.')
_MEMORY = flags.DEFINE_integer('memory', None, 'Memory of each job, in GB.')

_LOG_LINES = 5  # Number of lines of a failed job's stderr that are printed.


class Job(NamedTuple):
  """A shard, 'i/n', and the submitit job that runs it."""
  shard: str
  job: Any


def is_asked_for() -> bool:
  """Returns whether the flags ask for jobs."""
  return _SUBMITIT.value != 'none'


def _executor(name: str, folder: pathlib.Path) -> Any:
  """Returns a submitit executor with the resources of the flags."""
  import submitit
  executor = submitit.AutoExecutor(folder, cluster=_SUBMITIT.value)
  asked = dict(
      name=f'dpjax_{name}', timeout_min=_TIME.value, gpus_per_node=_GPUS.value,
      cpus_per_task=_CPUS.value, mem_gb=_MEMORY.value,
      slurm_partition=_PARTITION.value, slurm_account=_ACCOUNT.value)
  executor.update_parameters(**{key: value for key, value in asked.items()
                                if value is not None})
  return executor


def _check(shard: str | None) -> None:
  """Raises for flags that contradict each other or cannot be satisfied."""
  if shard:
    raise ValueError('--shard is for jobs started by hand; --submitit makes '
                     '--num_shards of them: give one of the two')
  if not importlib.util.find_spec('submitit'):
    raise ImportError('submitit is not installed; '
                      'pip install "dpjax[cluster]"')
  if _SUBMITIT.value == 'slurm' and not shutil.which('srun'):
    raise ValueError('--submitit=slurm is for the login node of a Slurm '
                     'cluster; srun was not found here')
  errors.check_at_least('num_shards', _NUM_SHARDS.value, 1)
  errors.check_at_least('time', _TIME.value, 1)
  errors.check_at_least('gpus', _GPUS.value, 0)
  errors.check_at_least('cpus', _CPUS.value, 1)
  if _MEMORY.value is not None:
    errors.check_at_least('memory', _MEMORY.value, 1)


def _submit(experiment: registry.Experiment,
            settings: Sequence[selection.Setting], options: engine.Options,
            out: TextIO) -> list[Job]:
  """Submits every shard that has settings without rows."""
  pending = engine.pending(experiment, settings, options, out)
  if not pending:
    return []
  folder = shards.new_submission(options)
  executor = _executor(experiment.name, folder / 'logs')
  jobs = []
  for index in range(1, _NUM_SHARDS.value + 1):
    text = f'{index}/{_NUM_SHARDS.value}'
    part = selection.shard(settings, experiment.batched, text)
    if not set(part) & set(pending):
      continue
    mine = shards.make(folder, text, options)
    # The same command line with further flags: the last value of a flag counts.
    jobs.append(Job(text, executor.submit(subprocess.run, [
        sys.executable, *sys.orig_argv[1:], '--submitit=none',
        f'--shard={text}', f'--output_dir={mine.output_dir}'])))
    print(f'shard {text} is job {jobs[-1].job.job_id}', file=out)
  return jobs


def _failure(job: Any) -> str | None:
  """Waits for a job; returns why it failed, or None."""
  if job.exception() is not None:
    return 'ended before it was done'
  status = job.result().returncode
  return f'exit status {status}' if status else None


def run(experiment: registry.Experiment,
        settings: Sequence[selection.Setting], options: engine.Options,
        shard: str | None, out: TextIO) -> int | None:
  """Runs the settings without rows as jobs.

  Rows of earlier jobs are merged first, so repeating the command resumes the
  sweep, however those jobs ended.

  Args:
    experiment: the experiment.
    settings: some of its settings.
    options: options of the sweep.
    shard: value of --shard, which must be empty.
    out: stream for messages about jobs.

  Returns:
    The exit status: 1 if a job failed; None if jobs are still running.
  """
  _check(shard)
  shards.collect(options)
  jobs = _submit(experiment, settings, options, out)
  if jobs and not _WAIT.value:
    return None
  failed = 0
  for text, job in jobs:
    reason = _failure(job)
    print(f'shard {text} {"failed" if reason else "is done"}', end='', file=out)
    if reason:
      failed += 1
      lines = (job.stderr() or '').strip().splitlines()[-_LOG_LINES:]
      print(f' (job {job.job_id}, {reason}); the end of '
            f'{shlex.quote(str(job.paths.stderr))}:', *lines, sep='\n  ',
            end='', file=out)
    print(file=out)
  shards.collect(options)
  return 1 if failed else 0
