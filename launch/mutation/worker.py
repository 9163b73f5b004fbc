"""Runs tests in forks of a process that has imported the slow libraries.

A script, not a module: `python -P worker.py`, started in the folder whose tests
it runs. It reads one JSON object per line from stdin and answers each with one
on stdout. The first object names the modules to import. The package under test
is imported only after a fork, so each fork sees the present sources.
"""

import functools
import importlib
import json
import os
import pathlib
import resource
import runpy
import select
import signal
import sys
import time
import traceback

# A mutant may allocate any amount of memory on a shared machine.
_MAX_BYTES = 16 << 30
# A test hangs if it takes that many times as long as expected.
_SLOWER = 10


class Watcher:
  """A pytest plugin that reports which test starts and which one fails."""

  def __init__(self, send):
    """Takes a function that sends one JSON object to the parent process."""
    self._send = send

  def pytest_runtest_logstart(self, nodeid):
    """Reports that a test starts."""
    self._send({'start': nodeid})

  def pytest_runtest_logreport(self, report):
    """Reports a test that failed."""
    if report.failed:
      self._send({'failed': report.nodeid})

  def pytest_collectreport(self, report):
    """Reports a file of tests that cannot be imported."""
    if report.failed:
      self._send({'failed': f'{report.nodeid} (import)'})


class Recorder:
  """A pytest plugin that records the lines that each test executes.

  Lines executed in fixtures count for all tests of the file, since fixtures may
  be shared. The caches of JAX and functools are cleared before each test,
  because only the first caller of a cached function executes its lines.
  """

  def __init__(self, package, root):
    """Takes the package to record and the folder that contains it."""
    # Imported here, since other jobs do not need it.
    import coverage
    self._root = root
    self._coverage = coverage.Coverage(
        data_file=None, config_file=False, source_pkgs=[package])
    self._coverage.start()
    self.tests = {}
    self.failed = set()

  def pytest_runtest_setup(self, item):
    """Starts recording the fixtures, which other tests may share."""
    del item
    _drop_caches(self._root)
    self._coverage.switch_context('shared')

  def pytest_runtest_call(self, item):
    """Starts recording the test itself."""
    self._coverage.switch_context(item.nodeid)

  def pytest_runtest_teardown(self, item):
    """Ends recording the test itself."""
    del item
    self._coverage.switch_context('shared')

  def pytest_runtest_logreport(self, report):
    """Adds up the seconds of a test; records if it failed or was skipped."""
    self.tests[report.nodeid] = (
        self.tests.get(report.nodeid, 0.) + report.duration)
    if not report.passed:
      self.failed.add(report.nodeid)

  def lines(self):
    """Returns executed lines by file, and by test, 'shared' or ''."""
    self._coverage.stop()
    data = self._coverage.get_data()
    executed = {}
    for path in data.measured_files():
      if pathlib.Path(path).is_relative_to(self._root):
        by_test = executed.setdefault(
            str(pathlib.Path(path).relative_to(self._root)), {})
        for line, tests in data.contexts_by_lineno(path).items():
          for test in tests:
            by_test.setdefault(test, []).append(line)
    return executed


def _drop_caches(root):
  """Clears the caches of JAX and of all functions in modules below `root`."""
  if 'jax' in sys.modules:
    sys.modules['jax'].clear_caches()
  for module in list(sys.modules.values()):
    path = getattr(module, '__file__', None)
    if path and path.startswith(f'{root}/'):
      for value in list(vars(module).values()):
        if isinstance(value, functools._lru_cache_wrapper):
          value.cache_clear()


def _pytest(words, plugin):
  """Runs pytest with a plugin and returns its exit status."""
  # The parent process has imported it before the fork.
  import pytest
  # The warning is about plugins that were imported before pytest started.
  return pytest.main(['-q', '-p', 'no:cacheprovider', '-p', 'no:cov',
                      '-p', 'no:xdist', '-W',
                      'ignore::pytest.PytestAssertRewriteWarning', *words],
                     plugins=[plugin])


