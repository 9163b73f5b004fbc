"""Tests whether an implementation keeps its privacy claim.

Mechanisms, training methods and known mistakes by name; all of them; a list:
  python -m launch.audit --target=gaussian
  python -m launch.audit --target=all
  python -m launch.audit --list

An object of one's own, in a file or a module: a mechanism, that is something
with `release(key, data)`, and with `event` and `adjacency` or a claim here; a
function (key, data); or a `dpjax.audit.target.Target`. Neighbours come from
what it says of itself (`pairs`, `record_norm`, `l2_sensitivity`, `sensitivity`,
`num_categories`, `record_shape`), or from flags:
  python -m launch.audit --target=mine.py:NoisyMean --epsilon=1 --delta=1e-6 \\
      --adjacency=replace_one --record_shape=2 --record_bounds=-1,1
  python -m launch.audit --target=mine.py:noisy_count --epsilon=1 \\
      --adjacency=add_or_remove_one --data='[1, 0, 1]' --neighbour='[1, 0]'

A finished training run with canaries, or all of them in a folder; the claim is
held against its event, then coins are guessed from what canaries score:
  python -m launch.train --method=dp_sgd --epsilon=1 --num_canaries=100 \\
      --output_dir=results/one
  python -m launch.audit --target=run --run_dir=results/one

Scores that runs left behind:
  python -m launch.audit --scores=scores.npz --epsilon=1 --delta=1e-5

The auditor itself, on what is known and on planted faults:
  python -m launch.audit --self_calibrate
  python -m launch.audit --mutations

Exit status: 0 consistent, 1 violated, 3 underpowered, 2 bad input. Of `all`,
`--self_calibrate` and `--mutations`: 0 if all is as it should be, else 1.
"""

from collections.abc import Sequence
import dataclasses
import json
import pathlib
import sys
import time

from absl import flags
import jax
import numpy as np

from dpjax import errors as checks
from dpjax.audit import auditor
from dpjax.audit import claims
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency
from dpjax.report import tables
from experiments.audits import calibration
from experiments.audits import finished
from experiments.audits import loading
from experiments.audits import mutations
from experiments.audits import reference
from experiments.audits import reports
from experiments.audits import run_folders
from experiments.audits import runs
from experiments.audits import targets
from launch import errors
from launch import flags as shared

for _name in ('data_dir', 'traceback'):
  flags.declare_key_flag(_name)

_TARGET = flags.DEFINE_string(
    'target', None, 'Name of a target, "all", path/to/file.py:NAME, '
    'module:NAME, or "run" for those in --run_dir.')
_RUN_DIR = flags.DEFINE_string(
    'run_dir', None, 'Folder of a training run with --num_canaries, or with '
    'such runs below it, which share the significance.')
_LIST = flags.DEFINE_bool('list', False, 'Print the names of targets.')
_OUTPUT = flags.DEFINE_string(
    'output', None, 'Folder for <target>.json and its scores; of a training '
    'run <folder>.json.')
_EPSILON = flags.DEFINE_float('epsilon', None, 'Claimed, at least 0.')
_DELTA = flags.DEFINE_float(
    'delta', None, 'Claimed, in [1e-12, 1), or 0 for a pure claim.')
_ADJACENCY = flags.DEFINE_enum(
    'adjacency', None, [a.value for a in Adjacency], 'Of the claim.')
_DATA = flags.DEFINE_string('data', None, 'One data set, in JSON.')
_NEIGHBOUR = flags.DEFINE_string('neighbour', None, 'Its neighbour, in JSON.')
_RECORD_SHAPE = flags.DEFINE_string(
    'record_shape', None, 'Shape of a record of numbers, e.g. 2, or "" for '
    'one number.')
_RECORD_BOUNDS = flags.DEFINE_string(
    'record_bounds', None, 'Least and largest number in a record, e.g. 0,1; '
    'if not given every number is legal, also infinite ones and NaN.')
_FLOATING_POINT = flags.DEFINE_bool(
    'floating_point', None, 'Whether lowest bits count against the claim.')
_NUM_RUNS = flags.DEFINE_integer(
    'num_runs', None, 'Counted releases of each data set.')
_SIGNIFICANCE = flags.DEFINE_float(
    'significance', 0.05, 'Probability of "violated" for a true claim, at '
    'most; all tests of a target share it, and all targets of "all".')
