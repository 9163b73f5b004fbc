"""Measures settings: a process each, and rounds through all of them in turn."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import math
import random
import sys
from typing import NamedTuple

import numpy as np

from dpjax.report import records
from experiments import rows
from experiments.benchmarks import clients
from experiments.benchmarks import sweep
from experiments.benchmarks.program import Sample, Spec

FRESH = ('memory', 'compile')
"""Suites that start a process in every round and time no steps."""

_SLOW = 5.0
_SLOW_ROUNDS = 3
_REPEATED = ('compile_seconds', 'trace_seconds', 'first_step_seconds',
             'peak_kib')
_CONSTANT = ('temp_kib', 'compiled_again', 'by_gram', 'products_per_number')


class How(NamedTuple):
  """How to measure.

  Attributes:
    rounds: samples of each setting; 3 where a step takes over 5 s.
    seconds: of a sample, at least a step.
    timeout: seconds after which a setting is given up.
    cpu: whether steps run on CPU, where CPU time is what ratios are of.
    say: takes lines for whoever waits.
  """
  rounds: int
  seconds: float
  timeout: float
  cpu: bool = True
  say: Callable[[str], None] = lambda line: print(line, file=sys.stderr)


@dataclasses.dataclass
class Measured:
  """What became of a setting.

  Attributes:
    info: of each process it had.
    samples: by round.
    failure: name of a metric and its value, if it was given up.
  """
  info: list[Mapping[str, float]] = dataclasses.field(default_factory=list)
  samples: dict[int, Sample] = dataclasses.field(default_factory=dict)
  failure: dict[str, float] = dataclasses.field(default_factory=dict)


Results = dict[sweep.Setting, Measured]


def run(settings: Sequence[sweep.Setting], data_dir: str | None, progress, *,
        how: How) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields settings of one model and size with their rows.

  The units of their ratios are measured beside them in any case, so that all
  ratios are of one run. See `experiments.registry`.
  """
  del data_dir
  wanted = dict.fromkeys(settings)
  for setting in settings:
    wanted |= dict.fromkeys(sweep.units(setting, cpu=how.cpu))
  results = {setting: Measured() for setting in wanted}
  measure = _fresh if settings[0].suite in FRESH else _interleaved
  measure(results, how, progress)
  for setting in settings:
    unit = _fastest(results, sweep.units(setting, cpu=how.cpu), how)
    metrics = _metrics(results[setting], unit, how)
    yield setting, rows.exact(setting, metrics)


def _start(setting: sweep.Setting, measured: Measured,
           how: How) -> clients.Worker | None:
  """A worker that is ready; None if it failed, which is noted."""
  with _noting(setting, measured, how):
    worker = clients.Worker(Spec(**dataclasses.asdict(setting)), how.timeout)
    measured.info.append(worker.info)
    return worker


@contextlib.contextmanager
def _noting(setting: sweep.Setting, measured: Measured, how: How):
  """Notes that a setting is given up, and goes on."""
  try:
    yield
  except clients.WorkerFailed as error:
    measured.failure = {'timeout_seconds': how.timeout} if (
        error.timed_out) else {'failed': 1.0}
    how.say(f'{setting.method} on {setting.model}, {setting.size}: {error}')


def _shuffled(settings: Iterable[sweep.Setting],
              number: int) -> list[sweep.Setting]:
  """The settings in the order of a round."""
  order = list(settings)
  random.Random(number).shuffle(order)
  return order


def _interleaved(results: Results, how: How, progress) -> None:
  """Starts all, then takes a sample of each in every round."""
  work = len(results) * (how.rounds + 1)
  with contextlib.ExitStack() as stack:
    workers = {}
    for done, (setting, measured) in enumerate(results.items()):
      progress(done / work, f'starting {setting.method}, {setting.model}')
      if worker := _start(setting, measured, how):
        workers[setting] = stack.enter_context(worker)
    for number in range(how.rounds):
      for done, setting in enumerate(_shuffled(workers, number)):
        progress((done + len(results) * (number + 1)) / work,
                 f'round {number + 1} of {how.rounds}, {setting.model}')
        slow = results[setting].info[0].get('first_step_seconds', 0.0) > _SLOW
        if slow and number >= _SLOW_ROUNDS:
          continue
        with _noting(setting, results[setting], how):
          results[setting].samples[number] = workers[setting].sample(
              how.seconds)
        if results[setting].failure:
          del workers[setting]


def _fresh(results: Results, how: How, progress) -> None:
  """A new process for each, in every round."""
  for number in range(how.rounds):
    for done, setting in enumerate(_shuffled(results, number)):
      progress((done / len(results) + number) / how.rounds,
               f'round {number + 1} of {how.rounds}, {setting.model}')
      measured = results[setting]
      if not measured.failure:
        worker = _start(setting, measured, how)
        if worker:
          worker.close()


def _trusted(sample: Sample, how: How) -> float:
  """Another process can stretch wall time, but hardly CPU time."""
  return sample.cpu if how.cpu else sample.wall


def _series(measured: Measured, how: How) -> dict[int, float]:
  """What ratios are of, by round."""
  if measured.samples:
    return {number: _trusted(sample, how)
            for number, sample in measured.samples.items()}
  return {number: info['peak_kib'] for number, info in enumerate(
      measured.info) if 'peak_kib' in info}


def _fastest(results: Results, units: Sequence[sweep.Setting],
             how: How) -> dict[int, float]:
  """The series of the unit of least median; empty if there is none."""
  found = [_series(results[unit], how) for unit in units
           if not results[unit].failure]
  return min((series for series in found if series), default={},
             key=lambda series: np.median(list(series.values())))


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
  """Median and quartiles."""
  low, middle, high = np.percentile(values, (25, 50, 75))
  return {name: middle, f'{name}_low': low, f'{name}_high': high}


def _metrics(measured: Measured, unit: Mapping[int, float],
             how: How) -> dict[str, float]:
  """The values of the rows of a setting."""
  found = {'accelerator': float(not how.cpu)} | measured.failure
  if measured.failure:
    return found
  samples = measured.samples.values()
  if samples:
    found |= _spread('cpu_ms', [1e3 * sample.cpu for sample in samples])
    found |= _spread('wall_ms', [1e3 * sample.wall for sample in samples])
    found['steps'] = float(sum(sample.steps for sample in samples))
    found['others'] = float(np.median([sample.others for sample in samples]))
  for name in _REPEATED:
    values = [info[name] for info in measured.info if name in info]
    if values:
      found |= _spread(name, values)
  last = measured.info[-1]
  found |= {name: last[name] for name in _CONSTANT if name in last}
  series = _series(measured, how)
  both = sorted(series.keys() & unit.keys())
  if both and all(unit[number] > 0 for number in both):
    found |= _spread('ratio', [series[number] / unit[number]
                               for number in both])
  found['rounds'] = float(max(len(samples), len(measured.info)))
  return {name: value for name, value in found.items()
          if not math.isnan(value)}
