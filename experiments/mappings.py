"""Drops compiled programs before a process runs out of memory mappings.

Linux gives a process 65,530 mappings by default. Each program that XLA compiles
for a CPU takes a few of them and keeps them as long as its function lives. When
LLVM gets no more, it reports "Cannot allocate memory" and the process dies.
Long sweeps and test runs compile enough programs to reach the limit.
"""

import pathlib
import sys

MOST = 20_000
_MAPS = pathlib.Path('/proc/self/maps')


def count() -> int:
  """Returns how many memory mappings this process has; 0 if unknown."""
  return _MAPS.read_bytes().count(b'\n') if _MAPS.exists() else 0


def drop_programs(most: int = MOST) -> bool:
  """Drops all compiled programs if there are more mappings than `most`.

  Programs that are called again are compiled again.

  Returns:
    Whether they were dropped.
  """
  # A process that has not imported JAX has compiled nothing.
  jax = sys.modules.get('jax')
  if jax is None or count() <= most:
    return False
  jax.clear_caches()
  return True