_SEED = flags.DEFINE_integer('seed', 0, 'Of all runs.')
_SCORES = flags.DEFINE_string(
    'scores', None, 'A .npz file with with_canary and without_canary, or with '
    'scores and included.')
_ESTIMATOR = flags.DEFINE_enum(
    'estimator', None, list(finished.ESTIMATORS), 'For scores.')
_SELF_CALIBRATE = flags.DEFINE_bool(
    'self_calibrate', False, 'Audit the auditor on mechanisms that are known.')
_MUTATIONS = flags.DEFINE_bool(
    'mutations', False, 'Plant the faults of the catalogue, one at a time.')

EXIT = {auditor.CONSISTENT: 0, auditor.VIOLATED: 1, auditor.UNDERPOWERED: 3}
_TRIALS = 200


def _numbers(text: str | None, kind: type) -> tuple | None:
  if text is None:
    return None
  try:
    return tuple(kind(part) for part in text.split(',') if part.strip())
  except ValueError as error:
    raise ValueError(f'expected numbers with commas, got {text!r}') from error


def _data(text: str) -> np.ndarray:
  try:
    values = np.asarray(json.loads(text))
  except ValueError as error:
    raise ValueError(f'no data in JSON: {text!r}') from error
  return values.astype(np.int32 if values.dtype.kind in 'iub' else np.float32)


def said() -> dict:
  """What the flags say of a target; None where nothing."""
  if (_DATA.value is None) != (_NEIGHBOUR.value is None):
    raise ValueError('--data and --neighbour come together')
  pairs = None if _DATA.value is None else (
      Pair(_data(_DATA.value), _data(_NEIGHBOUR.value), 'as given'),)
  bounds = _numbers(_RECORD_BOUNDS.value, float)
  if bounds is not None and not (len(bounds) == 2 and bounds[0] < bounds[1]):
    raise ValueError('--record_bounds must be two numbers in order, got '
                     f'{_RECORD_BOUNDS.value!r}')
  adjacency = _ADJACENCY.value and Adjacency(_ADJACENCY.value)
  return dict(epsilon=_EPSILON.value, delta=_DELTA.value, adjacency=adjacency,
              pairs=pairs, record_bounds=bounds,
              record_shape=_numbers(_RECORD_SHAPE.value, int),
              floating_point=_FLOATING_POINT.value)


def _report(name: str, *, significance: float,
            **options) -> auditor.Report:
  report = auditor.audit(
      jax.random.key(_SEED.value), loading.load(name, **options),
      num_runs=_NUM_RUNS.value, significance=significance)
  return dataclasses.replace(report, target=name.rpartition(':')[2])


def _finish(report: auditor.Report, *, seed: int | None = None) -> int:
  """Prints a report, writes it if asked; the exit status of its verdict."""
  print(reports.summary(report))
  if _OUTPUT.value:
    path = reports.write(report, pathlib.Path(_OUTPUT.value),
                         seed=_SEED.value if seed is None else seed)
    print(f'wrote {path}', file=sys.stderr)
  return EXIT[report.verdict]


def _audit_all() -> int:
  """A row for each target; whether all verdicts are the expected ones.

  All targets share the significance: of forty tight mechanisms at 5 % each, two
  would be called violated.
  """
  rows, wrong = [], 0
  share = _SIGNIFICANCE.value / len(targets.TARGETS)
  for name in targets.TARGETS:
    start = time.perf_counter()
    report = _report(name, significance=share)
    if _OUTPUT.value:
      reports.write(report, pathlib.Path(_OUTPUT.value), seed=_SEED.value)
    right = report.verdict == targets.expected(name)
    wrong += not right
    found = ', '.join(dict.fromkeys(check.name for check in report.failed))
    rows.append((name, f'{report.claim.epsilon:.3g}',
                 f'{report.epsilon_lower:.3g}', f'{report.cap:.3g}',
                 report.verdict + ('' if right else ' (NOT expected)'),
                 found or '-', f'{time.perf_counter() - start:.1f}'))
    print(f'{name}: {report.verdict}', file=sys.stderr)
  print(tables.markdown(('target', 'claim', 'at least', 'cap', 'verdict',
                         'refuted by', 's'), rows))
  return int(wrong > 0)


