"""Starts worker processes, sends them requests, and ends slow ones."""

import json
import os
import pickle
import select
import subprocess
import sys
import tempfile
import time
from typing import Any

from dpjax.runs import environment
from experiments.benchmarks import methods
from experiments.benchmarks import worker
from experiments.benchmarks.program import Sample
from experiments.benchmarks.program import Spec

_KEPT_MEMORY = {'MALLOC_MMAP_THRESHOLD_': str(2**36),
                'MALLOC_TRIM_THRESHOLD_': str(2**36)}


class WorkerFailed(Exception):
  """Raised when a worker has ended or was too slow, with the reason.

  Attributes:
    timed_out: whether the worker was too slow.
  """

  def __init__(self, reason: str, *, timed_out: bool = False):
    """Stores the reason, one line of text."""
    super().__init__(reason)
    self.timed_out = timed_out


def _environ(spec: Spec) -> dict[str, str]:
  """Returns environment variables of a worker: flags, devices, no cache.

  OpenMP threads, used by PyTorch, sleep while they wait; spinning beside other
  processes has cost 30 times the CPU time of a step. The process keeps freed
  memory unless memory is measured: glibc returns blocks above 32 MB to the
  system, and mapping them again has taken a third of a step.
  """
  _, flags = methods.split(spec.method)
  if spec.suite == 'scaling':
    flags += f' --xla_force_host_platform_device_count={spec.num_devices}'
  kept = {} if spec.suite == 'memory' else _KEPT_MEMORY
  return {'OMP_WAIT_POLICY': 'passive', **kept, **os.environ,
          'JAX_ENABLE_COMPILATION_CACHE': 'false',
          'XLA_PYTHON_CLIENT_PREALLOCATE': 'false',
          'XLA_FLAGS': f'{os.environ.get("XLA_FLAGS", "")} {flags}'.strip()}


class Worker:
  """A process with one program; a context manager that ends it.

  Attributes:
    info: metrics of building the program and of its first steps.
  """

  def __init__(self, spec: Spec, timeout: float, *, audited: bool = False):
    """Starts the process and waits until it is ready.

    Args:
      spec: specification of the program.
      timeout: seconds that any answer may take.
      audited: True for `audit`, before which the program must not run.

    Raises:
      WorkerFailed: if the process ended or took too long.
    """
    self._timeout = timeout
    self._errors = tempfile.TemporaryFile()
    self._process = subprocess.Popen(
        [sys.executable, '-m', worker.__name__], cwd=environment.ROOT,
        env=_environ(spec), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=self._errors)
    self.info = self._ask(worker.first_line(spec, audited=audited))

  def sample(self, seconds: float) -> Sample:
    """Returns a sample of steps that take about `seconds`."""
    return Sample(**self._ask(json.dumps({'seconds': seconds})))

  def audit(self) -> dict[str, Any]:
    """Returns values that the program computed, see `checks`."""
    with tempfile.TemporaryDirectory() as folder:
      path = os.path.join(folder, 'audit')
      self._ask(json.dumps({'audit': path}))
      with open(path, 'rb') as file:
        return pickle.load(file)

  def close(self) -> None:
    """Ends the process."""
    self._process.kill()
    self._process.wait()
    self._process.stdin.close()
    self._process.stdout.close()
    self._errors.close()

  def __enter__(self) -> 'Worker':
    return self

  def __exit__(self, *_: object) -> None:
    self.close()

  def _ask(self, line: str) -> dict[str, Any]:
    """Sends a line and returns the answer; ends the process if that fails."""
    try:
      self._process.stdin.write(f'{line}\n'.encode())
      self._process.stdin.flush()
      return json.loads(self._read_line())
    except OSError as error:
      reason = self._last_words() or str(error)
    except ValueError as error:
      reason = f'not an answer: {error}'
    except BaseException:
      self.close()
      raise
    self.close()
    raise WorkerFailed(reason)

  def _read_line(self) -> bytes:
    """Reads one line of output within the timeout."""
    line, end = b'', time.monotonic() + self._timeout
    while not line.endswith(b'\n'):
      left = max(0.0, end - time.monotonic())
      if not select.select([self._process.stdout], [], [], left)[0]:
        raise WorkerFailed(f'over {self._timeout:g} s', timed_out=True)
      part = os.read(self._process.stdout.fileno(), 2**16)
      if not part:
        raise OSError('it ended')
      line += part
    return line

  def _last_words(self) -> str:
    """Returns the last line of the log, or the signal that ended it."""
    code = self._process.wait()
    self._errors.seek(0)
    lines = self._errors.read().decode(errors='replace').strip().splitlines()
    return f'killed by signal {-code}' if code < 0 else (lines or [''])[-1]
