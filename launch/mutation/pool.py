"""Worker processes, each with a scratch copy in which it runs tests."""

import ast
from collections.abc import Mapping, Sequence
import contextlib
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from launch.mutation import operators
from launch.mutation import places

_SCRIPT = pathlib.Path(__file__).with_name('worker.py')


class Worker:
  """A scratch copy and the process, with libraries loaded, that tests it.

  Attributes:
    root: root of the scratch copy.
  """

  def __init__(self, place: places.Place, folder: pathlib.Path) -> None:
    """Copies the repository and starts the process.

    Args:
      place: names the repository to copy.
      folder: folder for the copy and the log of the process.
    """
    self._place = place
    self.root = folder / 'copy'
    self._log = folder / 'log.txt'
    places.copy(place.root, self.root)
    environ = {**os.environ, 'PYTHONPATH': str(self.root),
               'PYTHONDONTWRITEBYTECODE': '1'}
    # Many tests spend most time in compilation, and a mutant changes few
    # programs, so compiled programs are cached.
    environ.setdefault('JAX_COMPILATION_CACHE_DIR',
                       str(folder.parent / 'jax_cache'))
    environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0')
    self._process = subprocess.Popen(
        [sys.executable, '-P', str(_SCRIPT)], cwd=self.root, env=environ,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    conftest = self.root / 'tests' / 'conftest.py'
    self._ask({'run': [str(conftest)] if conftest.exists() else [],
               'imports': _libraries(self.root, place.library)})

  def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
    """Sends a request to the process and returns its answer."""
    requests, answers = self._process.stdin, self._process.stdout
    assert requests is not None and answers is not None
    requests.write(json.dumps(request) + '\n')
    requests.flush()
    line = answers.readline()
    if not line:
      raise OSError('a process that runs tests has ended')
    return json.loads(line)

  def watch(self, tests: Sequence[str], expected_s: Mapping[str, float], *,
            limit_s: float, grace_s: float = 60.) -> dict[str, Any]:
    """Runs tests until one fails; returns as `worker.run`.

    Args:
      tests: ids of the tests, in the order in which they run.
      expected_s: seconds of each test without a fault.
      limit_s: seconds for all tests together.
      grace_s: a test hangs if it takes longer than this plus ten times its
        expected seconds; the margin allows for a busy machine.
    """
    return self._ask({'kind': 'watch', 'tests': list(tests),
                      'expected_s': {test: expected_s[test] for test in tests},
                      'grace_s': grace_s, 'limit_s': limit_s,
                      'log': str(self._log)})

  def record(self, test: str, output: pathlib.Path, *,
             limit_s: float) -> dict[str, Any]:
    """Runs a file of tests and writes which lines each test executes."""
    return self._ask({'kind': 'record', 'tests': [test], 'limit_s': limit_s,
                      'package': self._place.library, 'output': str(output),
                      'log': str(self._log)})

  def log(self) -> str:
    """Returns what pytest printed in the last run."""
    return self._log.read_text(encoding='utf-8', errors='replace')

  @contextlib.contextmanager
  def mutated(self, mutant: operators.Mutant):
    """Plants a mutant in the scratch copy while the context is open."""
    path = self.root / mutant.file
    source, times = path.read_bytes(), path.stat()
    path.write_bytes(mutant.apply(source))
    try:
      yield
    finally:
      path.write_bytes(source)
      # Python matches compiled files to sources by modification time.
      os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

  def close(self) -> None:
    """Ends the process and the tests that it runs."""
    self._process.terminate()
    self._process.communicate()


def _libraries(root: pathlib.Path, package: str) -> list[str]:
  """Returns the modules that the package or its tests import from elsewhere."""
  local = {path.name.removesuffix('.py') for path in root.iterdir()}
  names = {'pytest'}
  for folder in (package, 'tests'):
    for path in (root / folder).rglob('*.py'):
      for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Import):
          names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and (
            not node.level):
          names.add(node.module)
          names |= {f'{node.module}.{alias.name}' for alias in node.names}
  return sorted(name for name in names if name.split('.')[0] not in local)
