r"""Measures steps, memory, compiling and draws, beside the peers.

The step of every method on every network, an hour or two on two cores; the
same command again goes on where it was interrupted, and once all is there it
only writes table.md and figure.svg anew:
  python -m launch.benchmark --suite=step \
    --output_dir=experiments/benchmarks/results/step

One network and a few methods, to try something out:
  python -m launch.benchmark --suite=step --models=mlp --batch_sizes=256 \
    --methods=ours,vmap,opacus_ghost --output_dir=results/try

Whether it works at all, in a minute, and whether all methods compute the same:
  python -m launch.benchmark --suite=step --smoke
  python -m launch.benchmark --check
  python -m launch.benchmark --suite=norms --check
  python -m launch.benchmark --suite=quantiles --check
  python -m launch.benchmark --suite=curves --check
  python -m launch.benchmark --suite=densities --check
  python -m launch.benchmark --suite=parametric --check
  python -m launch.benchmark --suite=butterfly --check

The same on an accelerator goes to results/<suite>_gpu; tables are written
anew anywhere, from the rows alone:
  python -m launch.benchmark --suite=step --report \
    --output_dir=experiments/benchmarks/results/step_gpu

Suites: step, memory, scaling, compile, norms (single layers: is the cheaper
way to norms of gradients chosen?), sampling, loop, estimators (repetitions of
private statistics a second), quantiles (a release beside the published
algorithms and libraries), curves (distribution functions smoothed, released
and compared secretly, beside solvers and NumPy), densities (repetitions of a
private density from counts, beside NumPy and a library), parametric
(repetitions of estimators of parameters from sufficient statistics), replicas
(training of 16 networks in packs, beside one large batch; tiny ones on CPU),
butterfly (products of square butterflies, beside dense matrices and fast
transforms).
Peers that are not installed are left out: pip install dpjax[bench]. A method
may be followed by a set of XLA flags, as in ours@noynn. Rounds go through all
methods of one network and batch size in random order. Ratios are of CPU time
over all threads, on accelerators of wall time. Timings are only worth something
on a machine that does nothing else.
"""

from collections.abc import Iterable, Sequence
import functools
from importlib import metadata
import os
import pathlib
import shlex
import sys

from absl import flags

from dpjax import errors as checks
from dpjax.report import files
from dpjax.report import plots
from dpjax.report import records
from dpjax.report import tables
from experiments import engine
from experiments import environment
from experiments import registry
from experiments.benchmarks import clients
from experiments.benchmarks import machine
from experiments.benchmarks import report
from experiments.benchmarks import run
from experiments.benchmarks import sweep
from launch import errors
from launch import flags as shared

for _name in ('output_dir', 'traceback'):
  flags.declare_key_flag(_name)

_SUITE = flags.DEFINE_enum('suite', 'step', list(sweep.SUITES),
                           'What to measure.')
_MODELS = flags.DEFINE_list('models', [], 'Networks; those of the suite when '
                            'not given. In norms: layers; in sampling: noise, '
                            'poisson; in estimators: what is estimated; in '
                            'quantiles: by which mechanism and how many; in '
                            'curves: what is done with them; in densities: '
                            'by which estimator; in butterfly: product or '
                            'gradients.')
_BATCH_SIZES = flags.DEFINE_list(
    'batch_sizes', [], 'Batch sizes; those of each network when not given. In '
    'sampling: how many values or records; in estimators, quantiles and '
    'densities: records of a repetition; in curves: thresholds or keys; in '
    'butterfly: numbers of a vector.')
_METHODS = flags.DEFINE_list('methods', [], 'Methods; those of the suite when '
                             'not given.')
_ROUNDS = flags.DEFINE_integer(
    'rounds', None, 'Samples of each, 7 when not given and 3 where a step '
    'takes over 5 s; in quantiles 3, in curves and replicas 5; in memory and '
    'compile processes of each, 3.')
_SECONDS = flags.DEFINE_float('seconds', None, 'Length of a sample, 1 when not '
                              'given; 0.1 in quantiles and densities, 0.3 in '
                              'curves and butterfly.')
_TIMEOUT = flags.DEFINE_float(
    'timeout', 120.0, 'Seconds after which a method is given up.')
_SMOKE = flags.DEFINE_bool('smoke', False, 'Tiny networks, two rounds.')
_CHECK = flags.DEFINE_bool(
    'check', False, 'Compare what each method of step or norms computes with a '
    'loop over records, laws of quantiles and densities with the published '
    'ones or NumPy, those of curves with small problems solved apart, and '
    'butterflies with matrices; time nothing.')
_REPORT = flags.DEFINE_bool(
    'report', False, 'Only write table and figure of the rows that '
    '--output_dir has, of whatever machine.')
_CHECK_SIZES = {'step': 8, 'norms': 8, 'quantiles': 60, 'curves': 64,
                'densities': 10**6, 'parametric': 10**4, 'butterfly': 64}
# Many programs of few milliseconds.
_SHORT = {'quantiles': (3, 0.1), 'curves': (5, 0.3), 'densities': (3, 0.1),
          'parametric': (3, 0.1), 'replicas': (5, 1.0),
          'butterfly': (7, 0.3)}
_LOADED = 0.3
TABLE, FIGURE = 'table.md', 'figure.svg'


