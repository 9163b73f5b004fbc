r"""Measures the time and memory of dpjax beside other libraries.

The training step of every method on every network, an hour or two on two cores.
Repeating the command resumes an interrupted run; after a finished one it only
rewrites table.md and figure.svg:
  python -m launch.benchmark --suite=step \
    --output_dir=experiments/benchmarks/results/step

One network and a few methods, to try something out:
  python -m launch.benchmark --suite=step --models=mlp --batch_sizes=256 \
    --methods=ours,vmap,opacus_ghost --output_dir=results/try

A smoke test of a minute, and checks that all methods compute the same values:
  python -m launch.benchmark --suite=step --smoke
  python -m launch.benchmark --check
  python -m launch.benchmark --suite=norms --check
  python -m launch.benchmark --suite=quantiles --check
  python -m launch.benchmark --suite=curves --check
  python -m launch.benchmark --suite=densities --check
  python -m launch.benchmark --suite=parametric --check
  python -m launch.benchmark --suite=butterfly --check
  python -m launch.benchmark --suite=models --check

Results of an accelerator are stored in results/<suite>_gpu. Tables can be
rewritten from the rows on any machine:
  python -m launch.benchmark --suite=step --report \
    --output_dir=experiments/benchmarks/results/step_gpu

Suites: step, memory, scaling, compile, norms (single layers: is the cheaper way
to compute gradient norms chosen?), sampling, loop, estimators (repetitions of
private statistics per second), quantiles (one release, beside published
algorithms and libraries), curves (smoothing, release and secret comparison of
distribution functions, beside solvers and NumPy), densities (repetitions of a
private density from counts, beside NumPy and a library), parametric
(repetitions of parameter estimators from sufficient statistics), replicas
(training of 16 networks in packs, beside one large batch; tiny ones on CPU),
butterfly (products of square butterflies, beside dense matrices and fast
transforms), models (clipping of the gradients of transformers, adapters, scans,
recurrent and other networks of today, beside the step without privacy in the
same process), stream (private steps on records that are read while training,
within a tenth of their memory, beside records in memory).

The networks of today: on CPU small ones, on an accelerator GPT-2 of 124 million
parameters with 1,024 tokens:
  python -m launch.benchmark --suite=models \
    --output_dir=experiments/benchmarks/results/models
  python -m launch.benchmark --suite=models --methods=plain,ours,vmap \
    --output_dir=experiments/benchmarks/results/models_gpu --timeout=300

Libraries that are not installed are skipped: pip install dpjax[bench]. A method
may be followed by a set of XLA flags, as in ours@noynn. Each round measures all
methods of one network and batch size in random order. Ratios are of CPU time
over all threads, on accelerators of wall time. Run on an otherwise idle
machine.
"""

from collections.abc import Iterable, Sequence
import functools
import os
import pathlib
import shlex
import sys

from absl import flags

from dpjax import errors as checks
from dpjax.cli import errors
from dpjax.cli import flags as shared
from dpjax.report import files
from dpjax.report import plots
from dpjax.report import tables
from dpjax.runs import environment
from experiments import engine
from experiments import records
from experiments import registry
from experiments.benchmarks import clients
from experiments.benchmarks import machine
from experiments.benchmarks import report
from experiments.benchmarks import run
from experiments.benchmarks import sweep

for _name in ('output_dir', 'traceback'):
  flags.declare_key_flag(_name)

_SUITE = flags.DEFINE_enum('suite', 'step', list(sweep.SUITES),
                           'What to measure.')
_MODELS = flags.DEFINE_list(
    'models', [], 'Networks to measure. Default: those of the suite. Suites '
    'without networks take other names here. norms: layers; sampling: noise or '
    'poisson; estimators: statistics; quantiles: mechanisms with their number '
    'of levels; curves: operations; densities: estimators; butterfly: product '
    'or gradients; models: networks, or tiny_ and the name of one; stream: '
    'computed or mapped.')
_BATCH_SIZES = flags.DEFINE_list(
    'batch_sizes', [], 'Batch sizes. Default: those of each network. Suites '
    'without batches take other sizes here. sampling: numbers of values or '
    'records; estimators, quantiles and densities: records of a repetition; '
    'curves: thresholds or keys; butterfly: length of a vector; stream: '
    'records.')
_METHODS = flags.DEFINE_list(
    'methods', [], 'Methods. Default: those of the suite.')
_ROUNDS = flags.DEFINE_integer(
    'rounds', None, 'Number of samples of each method. Default: 7, or 3 if a '
    'step takes over 5 s; 3 in suite quantiles; 5 in curves and replicas; 3 '
    'processes for each method in memory and compile.')
_SECONDS = flags.DEFINE_float(
    'seconds', None, 'Seconds of a sample. Default: 1; 0.1 in suites quantiles '
    'and densities, 0.3 in curves and butterfly.')
_TIMEOUT = flags.DEFINE_float(
    'timeout', 120.0, 'Seconds after which a method is abandoned.')
_SMOKE = flags.DEFINE_bool('smoke', False, 'Tiny networks, two rounds.')
_CHECK = flags.DEFINE_bool(
    'check', False, 'Measure nothing; check the results of the methods. They '
    'are compared with a loop over records (step, norms), with published or '
    'NumPy distributions (quantiles, densities), with independent solutions of '
    'small problems (curves), or with matrices (butterfly).')
_REPORT = flags.DEFINE_bool(
    'report', False, 'Measure nothing; write table and figure from the rows in '
    '--output_dir, which may come from another machine.')
_CHECK_SIZES = {'step': 8, 'norms': 8, 'quantiles': 60, 'curves': 64,
                'densities': 10**6, 'parametric': 10**4, 'butterfly': 64,
                'models': 4}
