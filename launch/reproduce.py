r"""Runs the experiments of a paper and gathers what comes of them in one page.

Everything there is, by a few real settings of each experiment, without a
download, in ten minutes on two cores:
  python -m launch.reproduce --paper=all --quick --output_dir=repro

Thesis 003 with all that needs no GPU, in about three hours on two cores; data
sets are read from --data_dir, and what is not there is left out and said:
  python -m launch.reproduce --paper=003 --data_dir=data --output_dir=repro

A part of the quick settings, or three settings of each experiment drawn by a
seed, compared with the committed rows; the exit status is 1 if a row differs:
  python -m launch.reproduce --paper=all --quick --share=1/4 --check ...
  python -m launch.reproduce --paper=all --sample=3 --seed=7 --check ...

What would be run, and what its rows took when they were made:
  python -m launch.reproduce --paper=004 --list

Open DIR/index.html: verdicts on the claims of the papers, figures, tables, and
whether the rows are those that are committed. A folder of DIR for each
experiment has its rows, table, figure and log. The same command goes on where
it was interrupted, and takes seconds when all is done. The exit status is 1 if
an experiment failed, with --check also if a row is not the committed one.
"""

import argparse
from collections.abc import Sequence
import pathlib
import shlex
import signal
import sys

from absl.flags import argparse_flags

from dpjax import errors as checks
from experiments import environment
from experiments import registry
from experiments.reproduction import comparison
from experiments.reproduction import plans
from experiments.reproduction import pool
from experiments.reproduction import running
from experiments.reproduction import sections
from experiments.reproduction import session
from experiments.reproduction import working
from launch import errors
from launch import rotation

_PAPERS = (*registry.PAPERS, plans.ALL)


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """The flags of a command line."""
  parser = argparse_flags.ArgumentParser(
      description=__doc__, allow_abbrev=False, conflict_handler='resolve',
      formatter_class=argparse.RawDescriptionHelpFormatter)
  for name, text in (
      ('paper', f'One of {", ".join(_PAPERS)}; 000 and 003 are theses, 001 and '
       '004 papers, 002 is a lecture.'),
      ('only', 'Run these experiments of the paper only, as name,name.'),
      ('output_dir', 'Folder of the page; made when it is not there.'),
      ('data_dir', 'Folder of the data sets, one folder for each; '
       'DPJAX_DATA_DIR when not given.'),
      ('share', 'Run one of N shares of about equal length: share I of N, as '
       'I/N from 1/N to N/N, or the one that the commit picks, as '
       f'{rotation.ROTATING}/N.'),
      ('sample', 'Run so many settings of each experiment that have committed '
       'rows, drawn at random, each trained within a minute.'),
      ('seed', 'Of --sample; 0 when not given.'),
      ('processes', 'Experiments at once; one for each core when not given.')):
    parser.add_argument(f'--{name}', help=text)
  parser.add_argument('--quick', action='store_true', help='Run a few settings '
                      'of each experiment, those tagged "quick" or else all; '
                      'toy ones where real ones take minutes.')
  parser.add_argument('--check', action='store_true', help='Fail if a row '
                      'differs from the committed one by more than '
                      f'{comparison.TOLERANCE:g}, relative; of training by '
                      f'more than {comparison.TRAINED:g} or, an accuracy, by '
                      'more than a held-out record. Leaves toy settings out, '
                      'which have no committed rows.')
  parser.add_argument('--list', action='store_true', help='Print what would be '
                      'run and what it costs, and run none.')
  # What the processes are told that do the work.
  parser.add_argument('--worker', action='store_true', help=argparse.SUPPRESS)
  return parser.parse_args(list(argv[1:]))


def _command(args: argparse.Namespace) -> str:
  """Returns what was asked for, without the paths of a machine."""
  words = ['python', '-m', 'launch.reproduce', f'--paper={args.paper}']
  words += ['--quick'] if args.quick else []
  words += [f'--{name}={getattr(args, name)}'
            for name in ('share', 'sample', 'seed')
            if getattr(args, name) is not None]
  words += [f'--only={args.only}'] if args.only else []
  words += ['--check'] if args.check else []
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


def _serve(args: argparse.Namespace) -> int:
  def do(name: str) -> running.Outcome:
    return running.run(
        plans.make(name, quick=args.quick, sample=_sample(args)),
        args.output_dir, args.data_dir)
  try:
    working.serve(do)
  except KeyboardInterrupt:
    return errors.INTERRUPTED
  return 0


def _integer(args: argparse.Namespace, name: str, least: int) -> int | None:
  text = getattr(args, name)
  if text is None:
    return None
  if not text.isdecimal():
    raise ValueError(f'{name} must be an integer >= {least}, got {text}')
  return checks.check_at_least(name, int(text), least)


def _sample(args: argparse.Namespace) -> plans.Sample | None:
  size, seed = _integer(args, 'sample', 1), _integer(args, 'seed', 0)
  if size is None and seed is not None:
    raise ValueError(f'seed {seed} draws a sample; --sample must say how large')
  if size is not None and args.quick:
    raise ValueError('sample draws among all settings, quick takes those of '
                     'its tag; give one of the two')
  return None if size is None else plans.Sample(size, seed or 0)


def _run(args: argparse.Namespace, chosen: dict[str, plans.Plan]) -> int:
  signal.signal(signal.SIGTERM, _interrupt)
  try:
    outcomes = session.run(chosen, session.Options(
        output_dir=args.output_dir, command=_command(args), quick=args.quick,
        num_workers=min(_integer(args, 'processes', 1) or pool.num_cores(),
                        len(chosen)),
        # The same program with the same words.
        worker=[sys.executable, *sys.orig_argv[1:], '--worker']))
  except KeyboardInterrupt:
    print('interrupted; no finished row is lost. The same command goes on:\n'
          f'  python -m launch.reproduce {shlex.join(sys.argv[1:])}',
          file=sys.stderr)
    return errors.INTERRUPTED
  for line in sections.summary(outcomes):
    print(line)
  print(f'open {pathlib.Path(args.output_dir) / session.PAGE}')
  failed = [name for name, outcome in outcomes.items()
            if outcome.error or (args.check and outcome.different)]
  if failed:
    print('error: these failed, or have other rows than the committed ones: '
          f'{", ".join(failed)}', file=sys.stderr)
  return 1 if failed else 0


def main(args: argparse.Namespace) -> int:
  """Runs or lists what the flags ask for; returns the exit status."""
  if not args.paper:
    raise ValueError(f'--paper must be one of {", ".join(_PAPERS)}')
  if not (args.output_dir or args.list):
    raise ValueError('--output_dir must be given')
  if args.worker:
    return _serve(args)
  _integer(args, 'processes', 1)
  sample = _sample(args)
  chosen = {name: plans.make(name, quick=args.quick, sample=sample)
            for name in plans.names(
                args.paper, args.only.split(',') if args.only else ())}
  chosen = {name: plan for name, plan in chosen.items()
            if plan.settings and not (args.check and plan.smoke)}
  if args.share:
    share = rotation.parse(args.share, rotation.of_checkout(environment.ROOT))
    print(f'share {share} of the experiments', file=sys.stderr)
    chosen = plans.share(chosen, share.number, share.count)
  if args.list:
    _print(chosen)
    return 0
  if not chosen:
    raise ValueError(f'no experiment is of {args.paper}')
  return _run(args, chosen)


if __name__ == '__main__':
  errors.run_main(main, parse)