def _settings(cpu: bool) -> tuple[sweep.Setting, ...]:
  """What the flags ask for and can be run here; says what cannot."""
  sizes = [checks.check_at_least('batch_sizes', _number(size), 1)
           for size in _BATCH_SIZES.value]
  found = sweep.settings(
      _SUITE.value, models=_MODELS.value, sizes=sizes, names=_METHODS.value,
      smoke=_SMOKE.value, cpu=cpu)
  kept, skipped = sweep.runnable(found)
  for line in skipped:
    print(line, file=sys.stderr)
  if not kept:
    raise ValueError('none of these methods can be run here')
  return kept


def _number(text: str) -> int | str:
  return int(text) if text.isdecimal() else text


def _samples() -> tuple[int, float]:
  """(how many, seconds of each)."""
  rounds, seconds = (3, 1.0) if _SUITE.value in run.FRESH else (
      _SHORT.get(_SUITE.value, (7, 1.0)))
  return (rounds if _ROUNDS.value is None else _ROUNDS.value,
          seconds if _SECONDS.value is None else _SECONDS.value)


def _how(cpu: bool) -> run.How:
  rounds, seconds = _samples()
  checks.check_at_least('rounds', rounds, 1)
  checks.check_positive('seconds', seconds)
  checks.check_positive('timeout', _TIMEOUT.value)
  if _SMOKE.value:
    return run.How(rounds=2, seconds=0.02, timeout=_TIMEOUT.value, cpu=cpu)
  return run.How(rounds=rounds, seconds=seconds, timeout=_TIMEOUT.value,
                 cpu=cpu)


def _command() -> str:
  """The command that makes these rows, on whatever machine."""
  words = ['python', '-m', 'launch.benchmark', f'--suite={_SUITE.value}']
  words += [f'--{flag.name}={",".join(flag.value)}'
            for flag in (_MODELS, _BATCH_SIZES, _METHODS) if flag.value]
  rounds, seconds = _samples()
  words += ['--smoke'] if _SMOKE.value else [
      f'--rounds={rounds}', f'--seconds={seconds:g}']
  return shlex.join(words)


def _environment() -> environment.Environment:
  """With the machine in words and the versions of the peers."""
  found = environment.current()
  versions = dict(found.versions)
  for package in report.PEERS:
    try:
      versions[package] = metadata.version(package)
    except metadata.PackageNotFoundError:
      continue
  return found._replace(device=machine.describe(found.device),
                        versions=versions)


def _measure(folder: pathlib.Path, cpu: bool) -> None:
  """Runs what has no rows yet."""
  how = _how(cpu)
  errors.check_folder(str(folder))
  settings = _settings(cpu)
  found = _environment()
  load = os.getloadavg()[0]
  if load > _LOADED:
    print(f'note: the load of this machine is {load:.1f} before anything '
          'runs; timings want it idle', file=sys.stderr)
  experiment = registry.Experiment(
      name=sweep.NAME, settings=settings, smoke=settings, tags={},
      batched=sweep.BATCHED, artefact=_SUITE.value, cost='-', headlines=(),
      report=report, run=functools.partial(
          run.run, how=how))
  # Ids say all of a setting; provenance tells apart what was run when.
  engine.run_sweep(experiment, settings, engine.Options(
      output_dir=folder, smoke=_SMOKE.value, append_anyway=True,
      command=_command()), sys.stderr, found)


def _write(folder: pathlib.Path) -> None:
  """Writes table and figure of the rows, and prints the table."""
  rows = records.sort(records.read(folder / engine.ROWS))
  text = report.table_of(folder, _SUITE.value)
  print(text)
  files.replace(folder / TABLE, text.encode())
  try:
    figure = report.figure(rows, _SUITE.value)
    plots.save(figure, folder / FIGURE, digest=records.digest(rows))
  except ImportError as error:
    print(f'no figure: {error}', file=sys.stderr)


def _checked(pairs: Iterable[tuple[str, str]]) -> bool:
  """Checks each (model, method); prints what it saw."""
  from experiments.benchmarks import checks as gradients
  columns = gradients.COLUMNS[_SUITE.value]
  lines, passed = [], True
  for model, method in pairs:
    print(f'checking {method} on {model}', file=sys.stderr)
    try:
      found = gradients.check(_SUITE.value, model, method,
                              size=_CHECK_SIZES[_SUITE.value],
                              timeout=_TIMEOUT.value)
      passed &= found.passed
      lines.append((model, method, *found.cells,
                    'yes' if found.passed else 'NO'))
    except clients.WorkerFailed as error:
      passed = False
      lines.append((model, method, *'-' * len(columns), f'NO: {error}'))
  print(tables.markdown(('model', 'method', *columns, 'right'), lines))
  return passed


def main(argv: Sequence[str]) -> int:
  """Measures and reports; returns the exit status."""
  errors.check_no_arguments(argv)
  if _REPORT.value:
    if shared.OUTPUT_DIR.value is None:
      raise ValueError('--report is of the rows of an --output_dir')
    _write(pathlib.Path(shared.OUTPUT_DIR.value))
    return 0
  # Not to take all memory of an accelerator from the workers.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  import jax
  cpu = jax.default_backend() == 'cpu'
  if _CHECK.value:
    if _SUITE.value not in _CHECK_SIZES:
      raise ValueError(f'--check is of --suite={" and ".join(_CHECK_SIZES)}')
    return 0 if _checked(dict.fromkeys(
        (s.model, s.method) for s in _settings(cpu))) else 1
  kind = 'smoke/' if _SMOKE.value else ''
  folder = pathlib.Path(shared.OUTPUT_DIR.value or
                        f'results/benchmarks/{kind}{_SUITE.value}')
  _measure(folder, cpu)
  _write(folder)
  return 0


if __name__ == '__main__':
  errors.run_main(main)
