"""Worker processes that do one task after another, and their protocol.

A worker reads names of tasks from its standard input, one in a line. It answers
each with a line of JSON on its original standard output; anything that
libraries print goes to its log. It ends when its input ends, even in the middle
of a task: then no process is left to read the answer.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
from typing import Any

_GRACE_SECONDS = 10.0


def serve(do: Callable[[str], Any]) -> None:
  """Answers tasks until the input ends.

  Args:
    do: task -> instance of a dataclass of plain values.

  Raises:
    KeyboardInterrupt: the parent process has ended, or sent SIGTERM.
  """
  # Ctrl-C reaches all processes of a terminal. Workers ignore it, and leave it
  # to the parent process to stop them.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, _interrupt)
  with os.fdopen(os.dup(sys.stdout.fileno()), 'w', encoding='utf-8') as answers:
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    tasks: queue.SimpleQueue = queue.SimpleQueue()
    busy = threading.Event()
    threading.Thread(target=_listen, args=(tasks, busy), daemon=True).start()
    while (task := tasks.get()) is not None:
      busy.set()
      answer = dataclasses.asdict(do(task))
      busy.clear()
      answers.write(json.dumps(answer) + '\n')
      answers.flush()


def _interrupt(signum, frame):
  raise KeyboardInterrupt


def _listen(tasks: queue.SimpleQueue, busy: threading.Event) -> None:
  """Queues lines of the input; at its end, stops a worker that is busy."""
  for line in sys.stdin:
    tasks.put(line.strip())
  tasks.put(None)
  if busy.is_set():  # the parent has ended during a task
    os.kill(os.getpid(), signal.SIGTERM)


class Worker:
  """A worker process, seen from its parent."""

  def __init__(self, command: Sequence[str], log: pathlib.Path,
               environ: Mapping[str, str]):
    """Starts the process.

    Args:
      command: program and its arguments.
      log: file that its output is appended to.
      environ: all environment variables.
    """
    with open(log, 'ab') as file:
      self._process = subprocess.Popen(
          command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
          env=environ, text=True)
    self._log = log

  def ask(self, task: str) -> dict[str, Any]:
    """Sends a task and returns the answer.

    Raises:
      RuntimeError: the process ended without an answer.
    """
    try:
      self._process.stdin.write(task + '\n')
      self._process.stdin.flush()
      line = self._process.stdout.readline()
    except BrokenPipeError:
      line = ''
    if not line.endswith('\n'):
      raise RuntimeError(f'its process ended with status '
                         f'{self._process.wait()}; see {self._log}')
    return json.loads(line)

  def close(self) -> None:
    """Ends an idle process by closing its input, and waits for it."""
    self._process.stdin.close()
    self._process.wait()
    self._process.stdout.close()

  def stop(self) -> None:
    """Ends the process, even in the middle of a task."""
    self._process.terminate()
    try:
      self._process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()
