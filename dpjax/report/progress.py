"""Progress of a sweep and its estimated remaining time."""

from collections.abc import Callable
import datetime
import time
from typing import TextIO


def _format_seconds(seconds: float) -> str:
  return str(datetime.timedelta(seconds=round(seconds)))


class Progress:
  """Shows progress: one updated line on a terminal, else occasional lines.

  Settings of a group run together and finish together, so the finished fraction
  of a group counts towards the estimate.
  """

  def __init__(self, total: int, out: TextIO, *, interval: float = 10.,
               clock: Callable[[], float] = time.monotonic):
    """Starts the clock.

    Args:
      total: number of settings to run.
      out: stream to write to.
      interval: least seconds between lines if `out` is not a terminal.
      clock: returns the time in seconds.
    """
    self.finished = 0
    self._total = total
    self._out = out
    self._tty = out.isatty()
    self._interval = interval
    self._clock = clock
    self._start = clock()
    self._last_shown = -float('inf')
    self._width = 0
    self._group_start = 0
    self._group_size = 0

  def start_group(self, size: int) -> None:
    """Starts a group of `size` settings that run together."""
    self._group_start = self.finished
    self._group_size = size

  def fraction(self, done: float, note: str = '') -> None:
    """Reports the finished fraction of the current group, in [0, 1]."""
    self._show(self._group_start + min(1., max(0., done)) * self._group_size,
               note)

  def finish(self) -> None:
    """Reports that one more setting has its rows."""
    self.finished += 1
    self._show(self.finished, '')

  def close(self) -> None:
    """Ends the line on a terminal."""
    if self._tty and self._width:
      self._out.write('\n')
      self._out.flush()
      self._width = 0

  def _show(self, done: float, note: str) -> None:
    """Writes the line; `done` counts settings, with fractions of a group."""
    now = self._clock()
    last = self.finished == self._total
    if not (self._tty or last or now - self._last_shown >= self._interval):
      return
    self._last_shown = now
    done = max(done, self.finished)
    elapsed = now - self._start
    remaining = (_format_seconds(elapsed * (self._total - done) / done)
                 if done else '?')
    line = (f'{self.finished}/{self._total} settings, '
            f'{_format_seconds(elapsed)} elapsed, {remaining} left'
            f'{"; " if note else ""}{note}')
    if self._tty:
      # Blanks cover the rest of a longer line that was here before.
      self._out.write('\r' + line.ljust(self._width))
      self._width = len(line)
    else:
      self._out.write(line + '\n')
    self._out.flush()
