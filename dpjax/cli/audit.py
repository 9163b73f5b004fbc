r"""Tests whether an implementation satisfies its privacy claim.

Audit a mechanism, training method or known mistake by name; audit all; list:
  dpjax audit --target=gaussian
  dpjax audit --target=all
  dpjax audit --list

Audit your own object in a file or a module: a mechanism with the method
`release(key, data)`; a function (key, data); or a `dpjax.audit.target.Target`.
The claim is its `event` and `adjacency`, or that of the flags. Neighbouring
data sets are searched among those that its attributes state (`record_norm`,
`l2_sensitivity`, `sensitivity`, `num_categories`, `record_shape`, `space`) or
flags state; given pairs are tried alone:
  dpjax audit --target=mine.py:NoisyMean --epsilon=1 --delta=1e-6 \
      --adjacency=replace_one --record_shape=2 --record_bounds=-1,1
  dpjax audit --target=mine.py:histogram --epsilon=1 \
      --adjacency=add_or_remove_one --num_categories=20 --budget_seconds=300
  dpjax audit --target=mine.py:noisy_count --epsilon=1 \
      --adjacency=add_or_remove_one --data='[1, 0, 1]' --neighbour='[1, 0]'

Audit a finished training run with canaries, or all runs in a folder. The claim
is compared with its event; then the canaries' scores are used to guess which
canaries were included:
  dpjax train --method=dp_sgd --epsilon=1 --num_canaries=100 \
      --output_dir=results/one
  dpjax audit --target=run --run_dir=results/one

Audit scores that were computed elsewhere:
  dpjax audit --scores=scores.npz --epsilon=1 --delta=1e-5

Test the auditor itself, on known mechanisms and on planted faults:
  dpjax audit --self_calibrate
  dpjax audit --mutations

Real bugs of private software, in a checkout (--zoo --help says more):
  python -m launch.audit --zoo

Exit status: 0 consistent, 1 violated, 3 underpowered, 2 bad input. With `all`,
`--self_calibrate` and `--mutations`: 0 if all results are as expected, else 1.
"""

from collections.abc import Sequence
import dataclasses
import functools
import json
import pathlib
import sys
import time
from typing import Any

from absl import flags
import jax
import numpy as np

from dpjax import errors as checks
from dpjax.audit import auditor
from dpjax.audit import claims
from dpjax.audit.suite import finished
from dpjax.audit.suite import loading
from dpjax.audit.suite import reports
from dpjax.audit.suite import run_folders
from dpjax.audit.suite import runs
from dpjax.audit.suite import targets
from dpjax.audit.target import Pair
from dpjax.cli import audit_self_tests
from dpjax.cli import errors
from dpjax.cli import flags as shared
from dpjax.privacy.adjacency import Adjacency
from dpjax.report import tables

_WHAT = flags.FlagValues()
_TARGET = flags.DEFINE_string(
    'target', None, 'Name of a target, "all", path/to/file.py:NAME, '
    'module:NAME, or "run" for the training runs in --run_dir.', _WHAT)
_LIST = flags.DEFINE_bool(
    'list', False, 'Print the names of all targets.', _WHAT)
_RUN_DIR = flags.DEFINE_string(
    'run_dir', None, 'Folder of a training run with --num_canaries, or a '
    'folder with several such runs below it, which share --significance.',
    _WHAT)
_SCORES = flags.DEFINE_string(
    'scores', None, 'A .npz file with the arrays with_canary and '
    'without_canary, or scores and included.', _WHAT)
_SELF_CALIBRATE = flags.DEFINE_bool(
    'self_calibrate', False, 'Audit mechanisms whose epsilon is known.', _WHAT)
_MUTATIONS = flags.DEFINE_bool(
    'mutations', False, 'Audit training with each planted fault of the '
    'catalogue.', _WHAT)

_CLAIM = flags.FlagValues()
_EPSILON = flags.DEFINE_float(
    'epsilon', None, 'Claimed epsilon, at least 0.', flag_values=_CLAIM)
_DELTA = flags.DEFINE_float(
    'delta', None, 'Claimed delta, in [1e-12, 1), or 0 for a pure claim.',
    flag_values=_CLAIM)
