"""What the machine says of itself and of a process. Linux; else unknown."""

import contextlib
import ctypes
import math
import os
import pathlib
import platform
import re

_STATUS = pathlib.Path('/proc/self/status')
_CLEAR = pathlib.Path('/proc/self/clear_refs')
_STAT = pathlib.Path('/proc/stat')
_OOM = pathlib.Path('/proc/self/oom_score_adj')


def _first(path: str, pattern: str, otherwise: str) -> str:
  with contextlib.suppress(OSError):
    if found := re.search(pattern, pathlib.Path(path).read_text()):
      return found.group(1).strip()
  return otherwise


def num_cores() -> int:
  """Cores that this process may use."""
  return len(os.sched_getaffinity(0))


def describe(device_kind: str) -> str:
  """The machine in a few words: accelerator if any, CPU, cores, memory."""
  cpu = _first('/proc/cpuinfo', r'model name\s*: (.*)', platform.machine())
  kib = _first('/proc/meminfo', r'MemTotal:\s*(\d+) kB', '')
  words = [] if device_kind == 'cpu' else [device_kind]
  words += [re.sub(r'\s+', ' ', cpu),
            f'{num_cores()} core{"s" * (num_cores() > 1)}']
  return ', '.join(words + [f'{round(int(kib) / 2**20)} GiB'] * bool(kib))


def forget_peak() -> float:
  """Gives free memory back; from here on the peak is counted. KiB now."""
  with contextlib.suppress(OSError, AttributeError):
    ctypes.CDLL('libc.so.6').malloc_trim(0)
  with contextlib.suppress(OSError):
    _CLEAR.write_text('5')
    return peak_kib()
  return math.nan


def peak_kib() -> float:
  """Most resident memory since `forget_peak`, KiB; NaN where unknown."""
  found = _first(str(_STATUS), r'VmHWM:\s*(\d+)', '')
  return float(found) if found else math.nan


def busy_seconds() -> float:
  """CPU seconds that all processes of the machine have taken; NaN: unknown."""
  try:
    fields = _STAT.read_text().split('\n', 1)[0].split()[1:]
  except OSError:
    return math.nan
  user, nice, system, _, _, irq, softirq, steal = map(float, fields[:8])
  total = user + nice + system + irq + softirq + steal
  return total / os.sysconf('SC_CLK_TCK')


def be_first_to_go() -> None:
  """When memory runs out, let it be this process that is killed."""
  with contextlib.suppress(OSError):
    _OOM.write_text('1000')
