"""Runs a whole reproduction: workers, lines of progress, the page."""

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import datetime
import functools
import os
import pathlib
import sys
import time
from typing import TextIO

from dpjax.report import files
from experiments.reproduction import plans
from experiments.reproduction import pool
from experiments.reproduction import running
from experiments.reproduction import sections
from experiments.reproduction import working

PAGE = 'index.html'
LOG = 'worker_{}.log'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """Options of a reproduction.

  Attributes:
    output_dir: folder of the page, and of a folder for each experiment.
    num_workers: number of processes.
    worker: command line of the worker program.
    command: command line of the reproduction, for the page.
    quick: True if each experiment may take seconds only; experiments that
      measure time then run beside others.
  """
  output_dir: str | os.PathLike
  num_workers: int
  worker: Sequence[str]
  command: str
  quick: bool


def run(chosen: Mapping[str, plans.Plan], options: Options,
        out: TextIO = sys.stderr) -> dict[str, running.Outcome]:
  """Runs the plans and writes the page, even if it is interrupted.

  Args:
    chosen: name -> plan.
    options: options of the reproduction.
    out: stream for progress, one line for each experiment.

  Returns:
    Name -> outcome, of all finished experiments.
  """
  folder = pathlib.Path(options.output_dir)
  folder.mkdir(parents=True, exist_ok=True)
  outcomes: dict[str, running.Outcome] = {}
  progress = _Progress(chosen, out)
  try:
    for names, count in _shifts(chosen, options):
      environ = pool.environ(count, pool.num_cores(), os.environ)
      make = functools.partial(_worker, options, environ)
      with contextlib.closing(pool.run(names, count, make)) as events:
        for event in events:
          if event.kind == pool.STARTED:
            progress.start(event.task)
          else:
            outcome = _outcome(event, chosen[event.task])
            outcomes[event.task] = outcome
            progress.finish(outcome)
  finally:
    text = sections.render(chosen, outcomes, folder, options.command)
    files.replace(folder / PAGE, text.encode())
  return outcomes


def _worker(options: Options, environ: Mapping[str, str],
            index: int) -> working.Worker:
  """Starts a worker with a log file of its own."""
  return working.Worker(options.worker, pathlib.Path(options.output_dir)
                        / LOG.format(index), environ)


def _outcome(event: pool.Event, plan: plans.Plan) -> running.Outcome:
  """Returns the outcome in an event, or one with the worker's error."""
  if event.answer:
    return running.Outcome(**event.answer)
  return running.Outcome(event.task, planned=len(plan.settings),
                         error=event.error)


def _shifts(chosen: Mapping[str, plans.Plan],
            options: Options) -> list[tuple[list[str], int]]:
  """Returns (experiments, number of workers) for each phase.

  Experiments that need an idle machine come last, one at a time. In each
  phase the longest starts first.
  """
  order = sorted(chosen, key=lambda name: -chosen[name].seconds)
  alone = [name for name in order
           if chosen[name].experiment.alone and not options.quick]
  together = [name for name in order if name not in alone]
  return [(names, min(count, len(names)))
          for names, count in ((together, options.num_workers), (alone, 1))
          if names]


def format_seconds(seconds: float) -> str:
  """Returns a duration as text, such as '0:01:20'."""
  return str(datetime.timedelta(seconds=round(seconds)))


class _Progress:
  """Prints a line for each finished experiment."""

  def __init__(self, chosen, out):
    self._chosen = chosen
    self._out = out
    self._begin = time.monotonic()
    self._current: list[str] = []
    self._finished = 0
    self._done = 0.0
    self._left = sum(plan.seconds for plan in chosen.values())

  def start(self, name: str) -> None:
    """Notes that an experiment is running now."""
    self._current.append(name)

  def finish(self, outcome: running.Outcome) -> None:
    """Prints the outcome of an experiment, and the estimated time left."""
    self._current.remove(outcome.name)
    self._finished += 1
    cost = self._chosen[outcome.name].seconds
    self._left -= cost
    # An experiment that had its rows already says nothing about the speed of
    # this machine.
    if outcome.seconds > 0.1 * cost:
      self._done += cost
    elapsed = time.monotonic() - self._begin
    left = (format_seconds(elapsed * self._left / self._done)
            if self._done else '?')
    print(f'[{self._finished}/{len(self._chosen)}] {outcome.name}: '
          f'{sections.brief(outcome)}, {outcome.seconds:.0f} s '
          f'({outcome.cpu_seconds:.0f} of CPU); '
          f'{format_seconds(elapsed)} elapsed, about '
          f'{left} left'
          f'{"; running " if self._current else ""}'
          f'{", ".join(self._current)}', file=self._out, flush=True)
