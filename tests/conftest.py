"""Sets strict modes for every test, and which tests a run takes."""

import collections
import gc
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def _use_flag(name: str, value: str) -> None:
  """Passes a flag to XLA, unless XLA would abort because it is unknown.

  A flag that is already set is not changed, so that workers get what their
  parent found out, and `XLA_FLAGS=--xla_cpu_use_fusion_emitters=true` tests
  what users have.
  """
  flags = os.environ.get('XLA_FLAGS', '')
  if name in flags:
    return
  flags = f'{flags} --{name}={value}'.strip()
  if not subprocess.run([sys.executable, '-c', 'import jax; jax.devices()'],
                        env={**os.environ, 'XLA_FLAGS': flags},
                        capture_output=True).returncode:
    os.environ['XLA_FLAGS'] = flags


# These flags come before jax starts. There are two host devices, since nothing
# may rely on there being one. The older kernels of XLA on CPU take a third less
# time to compile, which is where most tests spend their time.
_use_flag('xla_force_host_platform_device_count', '2')
_use_flag('xla_cpu_use_fusion_emitters', 'false')

import jax  # noqa: E402
import pytest  # noqa: E402

from experiments import mappings  # noqa: E402
from launch import rotation as rotations  # noqa: E402

jax.config.update('jax_numpy_dtype_promotion', 'strict')
jax.config.update('jax_numpy_rank_promotion', 'raise')
# Accelerators round the inputs of products, and tests compare to 1e-5.
jax.config.update('jax_default_matmul_precision', 'highest')
# Programs are many small objects that live long. Looking for cycles among them
# as often as Python does by default takes a twentieth of the time.
gc.set_threshold(50_000, 20, 20)

_QUICK = {'experiments', 'grads', 'launch', 'models', 'sparsity', 'stats',
          'train'}
_QUICK_FILES = {f'{name}_test' for name in (
    'battery', 'chain_bounds', 'inverse', 'k_norm', 'langevin', 'layers',
    'methods',
    'discriminators', 'doctest', 'local_sensitivity', 'shadow',
    'network', 'normalisation', 'other_losses', 'pointwise', 'pooling',
    'random_networks', 'reparametrisation', 'smooth')}

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_CUT_OFF = 'cut off by --time_limit'
# Of a table of at most so many cases, a default run takes one of so many.
_STEPS = ((4, 4), (8, 6), (16, 9), (32, 14), (float('inf'), 20))
# No release runs the code of these folders.
_IN_TURNS = {'experiments', 'theory'}


def pytest_addoption(parser):
  """Adds the flags that choose tests."""
  group = parser.getgroup('dpjax', 'which tests of dpjax a run takes')
  group.addoption('--rotation', type=int, metavar='R', help=(
    'Which cases of the tables the default run takes: an integer, such as a '
    'header of a run shows. Default: a hash of the commit.'))
  group.addoption('--slow_share', metavar='I/N', help=(
    'Run slow tests instead of the default ones: share I of N, from 1/N to '
    'N/N; rotating/N is the share that the rotation picks.'))
  group.addoption('--time_limit', type=float, metavar='MINUTES', help=(
    'Start no test later than this, and say how many were cut off.'))


def pytest_configure(config):
  """Decides what the flags leave open, and passes it to workers."""
  option = config.option
  if option.rotation is None:
    option.rotation = rotations.of_checkout(_ROOT)
  if option.slow_share:
    try:
      share = rotations.parse(option.slow_share, option.rotation)
    except ValueError as error:
      raise pytest.UsageError(f'--slow_share: {error}') from None
    option.slow_share = str(share)
    option.markexpr = 'slow and not paper'
  if option.time_limit and not hasattr(option, 'last_start'):
    option.last_start = time.time() + 60 * option.time_limit
  _share_programs(config)


