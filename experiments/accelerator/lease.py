"""Runs units one after the other until a lease ends."""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import IO, NamedTuple

import portalocker

from dpjax.report import files
from experiments.accelerator import jobs
from experiments.accelerator import queue
from experiments.accelerator.queue import Places

RESERVE = 60.0
"""Seconds at the end of a lease that nothing runs in but writing out."""

REPORT = 'LEFT.txt'
LOG = 'log.txt'
_GRACE = 20.0  # Seconds from SIGTERM to SIGKILL, within the reserve.
_BEAT = 5.0  # Seconds between two entries of the journal.
# A job with so many failed units is left until the next lease.
_MOST_FAILED = 2

DONE = 'done'
STOPPED = 'stopped'
NOT_SAVED = 'stopped, and no checkpoint was written'
NO_ROWS = 'ended without an error and without all of its rows'
FAILED = 'failed'


class Ran(NamedTuple):
  """A unit that ran in this lease.

  Attributes:
    unit: the unit.
    seconds: how long it ran.
    outcome: one of the texts above, after `FAILED` with the exit status.
  """
  unit: jobs.Unit
  seconds: float
  outcome: str

  @property
  def is_fault(self) -> bool:
    """Returns whether something must be looked at."""
    return self.outcome not in (DONE, STOPPED)


@contextlib.contextmanager
def locked(state: pathlib.Path) -> Iterator[int]:
  """Locks a state folder; yields a descriptor that holds the lock.

  A unit inherits the descriptor. So the folder stays locked if this process is
  killed and the unit goes on.

  Raises:
    ValueError: if another queue, or a unit of a killed one, uses the folder.
  """
  state.mkdir(parents=True, exist_ok=True)
  descriptor = os.open(state / 'lock', os.O_RDWR | os.O_CREAT, 0o600)
  try:
    try:
      portalocker.lock(descriptor, portalocker.LockFlags.EXCLUSIVE |
                       portalocker.LockFlags.NON_BLOCKING)
    except portalocker.LockException:
      raise ValueError(
          f'{state} is used by another queue, or by a unit that a killed queue '
          'left behind; wait for it, or use another --state_dir') from None
    yield descriptor
  finally:
    os.close(descriptor)


def close_to_others(state: pathlib.Path) -> None:
  """Takes all rights of other users from the files of a state folder.

  Copying a folder may open its files, and checkpoints that others may read are
  rejected. Here they hold keys of public seeds, which are no secrets.
  """
  for path in (state, *state.rglob('*')):
    if not path.is_symlink():
      path.chmod(path.stat().st_mode & 0o700)


def command(words: Sequence[str]) -> list[str]:
  """Returns the command line of a program of `launch` with its flags."""
  return [sys.executable, '-m', f'launch.{words[0]}', *words[1:]]


def _environ(places: Places) -> dict[str, str]:
  """Returns the environment of a unit, with a cache of compiled programs."""
  compiled = str(places.state.absolute() / 'compiled')
  return {**os.environ, 'JAX_COMPILATION_CACHE_DIR': compiled}


def run(chosen: Sequence[jobs.Job], places: Places, *, seconds: float,
        lock: int, say: Callable[[str], None]) -> list[Ran]:
  """Runs units until nothing is left that fits in the lease.

  Args:
    chosen: the jobs, the most important first.
    places: folders of the queue.
    seconds: seconds of the lease from now on, with the reserve.
    lock: descriptor of the locked state folder.
    say: prints a line.

  Returns:
    The units that ran.

  Raises:
    KeyboardInterrupt: after the unit that ran has been stopped.
  """
  deadline = time.monotonic() + seconds - RESERVE
  journal, ran = queue.Journal(places.state), []
  refused: set[str] = set()
  try:
    while True:
      entry = queue.choose(queue.entries(chosen, places, journal),
                           deadline - time.monotonic(), refused)
      if entry is None:
        return ran
      say(f'{entry.unit.name}: {entry.left} settings, about '
          f'{entry.seconds / 60:.1f} minutes ({entry.source})')
      _run_unit(entry.unit, places, journal, deadline, lock, ran)
      say(f'{entry.unit.name}: {ran[-1].outcome} after '
          f'{ran[-1].seconds / 60:.1f} minutes')
      refused.add(entry.unit.name)
      name = entry.unit.job.name
      if sum(each.is_fault for each in ran
             if each.unit.job.name == name) >= _MOST_FAILED:
        refused.add(name)
  finally:
    write_report(chosen, places, journal, ran)