def _audit_runs() -> int:
  """Of all runs of a folder, which share the significance; the worst status."""
  if _EPSILON.value is not None or _ADJACENCY.value is not None:
    raise ValueError('the claim of a run is that of its summary: neither '
                     '--epsilon nor --adjacency')
  root = pathlib.Path(_RUN_DIR.value).resolve()
  folders = run_folders.find(root)
  found = []
  for folder in folders:
    run = run_folders.load(folder, data_dir=shared.DATA_DIR.value)
    report = runs.audit(
        run, name='-'.join(folder.relative_to(root).parts) or root.name,
        delta=_DELTA.value, significance=_SIGNIFICANCE.value / len(folders))
    found.append(_finish(report, seed=run.config.seed))
  worst = (auditor.VIOLATED, auditor.UNDERPOWERED)
  return next((EXIT[verdict] for verdict in worst if EXIT[verdict] in found), 0)


def _calibrate() -> int:
  found = list(calibration.coverages(trials=_TRIALS, seed=_SEED.value))
  print(tables.markdown(
      ('estimator', 'mechanism', 'epsilon', 'median bound', 'wrong', ''),
      [(row.estimator, row.mechanism, f'{row.epsilon:.3f}',
        f'{row.median:.3f}', f'{row.wrong} of {row.trials}',
        '' if row.holds else 'TOO OFTEN') for row in found]))
  print(tables.markdown(
      ('true epsilon', 'AUD-04', 'AUD-05', 'AUD-06'),
      [tuple(f'{value:.3f}' for value in calibration.expected_power(epsilon))
       for epsilon in (1.0, 2.0, 4.0, 8.0)]))
  return int(not all(row.holds for row in found))


def _mutate() -> int:
  honest = reference.findings(reference.Trainer(), seed=_SEED.value)
  rows, missed = [('none', '-', ', '.join(honest) or '-')], bool(honest)
  for name, mutant in mutations.MUTANTS.items():
    found = reference.findings(mutant.trainer, seed=_SEED.value)
    caught = set(mutant.caught_by) <= found
    missed |= not caught
    rows.append((name, '-' if mutant.true_epsilon is None else
                 f'{mutant.true_epsilon:g}', ', '.join(sorted(found)) +
                 ('' if caught else ' MISSED')))
  print(tables.markdown(('fault', 'true epsilon', 'refuted by'), rows))
  return int(missed)


def _arrays(path: pathlib.Path):
  """An open archive of arrays; refuses other files in one line."""
  with path.open('rb') as file:
    if file.read(4) != b'PK\3\4':
      raise ValueError(f'{path} is no .npz file of scores')
  return np.load(path, allow_pickle=False)


def _audit_scores() -> int:
  if _EPSILON.value is None:
    raise ValueError('--scores needs --epsilon, and --delta if it is not 0')
  claim = claims.Claim(
      epsilon=_EPSILON.value, delta=_DELTA.value or 0.0,
      adjacency=Adjacency(_ADJACENCY.value or
                          Adjacency.ADD_OR_REMOVE_ONE.value))
  path = pathlib.Path(_SCORES.value)
  if _OUTPUT.value:
    errors.check_outputs(
        {'output': pathlib.Path(_OUTPUT.value) / f'{path.stem}.npz'},
        inputs={'scores': path})
  with _arrays(path) as arrays:
    return _finish(finished.audit(
        dict(arrays), claim, estimator=_ESTIMATOR.value, name=path.stem,
        significance=_SIGNIFICANCE.value))


def main(argv: Sequence[str]) -> int:
  """Does what the flags ask for; returns the exit status."""
  errors.check_no_arguments(argv)
  checks.check_seed('seed', _SEED.value)
  if _OUTPUT.value:
    errors.check_folder(_OUTPUT.value)
  if _LIST.value:
    for name in targets.TARGETS:
      print(f'{name}  ({targets.expected(name)})')
    return 0
  if _SELF_CALIBRATE.value:
    return _calibrate()
  if _MUTATIONS.value:
    return _mutate()
  if _SCORES.value:
    return _audit_scores()
  if not _TARGET.value:
    raise ValueError('nothing to audit: give --target, or see --list')
  if (_TARGET.value == 'run') != (_RUN_DIR.value is not None):
    raise ValueError('--target=run and --run_dir come together')
  if _TARGET.value == 'run':
    return _audit_runs()
  if _TARGET.value == 'all':
    return _audit_all()
  return _finish(_report(_TARGET.value, significance=_SIGNIFICANCE.value,
                         **said()))


if __name__ == '__main__':
  errors.run_main(main)
