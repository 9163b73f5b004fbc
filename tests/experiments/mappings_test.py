"""These tests check that programs are dropped before mappings run out.

LLVM needs memory mappings for each compiled program.
"""

import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from experiments import mappings

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_LIMIT = pathlib.Path('/proc/sys/vm/max_map_count')
_linux = pytest.mark.skipif(not _LIMIT.exists(), reason='counts are of Linux')


@pytest.mark.every(5)
@_linux
def test_dropped_programs_give_their_mappings_back():
  functions = [jax.jit(lambda x, shift=shift: x * shift + 1)
               for shift in range(6)]
  before = mappings.count()
  values = [float(function(jnp.float32(2))) for function in functions]
  full = mappings.count()
  assert full > before
  assert not mappings.drop_programs(most=full) and mappings.count() == full
  assert mappings.drop_programs(most=before)
  assert mappings.count() < full
  assert [float(function(jnp.float32(2))) for function in functions] == values


_FILLED = '''
import mmap, sys
import jax, jax.numpy as jnp
from experiments import mappings
jax.jit(lambda x: x * 3)(jnp.ones(3))
start, limit = mappings.count(), int(sys.argv[1])
kept = []
# Neighbours of unlike rights are not merged.
while mappings.count() < limit - 150:
  for _ in range(max(1, (limit - 150 - mappings.count()) // 2)):
    kept.append(mmap.mmap(-1, 4096, prot=mmap.PROT_READ))
    kept.append(mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE))
most = mappings.count() + 50 if sys.argv[2] == 'drop' else limit
kept_functions = []
for k in range(150):
  kept_functions.append(jax.jit(lambda x, k=k: x * 2 + k))
  kept_functions[-1](jnp.ones(3))
  if k % 5 == 0:
    mappings.drop_programs(most)
print('alive')
'''


@_linux
@pytest.mark.slow
def test_a_process_that_drops_programs_outlives_one_that_does_not():
  limit = int(_LIMIT.read_text())
  if limit > 200_000:
    pytest.skip('so many mappings take too long to fill')
  processes = {word: subprocess.run(
      [sys.executable, '-c', _FILLED, str(limit), word], cwd=_ROOT,
      capture_output=True, text=True, check=False,
      env={'PYTHONPATH': str(_ROOT), 'PATH': '/usr/bin:/bin'})
      for word in ('drop', 'keep')}
  assert processes['drop'].stdout == 'alive\n', processes['drop'].stderr
  assert processes['keep'].returncode < 0 and not processes['keep'].stdout
