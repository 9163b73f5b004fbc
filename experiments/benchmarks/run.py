"""Measures settings in one process each, in rounds through all of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import math
import random
import sys
from typing import NamedTuple

import numpy as np

from experiments import records
from experiments import rows
from experiments.benchmarks import clients
from experiments.benchmarks import sweep
from experiments.benchmarks.program import Sample
from experiments.benchmarks.program import Spec

FRESH = ('memory', 'compile')
"""Suites that start a process in every round and time no steps."""

# Steps of so many seconds are sampled in fewer rounds.
_SLOW = 5.0
_SLOW_ROUNDS = 3
_REPEATED = ('compile_seconds', 'trace_seconds', 'first_step_seconds',
             'peak_kib')
_CONSTANT = ('temp_kib', 'compiled_again', 'by_gram', 'products_per_number',
             'flops', 'flops_ratio', 'xla_flops_ratio', 'temp_ratio',
             'compile_ratio', 'leaves', 'leaves_formed')


class How(NamedTuple):
  """Options of a measurement.

  Attributes:
    rounds: number of samples of each setting; 3 if a step takes over 5 s.
    seconds: length of a sample, at least one step.
    timeout: seconds after which a setting is given up.
    cpu: True if steps run on a CPU; ratios are then of CPU time.
    say: function that prints a line about a failure.
  """
  rounds: int
  seconds: float
  timeout: float
  cpu: bool = True
  say: Callable[[str], None] = lambda line: print(line, file=sys.stderr)


@dataclasses.dataclass
class Measured:
  """Measurements of one setting.

  Attributes:
    info: properties that each of its processes reported.
    samples: round -> sample.
    failure: metric -> value that reports the failure; {} if there is none.
  """
  info: list[Mapping[str, float]] = dataclasses.field(default_factory=list)
  samples: dict[int, Sample] = dataclasses.field(default_factory=dict)
  failure: dict[str, float] = dataclasses.field(default_factory=dict)


Results = dict[sweep.Setting, Measured]


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress: Callable[[float, str], None], *, how: How
        ) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields settings of one model and size with their rows.

  The units of their ratios are always measured with them, so that both sides
  of a ratio come from one run. See `experiments.registry`.
  """
  del data_dir
  wanted = dict.fromkeys(settings)
  for setting in settings:
    wanted |= dict.fromkeys(sweep.units(setting, cpu=how.cpu))
  results = {setting: Measured() for setting in wanted}
  measure = _fresh if settings[0].suite in FRESH else _interleaved
  measure(results, how, progress)
  for setting in settings:
    unit = _beside(results[setting], how) or _fastest(
        results, sweep.units(setting, cpu=how.cpu), how)
    metrics = _metrics(results[setting], unit, how)
    yield setting, rows.exact(setting, metrics)


def _start(setting: sweep.Setting, measured: Measured,
           how: How) -> clients.Worker | None:
  """Starts a worker; returns None, and notes the failure, if that fails."""
  with _noting(setting, measured, how):
    worker = clients.Worker(Spec(**dataclasses.asdict(setting)), how.timeout)
    measured.info.append(worker.info)
    return worker


@contextlib.contextmanager
def _noting(setting: sweep.Setting, measured: Measured,
            how: How) -> Iterator[None]:
  """Turns the failure of a worker into a note on its setting."""
  try:
    yield
  except clients.WorkerFailed as error:
    measured.failure = {'timeout_seconds': how.timeout} if (
        error.timed_out) else {'failed': 1.0}
    how.say(f'{setting.method} on {setting.model}, {setting.size}: {error}')


def _shuffled(settings: Iterable[sweep.Setting],
              number: int) -> list[sweep.Setting]:
  """Returns the settings in the random order of a round."""
  order = list(settings)
  random.Random(number).shuffle(order)
  return order


def _interleaved(results: Results, how: How,
                 progress: Callable[[float, str], None]) -> None:
  """Starts all workers, then takes one sample of each in every round."""
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


def _fresh(results: Results, how: How,
           progress: Callable[[float, str], None]) -> None:
  """Starts a new process for each setting in every round."""
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
  """Returns CPU time on a CPU, which other processes disturb less; else wall.
  """
  return sample.cpu if how.cpu else sample.wall


def _series(measured: Measured, how: How) -> dict[int, float]:
  """Returns round -> time, or peak memory, that ratios are computed from."""
  if measured.samples:
    return {number: _trusted(sample, how)
            for number, sample in measured.samples.items()}
  return {number: info['peak_kib'] for number, info in enumerate(
      measured.info) if 'peak_kib' in info}


def _beside(measured: Measured, how: How) -> dict[int, float]:
  """Returns round -> time of the unit in the same process; {} without one."""
  times = {number: sample.unit_cpu if how.cpu else sample.unit_wall
           for number, sample in measured.samples.items()}
  return {number: each for number, each in times.items()
          if not math.isnan(each)}


def _fastest(results: Results, units: Sequence[sweep.Setting],
             how: How) -> dict[int, float]:
  """Returns the series of the unit with the least median; {} if none ran."""
  all_series = [_series(results[unit], how) for unit in units
                if not results[unit].failure]
  return min((series for series in all_series if series), default={},
             key=lambda series: np.median(list(series.values())))


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
  """Returns the median and the quartiles of some values."""
  low, middle, high = np.percentile(values, (25, 50, 75))
  return {name: middle, f'{name}_low': low, f'{name}_high': high}


def _metrics(measured: Measured, unit: Mapping[int, float],
             how: How) -> dict[str, float]:
  """Returns metric -> value, for the rows of a setting."""
  metrics = {'accelerator': float(not how.cpu)} | measured.failure
  if measured.failure:
    return metrics
  samples = measured.samples.values()
  if samples:
    metrics |= _spread('cpu_ms', [1e3 * sample.cpu for sample in samples])
    metrics |= _spread('wall_ms', [1e3 * sample.wall for sample in samples])
    metrics['steps'] = float(sum(sample.steps for sample in samples))
    metrics['others'] = float(np.median([sample.others for sample in samples]))
  for name in _REPEATED:
    values = [info[name] for info in measured.info if name in info]
    if values:
      metrics |= _spread(name, values)
  last = measured.info[-1]
  metrics |= {name: last[name] for name in _CONSTANT if name in last}
  series = _series(measured, how)
  both = sorted(series.keys() & unit.keys())
  if both and all(unit[number] > 0 for number in both):
    metrics |= _spread('ratio', [series[number] / unit[number]
                                 for number in both])
  metrics['rounds'] = float(max(len(samples), len(measured.info)))
  return {name: value for name, value in metrics.items()
          if not math.isnan(value)}