_ADJACENCY = flags.DEFINE_enum(
    'adjacency', None, [a.value for a in Adjacency],
    'Neighbouring relation of the claim.', _CLAIM)

_PAIRS = flags.FlagValues()
_DATA = flags.DEFINE_string(
    'data', None, 'A data set, in JSON.', _PAIRS)
_NEIGHBOUR = flags.DEFINE_string(
    'neighbour', None, 'A data set that neighbours --data, in JSON.', _PAIRS)
_RECORD_SHAPE = flags.DEFINE_string(
    'record_shape', None, 'Shape of a numeric record, e.g. 2, or "" for a '
    'single number.', _PAIRS)
_RECORD_BOUNDS = flags.DEFINE_string(
    'record_bounds', None, 'Smallest and largest number in a record, e.g. 0,1. '
    'Default: all numbers are allowed, including infinities and NaN.', _PAIRS)
_NUM_CATEGORIES = flags.DEFINE_integer(
    'num_categories', None, 'Records are the integers from 0 to this number '
    'minus 1.', flag_values=_PAIRS)
_NUM_RECORDS = flags.DEFINE_integer(
    'num_records', None, 'Number of records of a data set, of the smaller one '
    'if records are added. Default: 8, and also 0, 1 and 2.',
    flag_values=_PAIRS)
_RECORD_DTYPE = flags.DEFINE_string(
    'record_dtype', None, 'NumPy type of the array of records, e.g. int8. '
    'Default: float32, or int32 with --num_categories.', _PAIRS)
_FLOATING_POINT = flags.DEFINE_bool(
    'floating_point', None, 'Whether differences in the lowest bits of floats '
    'count as violations.', _PAIRS)

_TEST = flags.FlagValues()
_NUM_RUNS = flags.DEFINE_integer(
    'num_runs', None, 'Number of releases counted for each data set.',
    flag_values=_TEST)
_BUDGET_SECONDS = flags.DEFINE_float(
    'budget_seconds', None, 'Seconds that an audit may take: more of them '
    'allow a longer search and, without --num_runs, more runs. Default: the '
    'usual search and number of runs, which the seed determines.',
    flag_values=_TEST)
_REPLAY = flags.DEFINE_bool(
    'replay', True, 'Also record the random draws of the release and replay '
    'them on neighbours, which finds the line of a fault.', _TEST)
_SIGNIFICANCE = flags.DEFINE_float(
    'significance', 0.05, 'Largest probability of the verdict "violated" if '
    'the claim is true; divided among all tests of a target and all targets.',
    flag_values=_TEST)
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of all runs.', flag_values=_TEST)
_ESTIMATOR = flags.DEFINE_enum(
    'estimator', None, list(finished.ESTIMATORS),
    'Estimator of epsilon from --scores.', _TEST)

_FILES = flags.FlagValues()
_OUTPUT = flags.DEFINE_string(
    'output', None, 'Folder for the report <target>.json and its scores; for '
    'a training run <folder>.json.', _FILES)

_GROUPS = {
    'What to audit': _WHAT,
    'The claim': _CLAIM,
    'Neighbouring data sets': _PAIRS,
    'The test': _TEST,
    'Files': shared.add_shared(_FILES, 'data_dir')}
_MAIN = (
    'target run_dir epsilon delta adjacency record_shape record_bounds '
    'num_categories budget_seconds output').split()
parse = functools.partial(errors.parse_groups, groups=_GROUPS,
                          doc=__doc__ or '', main=_MAIN)

EXIT = {auditor.CONSISTENT: 0, auditor.VIOLATED: 1, auditor.UNDERPOWERED: 3}
"""Exit status of each verdict; 2 is bad input."""


def _data(text: str) -> np.ndarray:
  """Returns a JSON array as int32 or float32."""
  try:
    values = np.asarray(json.loads(text))
  except ValueError as error:
    raise ValueError(f'expected data in JSON, got {text!r}') from error
  # JAX computes in 32 bits by default.
  return values.astype(np.int32 if values.dtype.kind in 'iub' else np.float32)


