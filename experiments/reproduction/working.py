"""Processes that do one task after the other, and how they are spoken to.

A worker reads names of tasks from its standard input, a line each, and answers
each with a line of JSON on what was its standard output; what libraries print
goes to its log. It ends when its input does, also in the middle of a task: then
nobody is there to answer.
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
  """Answers tasks until there are no more.

  Args:
    do: task -> instance of a dataclass of plain values.

  Raises:
    KeyboardInterrupt: whoever asks has gone, or sent SIGTERM.
  """
  # An interrupt from the keyboard reaches all processes; who asks decides.
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
  for line in sys.stdin:
    tasks.put(line.strip())
  tasks.put(None)
  if busy.is_set():  # whoever asked has gone
    os.kill(os.getpid(), signal.SIGTERM)


class Worker:
  """A process that serves."""

  def __init__(self, command: Sequence[str], log: pathlib.Path,
               environ: Mapping[str, str]):
    """Starts it.

    Args:
      command: the program and its words.
      log: file that what it prints is added to.
      environ: the whole environment.
    """
    with open(log, 'ab') as file:
      self._process = subprocess.Popen(
          command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
          env=environ, text=True)
    self._log = log

  def ask(self, task: str) -> dict[str, Any]:
    """Returns the answer to a task.

    Raises:
      RuntimeError: the process ended instead; says how.
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
    """Lets it end, if it has not; it must be idle."""
    self._process.stdin.close()
    self._process.wait()
    self._process.stdout.close()

  def stop(self) -> None:
    """Ends it, whatever it does."""
    self._process.terminate()
    try:
      self._process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()