# (rounds, seconds of a sample), for suites with many programs of a few
# milliseconds.
_SHORT = {'quantiles': (3, 0.1), 'curves': (5, 0.3), 'densities': (3, 0.1),
          'parametric': (3, 0.1), 'replicas': (5, 1.0),
          'butterfly': (7, 0.3)}
_LOADED = 0.3  # A warning is printed above this load average.
TABLE, FIGURE = 'table.md', 'figure.svg'


def _settings(cpu: bool) -> tuple[sweep.Setting, ...]:
  """Returns the settings that can run here; prints those that cannot."""
  sizes = [_size(text) for text in _BATCH_SIZES.value]
  asked = sweep.settings(
      _SUITE.value, models=_MODELS.value, sizes=sizes, names=_METHODS.value,
      smoke=_SMOKE.value, cpu=cpu)
  kept, skipped = sweep.runnable(asked)
  for line in skipped:
    print(line, file=sys.stderr)
  if not kept:
    raise ValueError('none of these methods can be run here')
  return kept


def _size(text: str) -> int:
  """Returns a batch size, an integer >= 1; raises for another text."""
  if not text.isdecimal():
    raise ValueError(f'batch_sizes must be integers >= 1, got {text!r}')
  return checks.check_at_least('batch_sizes', int(text), 1)


def _samples() -> tuple[int, float]:
  """Returns the number of samples and the seconds of each."""
  rounds, seconds = (3, 1.0) if _SUITE.value in run.FRESH else (
      _SHORT.get(_SUITE.value, (7, 1.0)))
  return (rounds if _ROUNDS.value is None else _ROUNDS.value,
          seconds if _SECONDS.value is None else _SECONDS.value)


def _how(cpu: bool) -> run.How:
  """Returns how to measure, from checked flags."""
  rounds, seconds = _samples()
  checks.check_at_least('rounds', rounds, 1)
  checks.check_positive('seconds', seconds)
  checks.check_positive('timeout', _TIMEOUT.value)
  if _SMOKE.value:
    return run.How(rounds=2, seconds=0.02, timeout=_TIMEOUT.value, cpu=cpu)
  return run.How(rounds=rounds, seconds=seconds, timeout=_TIMEOUT.value,
                 cpu=cpu)


def _command() -> str:
  """Returns the command that makes these rows, without machine paths."""
  words = ['python', '-m', 'launch.benchmark', f'--suite={_SUITE.value}']
  words += [f'--{flag.name}={",".join(flag.value)}'
            for flag in (_MODELS, _BATCH_SIZES, _METHODS) if flag.value]
  rounds, seconds = _samples()
  words += ['--smoke'] if _SMOKE.value else [
      f'--rounds={rounds}', f'--seconds={seconds:g}']
  return shlex.join(words)


def _environment() -> environment.Environment:
  """Returns the environment, with a machine description and peer versions."""
  current = environment.current(optional=report.PEERS)
  return current._replace(device=machine.describe(current.device))


def _measure(folder: pathlib.Path, cpu: bool) -> None:
  """Measures the settings that have no rows yet."""
  how = _how(cpu)
  errors.check_folder(str(folder))
  settings = _settings(cpu)
  current = _environment()
  load = os.getloadavg()[0]
  if load > _LOADED:
    print(f'note: the load of this machine is {load:.1f} before anything '
          'runs; timings want it idle', file=sys.stderr)
  experiment = registry.Experiment(
      name=sweep.NAME, settings=settings, smoke=settings, tags={},
      batched=sweep.BATCHED, artefact=_SUITE.value, cost='-', headlines=(),
      report=report, run=functools.partial(
          run.run, how=how))
  # Ids determine settings completely, so rows of several runs may share a file;
  # provenance.json distinguishes the runs.
  engine.run_sweep(experiment, settings, engine.Options(
      output_dir=folder, smoke=_SMOKE.value, append_anyway=True,
      command=_command()), sys.stderr, current)


def _write(folder: pathlib.Path) -> None:
  """Writes the table and the figure of the rows and prints the table."""
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
  """Checks each (model, method), prints a table; returns if all passed."""
  from experiments.benchmarks import checks as gradients
  columns = gradients.COLUMNS[_SUITE.value]
  lines, passed = [], True
  for model, method in pairs:
    print(f'checking {method} on {model}', file=sys.stderr)
    try:
      result = gradients.check(_SUITE.value, model, method,
                               size=_CHECK_SIZES[_SUITE.value],
                               timeout=_TIMEOUT.value)
      passed &= result.passed
      lines.append((model, method, *result.cells,
                    'yes' if result.passed else 'NO'))
    except clients.WorkerFailed as error:
      passed = False
      lines.append((model, method, *'-' * len(columns), f'NO: {error}'))
  print(tables.markdown(('model', 'method', *columns, 'right'), lines))
  return passed


def main(argv: Sequence[str]) -> int:
  """Measures, checks or reports as the flags ask; returns the exit status."""
  errors.check_no_arguments(argv)
  if _REPORT.value:
    if shared.OUTPUT_DIR.value is None:
      raise ValueError('--report needs --output_dir, the folder of the rows')
    _write(pathlib.Path(shared.OUTPUT_DIR.value))
    return 0
  # Leave the memory of an accelerator to the worker processes.
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  import jax
  cpu = jax.default_backend() == 'cpu'
  if _CHECK.value:
    if _SUITE.value not in _CHECK_SIZES:
      raise ValueError(f'--check needs --suite={" or ".join(_CHECK_SIZES)}')
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
