"""Records which tests execute which line of a package."""

from collections.abc import Callable, Mapping
import hashlib
import json
import pathlib
from typing import Any, NamedTuple

from launch.mutation import places
from launch.mutation import pool

_LIMIT_S = 3600  # Time limit for one file of tests, in seconds.
# Increase this version whenever `worker.Recorder` writes another format.
_FORMAT = b'1'


class Coverage(NamedTuple):
  """The tests that execute each line, and their run times.

  Attributes:
    seconds: run time of each test that passes without a fault.
    by_line: ids of the tests that execute a line, by (file, line).
    by_file: ids of the tests that execute any line of a file when they run.
    importers: ids of all tests in the test files that import a file.
    failed: ids of tests that fail or are skipped without a fault.
  """
  seconds: dict[str, float]
  by_line: dict[tuple[str, int], set[str]]
  by_file: dict[str, set[str]]
  importers: dict[str, set[str]]
  failed: list[str]

  def of(self, file: str, line: int) -> list[str]:
    """Returns tests that may notice a fault in a line, likeliest first.

    A line that only an import executes, such as a constant's, counts as
    executed by all tests that import its file.
    """
    tests = self.by_line.get((file, line))
    if tests is None:
      return []
    tests = tests or self.importers[file]
    running = self.by_file.get(file, set())
    own = pathlib.Path(file).stem
    # The module's own tests are likeliest to fail, then tests that run any of
    # its lines; among equals, quick tests come first.
    return sorted(tests, key=lambda test: (
        pathlib.Path(test.split('::')[0]).stem != f'{own}_test',
        test not in running, self.seconds[test], test))


def _digest(place: places.Place, test: str) -> str:
  """Returns a digest of all files that the coverage of a test file needs."""
  parts = [*place.sources(), *place.helpers(), test]
  contents = [_FORMAT, place.library.encode()]
  for part in parts:
    contents += [part.encode(), (place.root / part).read_bytes()]
  return hashlib.sha256(b'\0'.join(
      b'%d:%s' % (len(content), content) for content in contents)).hexdigest()


def _merge(coverage: Coverage, executed: Mapping[str, Any]) -> None:
  """Adds the lines that one file of tests executes."""
  tests = executed['tests']
  coverage.seconds.update(tests)
  coverage.failed.extend(executed['failed'])
  for file, lines_by_test in executed['lines'].items():
    coverage.importers.setdefault(file, set()).update(tests)
    for name, lines in lines_by_test.items():
      # Contexts: '' for lines run by imports, 'shared' for those of fixtures.
      running = {name} & set(tests) if name not in ('', 'shared') else (
          set(tests) if name else set())
      coverage.by_file.setdefault(file, set()).update(running)
      for line in lines:
        coverage.by_line.setdefault((file, line), set()).update(running)


def collect(place: places.Place, folder: pathlib.Path,
            each: Callable[[Callable[[pool.Worker, str], None], list[str]],
                           None]) -> Coverage:
  """Runs the tests of a package once, or reads results of earlier runs.

  Args:
    place: the package, in the copy of a worker.
    folder: folder for results, one file for each file of tests. A result holds
      until the sources, the helpers of tests or the test file change.
    each: calls a function of a worker and an item for all items.

  Raises:
    ValueError: if a file of tests does not run to its end.
  """
  folder.mkdir(parents=True, exist_ok=True)
  paths = {test: folder / f'{_digest(place, test)}.json'
           for test in place.tests()}

  def record(worker: pool.Worker, test: str) -> None:
    answer = worker.record(test, paths[test], limit_s=_LIMIT_S)
    if not paths[test].exists():
      raise ValueError(f'{test}: {answer["outcome"]}: {worker.log()[-2000:]}')
  each(record, [test for test, path in paths.items() if not path.exists()])
  coverage = Coverage({}, {}, {}, {}, [])
  for path in paths.values():
    _merge(coverage, json.loads(path.read_text(encoding='utf-8')))
  return coverage
