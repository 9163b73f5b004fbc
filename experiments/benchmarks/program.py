"""Programs that a worker runs, and the timing of a sample of their steps."""

from collections.abc import Callable, Mapping
import dataclasses
import math
import statistics
import time
from typing import Any, NamedTuple

from experiments.benchmarks import machine

_MOST = 1000


class Sample(NamedTuple):
  """Times of some steps of one program.

  Attributes:
    wall: median wall seconds of a step, divided by the program's `repeats`.
    cpu: median CPU seconds over all threads of the process, divided likewise.
    steps: number of steps.
    others: cores that other processes kept busy during these steps.
    unit_wall: median wall seconds of the program's `unit`, NaN without one.
    unit_cpu: median CPU seconds of the program's `unit`.
  """
  wall: float
  cpu: float
  steps: int
  others: float
  unit_wall: float = math.nan
  unit_cpu: float = math.nan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
  """Specification of the program that a worker builds.

  Attributes:
    suite: name of the suite.
    model: name of the network or of other work.
    size: batch size, or the number of values to draw.
    method: name of the method, with its set of XLA flags.
    num_devices: number of devices over which the batch is divided.
    clip_norm: clip norm of the whole gradient, for methods that clip.
    noise_multiplier: noise multiplier of private methods.
    learning_rate: learning rate of plain SGD.
  """
  suite: str
  model: str
  size: int
  method: str
  num_devices: int = 1
  clip_norm: float = 1.0
  noise_multiplier: float = 1.0
  learning_rate: float = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
  """A program that can be timed.

  Attributes:
    step: runs one step, and returns when it is done.
    info: metrics of building it, such as seconds of compiling.
    times: function of a number of seconds that runs steps for as long and
      returns (wall, cpu) seconds of each; None for `time_steps`.
    unit: a step by which the time of `step` is divided, run in turns with it;
      None if the unit is a program of its own.
    tidy: frees what a step has left behind.
    repeats: number of repetitions of the timed work in one step.
    peak_kib: returns the peak memory of an accelerator; None on CPU.
    audit: returns computed values, which `checks` compares; None if there is
      nothing to compare.
  """
  step: Callable[[], object]
  info: Mapping[str, float]
  times: Callable[[float], list[tuple[float, float]]] | None = None
  unit: Callable[[], object] | None = None
  tidy: Callable[[], None] = lambda: None
  repeats: int = 1
  peak_kib: Callable[[], float] | None = None
  audit: Callable[[], Mapping[str, Any]] | None = None


def compiled(jitted: Any, *arguments: Any) -> tuple[Any, dict[str, float]]:
  """Compiles a function of `jax.jit`; returns it with metrics of compiling.

  The metrics are seconds of tracing and compiling, and the scratch memory that
  XLA plans.
  """
  started = time.perf_counter()
  executable = jitted.lower(*arguments).compile()
  return executable, {
      'compile_seconds': time.perf_counter() - started,
      'temp_kib': executable.memory_analysis().temp_size_in_bytes / 1024}


def _timed(step: Callable[[], object]) -> tuple[float, float]:
  """Runs a step; returns its (wall, cpu) seconds."""
  wall, cpu = time.perf_counter(), time.process_time()
  step()
  cpu = time.process_time() - cpu
  return time.perf_counter() - wall, cpu


def time_steps(step: Callable[[], object], seconds: float,
               unit: Callable[[], object] | None = None
               ) -> list[tuple[float, ...]]:
  """Returns (wall, cpu) seconds of each step; runs at least one step.

  Args:
    step: runs one step.
    seconds: no step starts after so many seconds.
    unit: another step, run after each one; its (wall, cpu) seconds follow.
  """
  times: list[tuple[float, ...]] = []
  end = time.perf_counter() + seconds
  while len(times) < _MOST:
    times.append(_timed(step) + (_timed(unit) if unit else ()))
    if time.perf_counter() >= end:
      break
  return times


def sample(program: Program, seconds: float) -> Sample:
  """Returns a sample of steps that take about `seconds`."""
  busy, wall = machine.busy_seconds(), time.perf_counter()
  own = time.process_time()
  step_times = (program.times or (lambda limit: time_steps(
      program.step, limit, program.unit)))(seconds)
  own = time.process_time() - own
  elapsed = time.perf_counter() - wall
  others = max(0.0, (machine.busy_seconds() - busy - own) / elapsed)
  program.tidy()
  medians = [statistics.median(times) / program.repeats
             for times in zip(*step_times, strict=True)]
  return Sample(*medians[:2], len(step_times), others, *medians[2:])