def _run_unit(unit: jobs.Unit, places: Places, journal: queue.Journal,
              deadline: float, lock: int, ran: list[Ran]) -> None:
  """Runs a unit until it ends or must stop; appends it to those that ran."""
  queue.add_committed(places, unit.job)
  state = places.state_of(unit.job)
  line = command(jobs.words(
      unit, rows=places.rows(unit.job).absolute(), state=state.absolute(),
      data_dir=places.data_dir))
  started, began = time.monotonic(), time.time()
  journal.begin(unit)
  with open(places.output / LOG, 'ab') as log:
    log.write(f'\n{unit.name}\n'.encode())
    log.flush()
    process = _start(line, places, lock, log)
    try:
      in_time = _wait(process, deadline, lambda: journal.update(
          unit, time.monotonic() - started))
    finally:
      _stop(process)
      journal.update(unit, time.monotonic() - started)
      outcome = _outcome(unit, places, process.returncode, began)
      ran.append(Ran(unit, time.monotonic() - started, outcome))
  if in_time and process.returncode and outcome != DONE:
    ran[-1] = ran[-1]._replace(
        outcome=f'{FAILED} with status {process.returncode}, see {LOG}')
  if outcome == NOT_SAVED:
    journal.update(unit, 0.0)  # Nothing of this run is left.
  if ran[-1].is_fault:
    journal.add_fault(unit)
  if outcome == DONE:
    journal.forget(unit)
    _drop_state(unit.job, places)


def _start(line: Sequence[str], places: Places, lock: int,
           log: IO[bytes]) -> subprocess.Popen[bytes]:
  """Starts a unit, in the folder of the checkout."""
  return subprocess.Popen(
      line, cwd=pathlib.Path(__file__).resolve().parents[2],
      env=_environ(places), stdin=subprocess.DEVNULL, stdout=log,
      stderr=subprocess.STDOUT, pass_fds=(lock,))


def _wait(process: subprocess.Popen[bytes], deadline: float,
          beat: Callable[[], None]) -> bool:
  """Waits for a process until a deadline; returns whether it ended."""
  while True:
    left = deadline - time.monotonic()
    if left <= 0:
      return process.poll() is not None
    try:
      process.wait(min(left, _BEAT))
      return True
    except subprocess.TimeoutExpired:
      beat()


def _stop(process: subprocess.Popen[bytes]) -> None:
  """Ends a process: by SIGTERM, and by SIGKILL if it takes too long."""
  if process.poll() is None:
    process.send_signal(signal.SIGTERM)
    try:
      process.wait(_GRACE)
    except subprocess.TimeoutExpired:
      process.kill()
      process.wait()


def _outcome(unit: jobs.Unit, places: Places, status: int,
             began: float) -> str:
  """Returns what became of a unit, from its rows and its checkpoints.

  Args:
    unit: the unit.
    places: folders of the queue.
    status: exit status of its process.
    began: time of its start, in seconds of the epoch.
  """
  finished = {row.id for row in queue.read_rows(places, unit.job)}
  if set(unit.ids) <= finished:
    return DONE
  if status == 0:
    return NO_ROWS
  newest = max((path.stat().st_mtime
                for path in places.state_of(unit.job).rglob('*')), default=0.0)
  return NOT_SAVED if unit.job.checkpoints and newest < began else STOPPED


def _drop_state(job: jobs.Job, places: Places) -> None:
  """Removes the checkpoints of a job that has all of its rows."""
  finished = {row.id for row in queue.read_rows(places, job)}
  if all(set(unit.ids) <= finished for unit in jobs.units(job)[0]):
    shutil.rmtree(places.state_of(job), ignore_errors=True)


def write_report(chosen: Sequence[jobs.Job], places: Places,
                 journal: queue.Journal, ran: Sequence[Ran]) -> str:
  """Writes what ran and what is left to the output folder; returns the text."""
  lines = ['Ran in this lease:', *(
      f'  {each.unit.name}: {each.outcome}, {each.seconds / 60:.1f} minutes'
      for each in ran)] if ran else ['Nothing ran in this lease.']
  left = queue.entries(chosen, places, journal)
  for line in dict.fromkeys(
      line for job in chosen for line in jobs.units(job)[1]):
    lines.append(line)
  lines += ['', 'Queue:', queue.table(left, places),
            f'{queue.size_of(places.state) / 1e6:,.0f} MB in the state folder, '
            'with compiled programs.',
            'Copy experiments/ over the checkout, and make the tables of what '
            'ran with launch.report or launch.benchmark --report.']
  text = '\n'.join(lines) + '\n'
  files.replace(places.output / REPORT, text.encode())
  return text
