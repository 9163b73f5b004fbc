r"""Runs the experiments of a paper and shows the results in one web page.

A few real settings of every experiment, without downloads, in ten minutes on
two cores:
  python -m launch.reproduce --paper=all --quick --output_dir=repro

Barczewski (2025), all that needs no GPU, in about three hours on
two cores. Data sets are read from --data_dir; missing ones are skipped and
reported:
  python -m launch.reproduce --paper=barczewski_2025 --data_dir=data \
    --output_dir=repro

A part of the quick settings, or three random settings of each experiment,
compared with the committed rows; the exit status is 1 if a row differs:
  python -m launch.reproduce --paper=all --quick --share=1/4 --check ...
  python -m launch.reproduce --paper=all --sample=3 --seed=7 --check ...

What would run, and how long its rows took when they were made:
  python -m launch.reproduce --paper=barber_duchi_2014 --list

Open DIR/index.html: it has verdicts on the claims of the papers, figures,
tables, and a comparison with the committed rows. DIR has a folder for each
experiment with its rows, table, figure and log. Repeating the command resumes
an interrupted run, and takes seconds after a finished one. The exit status is 1
if an experiment failed, with --check also if a row differs from the committed
one.
"""

import argparse
from collections.abc import Sequence
import pathlib
import shlex
import signal
import sys
import types

from absl.flags import argparse_flags

from dpjax import errors as checks
from dpjax.cli import errors
from dpjax.runs import environment
from experiments import registry
from experiments.catalogue import items
from experiments.reproduction import comparison
from experiments.reproduction import plans
from experiments.reproduction import pool
from experiments.reproduction import running
from experiments.reproduction import sections
from experiments.reproduction import session
from experiments.reproduction import working
from launch import rotation


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """Parses a command line."""
  parser = argparse_flags.ArgumentParser(
      description=__doc__, allow_abbrev=False, conflict_handler='resolve',
      formatter_class=argparse.RawDescriptionHelpFormatter)
  for name, text in (
      ('paper', f'One of {", ".join((*items.KEYS, plans.ALL))}; or a number '
       'from 000 to 004, in this order.'),
      ('only', 'Run these experiments of the paper only, as name,name.'),
      ('output_dir', 'Folder of the page; created if missing.'),
      ('data_dir', 'Folder with one folder for each data set. Default: the '
       'environment variable DPJAX_DATA_DIR.'),
      ('share', 'Run one of N parts of about equal length: part I of N, as '
       'I/N from 1/N to N/N, or the one that the commit selects, as '
       f'{rotation.ROTATING}/N.'),
      ('sample', 'Run so many random settings of each experiment, out of those '
       'with committed rows that train within a minute.'),
      ('seed', 'Seed of --sample. Default: 0.'),
      ('processes', 'Experiments to run at once. Default: one per core.')):
    parser.add_argument(f'--{name}', help=text)
  parser.add_argument('--quick', action='store_true', help='Run a few settings '
                      'of each experiment, those tagged "quick" or else all; '
                      'toy settings if real ones take minutes.')
  parser.add_argument('--check', action='store_true', help='Fail if a row '
                      'differs from the committed one by a relative error '
                      f'above {comparison.TOLERANCE:g}; for training, above '
                      f'{comparison.TRAINED:g} or, for an accuracy, by '
                      'more than one held-out record. Skips toy settings, '
                      'which have no committed rows.')
  parser.add_argument('--list', action='store_true', help='Print what would '
                      'run and how long it takes, and run nothing.')
  # Set for the processes that do the work.
  parser.add_argument('--worker', action='store_true', help=argparse.SUPPRESS)
  return parser.parse_args(list(argv[1:]))


def _command(args: argparse.Namespace) -> str:
  """Returns the command that makes these rows, without machine paths."""
  words = ['python', '-m', 'launch.reproduce', f'--paper={args.paper}']
  words += ['--quick'] if args.quick else []
  words += [f'--{name}={getattr(args, name)}'
            for name in ('share', 'sample', 'seed')
            if getattr(args, name) is not None]
  words += [f'--only={args.only}'] if args.only else []
  words += ['--check'] if args.check else []
  return shlex.join(words)


def _interrupt(signum: int, frame: types.FrameType | None) -> None:
  """Turns a signal into an interrupt."""
  raise KeyboardInterrupt


def _print(chosen: dict[str, plans.Plan]) -> None:
  """Prints what would run and how long it takes."""
  for name, plan in chosen.items():
    of = len(plan.experiment.settings)
    toy = 'toy ' if plan.smoke else ''
    papers = ', '.join(registry.PAPERS[each]
                       for each in plan.experiment.papers)
    print(f'{name}, {papers}: '
          f'{len(plan.settings)} {toy}settings of {of}; '
          f'about {plan.seconds:.0f} s; all of it: {plan.experiment.cost}')
  print(f'{len(chosen)} experiments, about '
        f'{sum(plan.seconds for plan in chosen.values()) / 60:.0f} minutes '
        'of one process')


def _serve(args: argparse.Namespace) -> int:
  """Runs experiments for the main process until it is done."""
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
  """Returns an integer flag, at least `least`; None if not given."""
  text = getattr(args, name)
  if text is None:
    return None
  if not text.isdecimal():
    raise ValueError(f'{name} must be an integer >= {least}, got {text}')
  return checks.check_at_least(name, int(text), least)


def _sample(args: argparse.Namespace) -> plans.Sample | None:
  """Returns the size and seed of the sample; None without --sample."""
  size, seed = _integer(args, 'sample', 1), _integer(args, 'seed', 0)
  if size is None and seed is not None:
    raise ValueError(f'seed {seed} draws a sample; --sample must say how large')
  if size is not None and args.quick:
    raise ValueError('sample draws among all settings, quick takes those of '
                     'its tag; give one of the two')
  return None if size is None else plans.Sample(size, seed or 0)


def _run(args: argparse.Namespace, chosen: dict[str, plans.Plan]) -> int:
  """Runs experiments, prints a summary and returns the exit status."""
  signal.signal(signal.SIGTERM, _interrupt)
  try:
    outcomes = session.run(chosen, session.Options(
        output_dir=args.output_dir, command=_command(args), quick=args.quick,
        num_workers=min(_integer(args, 'processes', 1) or pool.num_cores(),
                        len(chosen)),
        # Workers run the same command line with one more flag.
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
  """Runs or lists the experiments of the flags; returns the exit status."""
  if not args.paper:
    raise ValueError('--paper must be one of '
                     f'{", ".join((*items.KEYS, plans.ALL))}')
  args.paper = items.KEYS.get(args.paper, args.paper)
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
    chosen = plans.share(chosen, share.number, share.total)
  if args.list:
    _print(chosen)
    return 0
  if not chosen:
    raise ValueError(f'no experiment to run for --paper={args.paper}')
  return _run(args, chosen)


if __name__ == '__main__':
  errors.run_main(main, parse)
