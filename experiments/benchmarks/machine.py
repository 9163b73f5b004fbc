"""Reads facts about the machine and a process from /proc, on Linux only."""

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
  """Returns the first match in a file, or `otherwise`."""
  with contextlib.suppress(OSError):
    if match := re.search(pattern, pathlib.Path(path).read_text()):
      return match.group(1).strip()
  return otherwise


def num_cores() -> int:
  """Returns the number of cores that this process may use."""
  return len(os.sched_getaffinity(0))


def describe(device_kind: str) -> str:
  """Describes the machine in a few words: accelerator, CPU, cores, memory."""
  cpu = _first('/proc/cpuinfo', r'model name\s*: (.*)', platform.machine())
  kib = _first('/proc/meminfo', r'MemTotal:\s*(\d+) kB', '')
  words = [] if device_kind == 'cpu' else [device_kind]
  words += [re.sub(r'\s+', ' ', cpu),
            f'{num_cores()} core{"s" * (num_cores() > 1)}']
  return ', '.join(words + [f'{round(int(kib) / 2**20)} GiB'] * bool(kib))


def forget_peak() -> float:
  """Returns free memory to the system and restarts the count of the peak.

  Returns:
    Resident memory now, in KiB; NaN where it is unknown.
  """
  with contextlib.suppress(OSError, AttributeError):
    ctypes.CDLL('libc.so.6').malloc_trim(0)
  with contextlib.suppress(OSError):
    _CLEAR.write_text('5')
    return peak_kib()
  return math.nan


def peak_kib() -> float:
  """Returns peak resident memory since `forget_peak`, KiB; NaN if unknown."""
  text = _first(str(_STATUS), r'VmHWM:\s*(\d+)', '')
  return float(text) if text else math.nan


def busy_seconds() -> float:
  """Returns CPU seconds used by all processes since boot; NaN if unknown."""
  try:
    fields = _STAT.read_text().split('\n', 1)[0].split()[1:]
  except OSError:
    return math.nan
  user, nice, system, _, _, irq, softirq, steal = map(float, fields[:8])
  total = user + nice + system + irq + softirq + steal
  return total / os.sysconf('SC_CLK_TCK')


def be_first_to_go() -> None:
  """Asks the system to kill this process first if memory runs out."""
  with contextlib.suppress(OSError):
    _OOM.write_text('1000')
