"""What a worker runs, and how a sample of it is timed."""

from collections.abc import Callable, Mapping
import dataclasses
import statistics
import time
from typing import Any, NamedTuple

from experiments.benchmarks import machine

_MOST = 1000


class Sample(NamedTuple):
  """Some steps of one program.

  Attributes:
    wall: seconds of a step, or of one of what it repeats; median.
    cpu: over all threads of the process, likewise.
    steps: how many.
    others: cores that the rest of the machine kept busy meanwhile.
  """
  wall: float
  cpu: float
  steps: int
  others: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
  """What is to be made.

  Attributes:
    suite: of the benchmark.
    model: network or other work.
    size: of the batch, or how much is drawn.
    method: with its set of XLA flags.
    num_devices: to divide the batch over.
    clip_norm: of clipping methods, in all.
    noise_multiplier: of private methods.
    learning_rate: of plain SGD.
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
  """Something that can be timed.

  Attributes:
    step: one of it; returns when it is done.
    info: what making it told: seconds of compiling, scratch memory.
    times: takes seconds to fill; (wall, cpu) of each step. Most programs are
      timed by `time_steps`.
    tidy: what a step leaves behind is let go.
    repeats: how many of what is timed a step does.
    peak_kib: peak memory of an accelerator; None on CPU.
    audit: what it computed, see `checks`.
  """
  step: Callable[[], None]
  info: Mapping[str, float]
  times: Callable[[float], list[tuple[float, float]]] | None = None
  tidy: Callable[[], None] = lambda: None
  repeats: int = 1
  peak_kib: Callable[[], float] | None = None
  audit: Callable[[], Mapping[str, Any]] | None = None


def compiled(jitted: Any, *arguments: Any) -> tuple[Any, dict[str, float]]:
  """A function of `jax.jit` compiled, and what that took.

  Seconds of tracing and compiling, and scratch memory that XLA plans.
  """
  started = time.perf_counter()
  found = jitted.lower(*arguments).compile()
  return found, {
      'compile_seconds': time.perf_counter() - started,
      'temp_kib': found.memory_analysis().temp_size_in_bytes / 1024}


def time_steps(step: Callable[[], None],
               seconds: float) -> list[tuple[float, float]]:
  """(wall, cpu) seconds of each step, for as long as `seconds`, or one step."""
  found, end = [], time.perf_counter() + seconds
  while len(found) < _MOST:
    wall, cpu = time.perf_counter(), time.process_time()
    step()
    cpu = time.process_time() - cpu
    now = time.perf_counter()
    found.append((now - wall, cpu))
    if now >= end:
      break
  return found


def sample(program: Program, seconds: float) -> Sample:
  """A sample of about `seconds`."""
  busy, wall = machine.busy_seconds(), time.perf_counter()
  own = time.process_time()
  found = (program.times or (
      lambda limit: time_steps(program.step, limit)))(seconds)
  own = time.process_time() - own
  elapsed = time.perf_counter() - wall
  others = max(0.0, (machine.busy_seconds() - busy - own) / elapsed)
  program.tidy()
  walls, cpus = zip(*found, strict=True)
  wall, cpu = (statistics.median(times) / program.repeats
               for times in (walls, cpus))
  return Sample(wall, cpu, len(found), others)
