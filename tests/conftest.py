"""Strict modes for every test: what is sloppy here fails here."""

import collections
import os
import pathlib
import subprocess
import sys


def _use_flag(name: str, value: str) -> None:
  """Passes a flag to XLA, which aborts at one it does not know.

  One that is set already is left alone: so workers get what their parent
  found out, and `XLA_FLAGS=--xla_cpu_use_fusion_emitters=true` tests what
  users have.
  """
  flags = os.environ.get('XLA_FLAGS', '')
  if name in flags:
    return
  flags = f'{flags} --{name}={value}'.strip()
  if not subprocess.run([sys.executable, '-c', 'import jax; jax.devices()'],
                        env={**os.environ, 'XLA_FLAGS': flags},
                        capture_output=True).returncode:
    os.environ['XLA_FLAGS'] = flags


# Before jax starts. Two host devices: nothing may rely on there being one.
# The older kernels of XLA on CPU take a third less time to compile, which is
# what most tests spend theirs on.
_use_flag('xla_force_host_platform_device_count', '2')
_use_flag('xla_cpu_use_fusion_emitters', 'false')

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update('jax_numpy_dtype_promotion', 'strict')
jax.config.update('jax_numpy_rank_promotion', 'raise')
# Accelerators round the inputs of products, and tests compare to 1e-5.
jax.config.update('jax_default_matmul_precision', 'highest')

_QUICK = {'experiments', 'grads', 'launch', 'models', 'sparsity', 'stats',
          'train'}
_QUICK_FILES = {f'{name}_test' for name in (
    'battery', 'chain_bounds', 'inverse', 'k_norm', 'langevin', 'layers',
    'methods',
    'discriminators', 'doctest', 'local_sensitivity', 'shadow',
    'network', 'normalisation', 'other_losses', 'pointwise', 'pooling',
    'random_networks', 'reparametrisation', 'smooth')}


def pytest_collection_modifyitems(items):
  """Marks what the default run leaves out of tables of cases as slow.

  Of three cases or more it takes every second, or as many as `every` says.
  Tables of refusals run whole: each case is another check, and takes an
  instant.
  """
  name = lambda item: item.nodeid.split('[')[0].removeprefix('tests/')
  kept = [item for item in items if item.get_closest_marker('slow') is None]
  sizes, seen = (collections.Counter(map(name, kept)), collections.Counter())
  for item in kept:
    table, every = name(item), item.get_closest_marker('every')
    step = every.args[0] if every else (
        2 if sizes[table] > 2 and 'refus' not in table.split('::')[-1] else 1)
    if seen[table] % step:
      item.add_marker(pytest.mark.slow)
    seen[table] += 1


@pytest.fixture(scope='module', autouse=True)
def quick_compilation(request):
  """What runs for an instant takes longer to optimise than to run.

  Certificates, norms of gradients, noise and audits are compiled as users
  have them.
  """
  path = pathlib.Path(request.path)
  folder = path.relative_to(pathlib.Path(__file__).parent).parts[0]
  jax.config.update('jax_disable_most_optimizations',
                    folder in _QUICK or path.stem in _QUICK_FILES)
  yield
  jax.config.update('jax_disable_most_optimizations', False)