def _pairs() -> tuple[Pair, ...] | None:
  """Returns the neighbouring data sets that flags give; None without them."""
  data, neighbour = _DATA.value, _NEIGHBOUR.value
  if data is None and neighbour is None:
    return None
  if data is None or neighbour is None:
    raise ValueError('--data and --neighbour come together: give both')
  return (Pair(_data(data), _data(neighbour), 'as given'),)


def _record_bounds() -> tuple[float, float] | None:
  """Returns the bounds of the numbers in a record; None without the flag."""
  text = _RECORD_BOUNDS.value
  if text is None:
    return None
  bounds = shared.numbers('record_bounds', text, float)
  if not (len(bounds) == 2 and bounds[0] < bounds[1]):
    raise ValueError('--record_bounds must be two numbers in order, got '
                     f'{text!r}')
  return bounds[0], bounds[1]


def _record_shape() -> tuple[int, ...] | None:
  """Returns the shape of a record, () for a number; None without the flag."""
  text = _RECORD_SHAPE.value
  if text is None:
    return None
  # "" is the shape of a single number.
  return tuple(shared.numbers('record_shape', text, int)) if text else ()


def _record_dtype() -> np.dtype[Any] | None:
  """Returns the type of the array of records; None without the flag."""
  text = _RECORD_DTYPE.value
  if text is None:
    return None
  try:
    dtype = np.dtype(text)
  except TypeError:
    dtype = np.dtype(object)
  if dtype.kind not in 'biuf':
    raise ValueError('--record_dtype must be a numeric type such as int8 or '
                     f'float64, got {text!r}')
  return dtype


def _given() -> dict[str, Any]:
  """Returns the properties of a target that flags give; None for others."""
  adjacency = _ADJACENCY.value
  return dict(epsilon=_EPSILON.value, delta=_DELTA.value,
              adjacency=None if adjacency is None else Adjacency(adjacency),
              pairs=_pairs(), record_bounds=_record_bounds(),
              record_shape=_record_shape(),
              record_dtype=_record_dtype(),
              num_categories=_NUM_CATEGORIES.value,
              num_records=_NUM_RECORDS.value,
              floating_point=_FLOATING_POINT.value)


def _report(name: str, *, significance: float, silent: bool = False,
            **options: Any) -> auditor.Report:
  """Audits one target and returns the report; `options` are of `_given`."""
  report = auditor.audit(
      jax.random.key(_SEED.value), loading.load(name, **options),
      num_runs=_NUM_RUNS.value, significance=significance,
      budget_seconds=_BUDGET_SECONDS.value, replayed=_REPLAY.value,
      progress=None if silent else _say)
  return dataclasses.replace(report, target=name.rpartition(':')[2])


def _say(line: str) -> None:
  """Prints a line about the state of an audit to standard error."""
  print(line, file=sys.stderr, flush=True)


def _finish(report: auditor.Report, *, run_seed: int | None = None) -> int:
  """Prints a report, writes it if asked, and returns its exit status."""
  print(reports.summary(report))
  if _OUTPUT.value:
    path = reports.write(report, pathlib.Path(_OUTPUT.value),
                         seed=_SEED.value if run_seed is None else run_seed)
    print(f'wrote {path}', file=sys.stderr)
  return EXIT[report.verdict]


def _audit_all() -> int:
  """Audits all targets; returns 1 if a verdict is not the expected one.

  The significance is divided among the targets. Otherwise, of forty tight
  mechanisms at 5 % each, two would be called violated on average.
  """
  rows, wrong = [], 0
  target_significance = _SIGNIFICANCE.value / len(targets.TARGETS)
  for name in targets.TARGETS:
    start = time.perf_counter()
    report = _report(name, significance=target_significance, silent=True)
    if _OUTPUT.value:
      reports.write(report, pathlib.Path(_OUTPUT.value), seed=_SEED.value)
    right = report.verdict == targets.expected(name)
    wrong += not right
    failed = ', '.join(dict.fromkeys(check.name for check in report.failed))
    rows.append((name, f'{report.claim.epsilon:.3g}',
                 f'{report.epsilon_lower:.3g}', f'{report.cap:.3g}',
                 report.verdict + ('' if right else ' (NOT expected)'),
                 failed or '-', f'{time.perf_counter() - start:.1f}'))
    print(f'{name}: {report.verdict}', file=sys.stderr)
  print(tables.markdown(('target', 'claim', 'at least', 'cap', 'verdict',
                         'refuted by', 's'), rows))
  return int(wrong > 0)


