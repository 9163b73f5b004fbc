"""A pool of worker processes that share one list of tasks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import os
import queue
import threading
from typing import Any, NamedTuple

from experiments.reproduction import working

STARTED, FINISHED, _LEFT = 'started', 'finished', 'left'


class Event(NamedTuple):
  """The start or the end of a task.

  Attributes:
    kind: STARTED or FINISHED.
    task: name of the task.
    answer: answer of the worker; None for a start or a failure.
    error: reason of the failure; '' if there is none.
  """
  kind: str
  task: str
  answer: dict[str, Any] | None = None
  error: str = ''


def environ(num_workers: int, num_cores: int,
            base: Mapping[str, str]) -> dict[str, str]:
  """Returns the environment variables of one of several workers.

  Each worker gets an equal number of threads. If every process used as many
  threads as there are cores, they would slow each other down.

  Args:
    num_workers: number of workers that run at once.
    num_cores: number of cores of the machine.
    base: the other variables, which take precedence.
  """
  if num_workers == 1:
    return dict(base)
  num_threads = str(max(1, num_cores // num_workers))
  return {'PJRT_NPROC': num_threads, 'OMP_NUM_THREADS': num_threads,
          'OPENBLAS_NUM_THREADS': num_threads, **base}


def num_cores() -> int:
  """Returns the number of cores that this process may use."""
  return (len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity')
          else os.cpu_count() or 1)


def run(tasks: Sequence[str], num_workers: int,
        make: Callable[[int], working.Worker]) -> Iterator[Event]:
  """Yields an event for each start and end, until all tasks are done.

  A worker that dies during a task is replaced. If the caller closes the
  iterator early, or raises while it handles an event, all workers are stopped.

  Args:
    tasks: names of the tasks, in the order in which they start.
    num_workers: number of processes.
    make: index -> worker; called when there is a task for it.
  """
  crew = _Crew(tasks, make)
  threads = [threading.Thread(target=crew.serve, args=(index,), daemon=True)
             for index in range(num_workers)]
  for thread in threads:
    thread.start()
  num_left = 0
  try:
    while num_left < num_workers:
      event = crew.events.get()
      if event.kind == _LEFT:
        num_left += 1
      else:
        yield event
  finally:
    crew.stop()
    for thread in threads:
      thread.join()


class _Crew:
  """Threads that each keep one worker busy."""

  def __init__(self, tasks, make):
    self.events: queue.SimpleQueue = queue.SimpleQueue()
    self._tasks: queue.SimpleQueue = queue.SimpleQueue()
    for task in tasks:
      self._tasks.put(task)
    self._make = make
    self._lock = threading.Lock()
    self._workers: dict[int, working.Worker] = {}
    self._stopped = False

  def serve(self, index: int) -> None:
    """Gives tasks to one worker until there are none left."""
    try:
      while not self._stopped and (task := self._next()) is not None:
        self.events.put(Event(STARTED, task))
        self.events.put(self._do(index, task))
    finally:
      with self._lock:
        worker = self._workers.pop(index, None)
      if worker:
        worker.close()
      self.events.put(Event(_LEFT, ''))

  def stop(self) -> None:
    """Stops all workers, even in the middle of a task."""
    with self._lock:
      self._stopped = True
      for worker in self._workers.values():
        worker.stop()

  def _next(self) -> str | None:
    try:
      return self._tasks.get_nowait()
    except queue.Empty:
      return None

  def _do(self, index: int, task: str) -> Event:
    """Returns the FINISHED event of a task; a worker that fails is dropped."""
    try:
      return Event(FINISHED, task, self._worker(index).ask(task))
    except (RuntimeError, OSError) as error:
      with self._lock:
        worker = self._workers.pop(index, None)
      if worker:
        worker.close()
      return Event(FINISHED, task, None, str(error))

  def _worker(self, index: int) -> working.Worker:
    """Returns the worker of this index, and starts it if there is none."""
    with self._lock:
      if self._stopped:
        raise RuntimeError('stopped')
      if index not in self._workers:
        self._workers[index] = self._make(index)
      return self._workers[index]
