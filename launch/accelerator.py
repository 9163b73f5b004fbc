r"""Runs what needs an accelerator, the most important first, in short leases.

What the queue has, what is done and how long the rest takes; on any machine:
  python -m launch.accelerator --dry_run

Forty minutes of it:
  python -m launch.accelerator --minutes=40 --output_dir=results/accelerator

A Slurm job of it; a Colab cell; a command that is ended after ten minutes on a
machine that gives back the folder $OUT:
  sbatch --gpus=1 --time=42 --wrap 'python -m launch.accelerator --minutes=40'
  !python -m launch.accelerator --minutes=30 --data_dir=/content/data
  python -m launch.accelerator --minutes=9 --output_dir=$OUT

Repeat the command in the next lease, on this machine or another one. Settings
with rows in experiments/ or in --output_dir are not run again. A unit that
cannot end in the minutes left is not started, unless it has checkpoints; these
are in --state_dir, which must be brought along. The command can be killed at
any time. New rows are in --output_dir/experiments; copy that folder over the
checkout. LEFT.txt says what ran, and what is left. docs/accelerators.md says
more, also how to bring the state along.
"""

from collections.abc import Sequence
import pathlib
import subprocess
import sys
import time

from absl import flags

from dpjax import errors as checks
from dpjax.cli import errors
from dpjax.cli import flags as shared
from dpjax.runs import environment
from experiments.accelerator import jobs
from experiments.accelerator import lease
from experiments.accelerator import queue
from launch import flags as experiment_flags
from launch import signals

for _name in ('output_dir', 'data_dir', 'state_dir', 'traceback'):
  flags.declare_key_flag(_name)

_MINUTES = flags.DEFINE_float(
    'minutes', 40.0, 'Minutes of the lease from now on. The last of them is '
    'reserved for writing out.')
_JOBS = flags.DEFINE_list(
    'jobs', [], 'Names of jobs to run, see --dry_run. Default: all.')
_DRY_RUN = flags.DEFINE_bool(
    'dry_run', False, 'Print the queue and run nothing.')
_ALLOW_CPU = flags.DEFINE_bool(
    'allow_cpu', False, 'Run tiny settings on any machine, to try this '
    'program; their rows are in --output_dir/smoke.')
_OUTPUT_DIR = 'results/accelerator'
# JAX runs in processes of its own: here it would take memory from the units.
_DEVICE = ('import jax; print(jax.default_backend(), '
           'jax.devices()[0].device_kind)')


def _accelerator() -> str | None:
  """Returns the kind of accelerator of this machine, or None."""
  done = subprocess.run([sys.executable, '-c', _DEVICE], text=True, check=False,
                        capture_output=True, cwd=environment.ROOT)
  backend, _, kind = (done.stdout.strip().splitlines() or [''])[-1].partition(
      ' ')
  return None if done.returncode or backend in ('', 'cpu') else kind


def _places() -> queue.Places:
  """Returns the folders of the flags."""
  output = pathlib.Path(shared.OUTPUT_DIR.value or _OUTPUT_DIR)
  state = pathlib.Path(experiment_flags.STATE_DIR.value or output / 'state')
  data_dir = shared.DATA_DIR.value
  return queue.Places(
      environment.ROOT, output, state,
      str(pathlib.Path(data_dir).absolute()) if data_dir else None)


def main(argv: Sequence[str]) -> int:
  """Runs or prints the queue; returns 1 if a unit ended in a fault."""
  started = time.monotonic()
  errors.check_no_arguments(argv)
  checks.check_positive('minutes', _MINUTES.value)
  chosen = jobs.choose(jobs.SMOKE if _ALLOW_CPU.value else jobs.JOBS,
                       _JOBS.value)
  places, seconds = _places(), 60 * _MINUTES.value
  if _DRY_RUN.value:
    _print(chosen, places, seconds)
    return 0
  if seconds <= lease.RESERVE:
    raise ValueError(f'--minutes must be above {lease.RESERVE / 60:g}, which '
                     f'is reserved for writing out; got {_MINUTES.value:g}')
  if not _ALLOW_CPU.value and _accelerator() is None:
    raise ValueError('JAX finds no accelerator on this machine: --dry_run '
                     'prints the queue, --allow_cpu runs tiny settings')
  errors.check_folder(str(places.output))
  places.output.mkdir(parents=True, exist_ok=True)
  with lease.locked(places.state) as lock:
    lease.close_to_others(places.state)
    try:
      with signals.interrupt_on_sigterm():
        ran = lease.run(chosen, places, lock=lock, say=_say,
                        seconds=seconds - (time.monotonic() - started))
    except KeyboardInterrupt:
      print('interrupted; the same command goes on', file=sys.stderr)
      return errors.INTERRUPTED
  print((places.output / lease.REPORT).read_text(), end='')
  return int(any(each.is_fault for each in ran))


def _say(line: str) -> None:
  """Prints a line at once."""
  print(line, flush=True)


def _print(chosen: Sequence[jobs.Job], places: queue.Places,
           seconds: float) -> None:
  """Prints the queue, and what a lease would begin with."""
  entries = queue.entries(chosen, places, queue.Journal(places.state))
  print(queue.table(entries, places))
  first = queue.choose(entries, seconds - lease.RESERVE)
  print(f'A lease of {seconds / 60:g} minutes '
        + (f'would begin with {first.unit.name}.' if first else
           'is too short for all that is left.'))
  for line in dict.fromkeys(
      line for job in chosen for line in jobs.units(job)[1]):
    print(line)


if __name__ == '__main__':
  errors.run_main(main)