def _audit_runs(run_dir: str) -> int:
  """Audits all runs of a folder; returns the worst exit status.

  The significance is divided among the runs.
  """
  if _EPSILON.value is not None or _ADJACENCY.value is not None:
    raise ValueError('the claim of a run is in its summary.json: give neither '
                     '--epsilon nor --adjacency')
  root = pathlib.Path(run_dir).resolve()
  folders = run_folders.find(root)
  statuses = []
  for folder in folders:
    run = run_folders.load(folder, data_dir=shared.DATA_DIR.value)
    report = runs.audit(
        run, name='-'.join(folder.relative_to(root).parts) or root.name,
        delta=_DELTA.value, significance=_SIGNIFICANCE.value / len(folders))
    statuses.append(_finish(report, run_seed=run.config.seed))
  # A violation outweighs an audit that could not decide.
  worst = (auditor.VIOLATED, auditor.UNDERPOWERED)
  return next((EXIT[verdict] for verdict in worst
               if EXIT[verdict] in statuses), 0)


def _arrays(path: pathlib.Path) -> np.lib.npyio.NpzFile:
  """Opens a .npz file; raises a one-line ValueError for other files."""
  # An .npz file is a zip file, which begins like this.
  with path.open('rb') as file:
    if file.read(4) != b'PK\3\4':
      raise ValueError(f'{path} is not an .npz file of scores')
  # A pickle in the file could run any code.
  return np.load(path, allow_pickle=False)


def _audit_scores(scores: str) -> int:
  """Audits the scores of a file; returns the exit status."""
  if _EPSILON.value is None:
    raise ValueError('--scores needs --epsilon, and --delta if it is not 0')
  claim = claims.Claim(
      epsilon=_EPSILON.value, delta=_DELTA.value or 0.0,
      adjacency=Adjacency(_ADJACENCY.value or
                          Adjacency.ADD_OR_REMOVE_ONE.value))
  path = pathlib.Path(scores)
  if _OUTPUT.value:
    # Beside a.npz, the scores of the report would replace it.
    errors.check_outputs(
        {'output': pathlib.Path(_OUTPUT.value) / f'{path.stem}.npz'},
        inputs={'scores': path})
  with _arrays(path) as arrays:
    return _finish(finished.audit(
        dict(arrays), claim, estimator=_ESTIMATOR.value, name=path.stem,
        significance=_SIGNIFICANCE.value))


def main(argv: Sequence[str]) -> int:
  """Runs the audit that the flags ask for; returns the exit status."""
  errors.check_no_arguments(argv)
  checks.check_seed('seed', _SEED.value)
  if _BUDGET_SECONDS.value is not None:
    checks.check_positive('budget_seconds', _BUDGET_SECONDS.value)
  # An audit takes minutes, so its report must not fail in the end.
  if _OUTPUT.value:
    errors.check_folder(_OUTPUT.value)
  if _LIST.value:
    for name in targets.TARGETS:
      print(f'{name}  ({targets.expected(name)})')
    return 0
  if _SELF_CALIBRATE.value:
    return audit_self_tests.calibrate(_SEED.value)
  if _MUTATIONS.value:
    return audit_self_tests.mutate(_SEED.value)
  if _SCORES.value:
    return _audit_scores(_SCORES.value)
  if (_TARGET.value == 'run') != (_RUN_DIR.value is not None):
    raise ValueError('--target=run and --run_dir come together: give both')
  if not _TARGET.value:
    raise ValueError('nothing to audit: give --target, or see --list')
  if _RUN_DIR.value is not None:  # and --target=run
    return _audit_runs(_RUN_DIR.value)
  if _TARGET.value == 'all':
    return _audit_all()
  return _finish(_report(_TARGET.value, significance=_SIGNIFICANCE.value,
                         **_given()))