def _watch(job, send):
  """Runs tests until one fails."""
  # `-m ''` overrides the default selection of markers, since all named tests
  # must run.
  status = _pytest(['-x', '-m', '', *job['tests']], Watcher(send))
  # Status 1 is a failed test, which the plugin has reported; larger ones mean
  # that pytest could not start.
  send({'status': int(status)})


def _record(job, send):
  """Runs tests and writes the lines that they execute."""
  recorder = Recorder(job['package'], os.getcwd())
  status = _pytest(job['tests'], recorder)
  lines = recorder.lines()
  pathlib.Path(job['output']).write_text(json.dumps({
      'tests': {test: seconds for test, seconds in recorder.tests.items()
                if test not in recorder.failed},
      'failed': sorted(recorder.failed), 'lines': lines}), encoding='utf-8')
  send({'status': int(status)})


_JOBS = {'watch': _watch, 'record': _record}


def _fork(job):
  """Starts a job in a new process group; returns its id and a pipe."""
  read, write = os.pipe()
  pid = os.fork()
  if pid:
    os.close(write)
    return pid, read
  try:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.close(read)
    with open(job['log'], 'wb') as log:
      os.dup2(log.fileno(), 1)
      os.dup2(log.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    send = lambda event: os.write(write, json.dumps(event).encode() + b'\n')
    _JOBS[job['kind']](job, send)
  except BaseException:
    traceback.print_exc()
  finally:
    sys.stdout.flush()
    os._exit(0)


def _events(read, deadline):
  """Yields the events that a fork sends; None once `deadline()` has passed."""
  rest = b''
  while True:
    left = deadline() - time.monotonic()
    if left <= 0 or not select.select([read], [], [], left)[0]:
      yield None
      return
    chunk = os.read(read, 1 << 16)
    if not chunk:
      return
    *lines, rest = (rest + chunk).split(b'\n')
    yield from map(json.loads, lines)


def run(job):
  """Runs one job in a fork and returns how it ended.

  Args:
    job: dictionary with `kind`, `log`, `limit_s` and the inputs of that kind.
      With `expected_s`, seconds by test, and `grace_s`, a test that takes far
      longer ends the job.

  Returns:
    Dictionary with `outcome`: 'passed', 'failed', 'hung', 'limit' or 'broken';
    `test`: the test that failed or hung; `started`: the number of tests that
    were started; and `seconds`.
  """
  start = time.monotonic()
  pid, read = _fork(job)
  try:
    answer = _follow(job, read, start + job['limit_s'])
  finally:
    for kill in (os.killpg, os.kill):
      try:
        kill(pid, signal.SIGKILL)
      except ProcessLookupError:
        # The fork has not become the leader of a process group yet.
        pass
    os.waitpid(pid, 0)
    os.close(read)
  return {**answer, 'seconds': time.monotonic() - start}


def _follow(job, read, end):
  """Reads events of a fork until it ends, a test fails, or time is up."""
  answer = {'outcome': 'broken', 'test': '', 'started': 0}
  expected, test_end = job.get('expected_s', {}), end
  for event in _events(read, lambda: min(end, test_end)):
    if event is None:
      answer['outcome'] = 'hung' if test_end < end else 'limit'
    elif 'start' in event:
      answer.update(test=event['start'], started=answer['started'] + 1)
      if event['start'] in expected:
        test_end = time.monotonic() + job['grace_s'] + _SLOWER * expected[
            event['start']]
    elif 'failed' in event:
      return {**answer, 'outcome': 'failed', 'test': event['failed']}
    elif event['status'] == 0:
      answer.update(outcome='passed', test='')
  return answer


def main():
  """Answers jobs until stdin ends."""
  # Exiting through SystemExit runs `finally` in `run`, which kills the fork.
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
  jobs, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), 'w')
  os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
  os.dup2(2, 1)
  first = json.loads(jobs.readline())
  sys.dont_write_bytecode = True
  for path in first['run']:
    runpy.run_path(path)
  for name in first['imports']:
    try:
      importlib.import_module(name)
    except ImportError:
      pass
  print(json.dumps({'outcome': 'ready'}), file=answers, flush=True)
  for line in jobs:
    print(json.dumps(run(json.loads(line))), file=answers, flush=True)


if __name__ == '__main__':
  main()
