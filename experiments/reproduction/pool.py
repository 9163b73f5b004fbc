"""Several workers that share one list of tasks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import os
import queue
import threading
from typing import Any, NamedTuple

from experiments.reproduction import working

STARTED, FINISHED, _LEFT = 'started', 'finished', 'left'


class Event(NamedTuple):
  """Something that happened to a task.

  Attributes:
    kind: STARTED or FINISHED.
    task: its name.
    answer: of the worker; None where it is only started, or failed.
    error: why there is no answer.
  """
  kind: str
  task: str
  answer: dict[str, Any] | None = None
  error: str = ''


def environ(num_workers: int, num_cores: int,
            base: Mapping[str, str]) -> dict[str, str]:
  """Returns the environment of one of several workers.

  Each takes its share of the cores: threads of several processes that each
  believe to have all of them wait for each other.

  Args:
    num_workers: that run at once.
    num_cores: of the machine.
    base: the environment otherwise.
  """
  if num_workers == 1:
    return dict(base)
  share = str(max(1, num_cores // num_workers))
  return {'PJRT_NPROC': share, 'OMP_NUM_THREADS': share,
          'OPENBLAS_NUM_THREADS': share, **base}


def num_cores() -> int:
  """Returns how many cores this process may use."""
  return (len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity')
          else os.cpu_count() or 1)


def run(tasks: Sequence[str], num_workers: int,
        make: Callable[[int], working.Worker]) -> Iterator[Event]:
  """Yields what happens until all tasks are done.

  A worker that ends in the middle of a task is replaced. If the iterator is
  closed early, or what handles an event raises, all workers are stopped.

  Args:
    tasks: in the order in which they are begun.
    num_workers: processes.
    make: index -> a worker; it is made when there is a task for it.
  """
  crew = _Crew(tasks, make)
  threads = [threading.Thread(target=crew.serve, args=(index,), daemon=True)
             for index in range(num_workers)]
  for thread in threads:
    thread.start()
  left = 0
  try:
    while left < num_workers:
      event = crew.events.get()
      if event.kind == _LEFT:
        left += 1
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
    """Hands tasks to one worker until there are none."""
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
    """Ends all workers, whatever they do."""
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
    try:
      return Event(FINISHED, task, self._worker(index).ask(task))
    except (RuntimeError, OSError) as error:
      with self._lock:
        worker = self._workers.pop(index, None)
      if worker:
        worker.close()
      return Event(FINISHED, task, None, str(error))

  def _worker(self, index: int) -> working.Worker:
    with self._lock:
      if self._stopped:
        raise RuntimeError('stopped')
      if index not in self._workers:
        self._workers[index] = self._make(index)
      return self._workers[index]