def _share_programs(config):
  """Lets workers, and commands that tests start, share compiled programs.

  Programs that are compiled in less than 0.05 s are not worth a file.
  """
  name = 'JAX_COMPILATION_CACHE_DIR'
  if name not in os.environ:
    folder = tempfile.TemporaryDirectory(prefix='programs_of_tests_')
    config.add_cleanup(folder.cleanup)
    os.environ |= {name: folder.name,
                   'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0.05',
                   'JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES': '-1'}


def pytest_report_header(config):
  """Says how to choose the same tests again."""
  share = config.option.slow_share
  return f'chosen by --rotation={config.option.rotation}' + (
    f' --slow_share={share}' if share else '')


def pytest_collection_modifyitems(config, items):
  """Marks cases that the default run skips as slow.

  Of a longer table it takes a smaller part, see `_STEPS`, or one case of as
  many as the mark `every` says; which ones rotates. A test of a single case
  with that mark is taken by one of that many rotations, and one of
  reproductions and lower bounds by every third.
  It takes all tests with the mark `sound`, all of a table of refusals, where
  each case is another quick check, and a case that is asked for by its name. A
  share of slow tests runs in an order that rotates by file, so that a time
  limit does not always cut off the same ones.
  """
  option = config.option
  name = lambda item: item.nodeid.split('[')[0].removeprefix('tests/')
  asked = lambda item: any(each.endswith(item.nodeid) for each in config.args)
  kept = [item for item in items if item.get_closest_marker('slow') is None]
  sizes, seen = (collections.Counter(map(name, kept)), collections.Counter())
  for item in kept:
    table, every = name(item), item.get_closest_marker('every')
    step = every.args[0] if every else (
        _step(table, sizes[table]))
    always = item.get_closest_marker('sound') or asked(item)
    if not always and not rotations.keeps(table, seen[table], step,
                                          option.rotation):
      item.add_marker(pytest.mark.slow)
    seen[table] += 1
  if option.slow_share:
    share = rotations.parse(option.slow_share, option.rotation)
    left_out = [item for item in items
                if not rotations.takes(share, item.nodeid)]
    files = sorted({item.nodeid.split('::')[0] for item in items})
    first = option.rotation % max(len(files), 1)
    turn = {each: (index - first) % len(files)
            for index, each in enumerate(files)}
    taken = set(items) - set(left_out)
    items[:] = sorted((item for item in items if item in taken),
                      key=lambda item: turn[item.nodeid.split('::')[0]])
    config.hook.pytest_deselected(items=left_out)


def _step(table: str, size: int) -> int:
  """Returns which part of a table without a mark a default run takes: 1/n."""
  if 'refus' in table.split('::')[-1]:
    return 1
  if size <= 2:
    return 3 if table.split('/')[0] in _IN_TURNS else 1
  return next(step for most, step in _STEPS if size <= most)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
  """Starts no test after the time limit."""
  if time.time() > getattr(item.config.option, 'last_start', float('inf')):
    pytest.skip(_CUT_OFF)


def pytest_terminal_summary(terminalreporter):
  """Says loudly if tests were not run."""
  cut = sum(_CUT_OFF in str(report.longrepr)
            for report in terminalreporter.stats.get('skipped', ()))
  if cut:
    terminalreporter.write_sep('!', f'{cut} TESTS NOT RUN: {_CUT_OFF}', red=True)


@pytest.fixture(scope='module', autouse=True)
def quick_compilation(request):
  """Disables optimisation where it takes longer than running.

  Certificates, norms of gradients, noise and audits are compiled as users have
  them.
  """
  path = pathlib.Path(request.path)
  folder = path.relative_to(pathlib.Path(__file__).parent).parts[0]
  jax.config.update('jax_disable_most_optimizations',
                    folder in _QUICK or path.stem in _QUICK_FILES)
  yield
  jax.config.update('jax_disable_most_optimizations', False)


@pytest.fixture(scope='module', autouse=True)
def few_mappings():
  """Drops compiled programs before the process runs out of mappings."""
  yield
  mappings.drop_programs()
