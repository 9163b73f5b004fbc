r"""Runs the experiments of a paper and gathers what comes of them in one page.

Everything there is, by a few real settings of each experiment, without a
download, in ten minutes on two cores:
  python -m launch.reproduce --paper=all --quick --output_dir=repro

Thesis 003 with all that needs no GPU, in about three hours on two cores; data
sets are read from --data_dir, and what is not there is left out and said:
  python -m launch.reproduce --paper=003 --data_dir=data --output_dir=repro

What would be run, and what its rows took when they were made:
  python -m launch.reproduce --paper=004 --list

Open DIR/index.html: verdicts on the claims of the papers, figures, tables, and
whether the rows are those that are committed. A folder of DIR for each
experiment has its rows, table, figure and log. The same command goes on where
it was interrupted, and takes seconds when all is done. The exit status is 1 if
an experiment failed.
"""

from collections.abc import Sequence
import pathlib
import shlex
import signal
import sys

from absl import flags

from dpjax import errors as checks
from experiments import registry
from experiments.reproduction import plans
from experiments.reproduction import pool
from experiments.reproduction import running
from experiments.reproduction import sections
from experiments.reproduction import session
from experiments.reproduction import working
from launch import errors
from launch import flags as shared

for _name in ('output_dir', 'data_dir', 'traceback'):
  flags.declare_key_flag(_name)

_PAPER = flags.DEFINE_enum(
    'paper', None, [*registry.PAPERS, plans.ALL], 'The paper; 000 and 003 are '
    'theses, 001 and 004 papers, 002 is a lecture.')
_QUICK = flags.DEFINE_bool(
    'quick', False, 'Run a few settings of each experiment, those tagged '
    '"quick" or else all; toy ones where real ones take minutes.')
_ONLY = flags.DEFINE_list(
    'only', [], 'Run these experiments of the paper only, as name,name.')
_PROCESSES = flags.DEFINE_integer(
    'processes', None, 'Experiments at once; default: one for each core.')
_LIST = flags.DEFINE_bool(
    'list', False, 'Print what would be run and what it costs, and run none.')
_WORKER = flags.DEFINE_bool(
    'worker', False, 'Not for command lines: be one of the processes.')


def _command() -> str:
  """Returns what was asked for, without the paths of a machine."""
  words = ['python', '-m', 'launch.reproduce', f'--paper={_PAPER.value}']
  words += ['--quick'] if _QUICK.value else []
  words += [f'--only={",".join(_ONLY.value)}'] if _ONLY.value else []
  return shlex.join(words)


def _interrupt(signum, frame):
  raise KeyboardInterrupt


def _print(chosen: dict[str, plans.Plan]) -> None:
  for name, plan in chosen.items():
    of = len(plan.experiment.settings)
    toy = 'toy ' if plan.smoke else ''
    print(f'{name} ({", ".join(plan.experiment.papers)}): '
          f'{len(plan.settings)} {toy}settings of {of}; '
          f'about {plan.seconds:.0f} s; all of it: {plan.experiment.cost}')
  print(f'{len(chosen)} experiments, about '
        f'{sum(plan.seconds for plan in chosen.values()) / 60:.0f} minutes '
        'of one process')


def _serve() -> int:
  def do(name: str) -> running.Outcome:
    return running.run(plans.make(name, quick=_QUICK.value),
                       shared.OUTPUT_DIR.value, shared.DATA_DIR.value)
  try:
    working.serve(do)
  except KeyboardInterrupt:
    return errors.INTERRUPTED
  return 0


def _run(chosen: dict[str, plans.Plan]) -> int:
  folder = pathlib.Path(shared.OUTPUT_DIR.value)
  signal.signal(signal.SIGTERM, _interrupt)
  count = min(_PROCESSES.value or pool.num_cores(), len(chosen))
  try:
    outcomes = session.run(chosen, session.Options(
        output_dir=folder, num_workers=count, command=_command(),
        quick=_QUICK.value,
        # The same program with the same words; of a flag the last one counts.
        worker=[sys.executable, *sys.orig_argv[1:], '--worker']))
  except KeyboardInterrupt:
    print('interrupted; no finished row is lost. The same command goes on:\n'
          f'  python -m launch.reproduce {shlex.join(sys.argv[1:])}',
          file=sys.stderr)
    return errors.INTERRUPTED
  for line in sections.summary(outcomes):
    print(line)
  print(f'open {folder / session.PAGE}')
  return 1 if any(outcome.error for outcome in outcomes.values()) else 0


def main(argv: Sequence[str]) -> int:
  """Runs or lists what the flags ask for; returns the exit status."""
  errors.check_no_arguments(argv)
  if not _PAPER.value:
    raise ValueError('--paper must be one of '
                     f'{", ".join([*registry.PAPERS, plans.ALL])}')
  if not (shared.OUTPUT_DIR.value or _LIST.value):
    raise ValueError('--output_dir must be given')
  if _WORKER.value:
    return _serve()
  if _PROCESSES.value is not None:
    checks.check_at_least('processes', _PROCESSES.value, 1)
  chosen = {name: plans.make(name, quick=_QUICK.value)
            for name in plans.names(_PAPER.value, _ONLY.value)}
  if _LIST.value:
    _print(chosen)
    return 0
  if not chosen:
    raise ValueError(f'no experiment is of {_PAPER.value}')
  return _run(chosen)


if __name__ == '__main__':
  errors.run_main(main)
