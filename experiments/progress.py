"""How far a sweep is, and how long it will still take."""

from collections.abc import Callable
import datetime
import time
from typing import TextIO


def _format_seconds(seconds: float) -> str:
  return str(datetime.timedelta(seconds=round(seconds)))


class Progress:
  """One line on a terminal; elsewhere a line now and then.

  Settings of a group finish together, hence the fraction of a group counts.
  """

  def __init__(self, total: int, out: TextIO, *, interval: float = 10.,
               clock: Callable[[], float] = time.monotonic):
    """Starts the clock.

    Args:
      total: settings to be run.
      out: where to write.
      interval: seconds between lines where `out` is not a terminal.
      clock: seconds.
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
    """Says that as many settings are now run together."""
    self._group_start = self.finished
    self._group_size = size

  def fraction(self, done: float, note: str = '') -> None:
    """Says which part of the present group is done, in [0, 1]."""
    self._show(self._group_start + min(1., max(0., done)) * self._group_size,
               note)

  def finish(self) -> None:
    """Says that one setting has its rows."""
    self.finished += 1
    self._show(self.finished, '')

  def close(self) -> None:
    """Ends the line on a terminal."""
    if self._tty and self._width:
      self._out.write('\n')
      self._out.flush()
      self._width = 0

  def _show(self, done: float, note: str) -> None:
    now = self._clock()
    last = self.finished == self._total
    if not (self._tty or last or now - self._last_shown >= self._interval):
      return
    self._last_shown = now
    done = max(done, self.finished)
    elapsed = now - self._start
    left = (_format_seconds(elapsed * (self._total - done) / done)
            if done else '?')
    line = (f'{self.finished}/{self._total} settings, '
            f'{_format_seconds(elapsed)} elapsed, {left} left'
            f'{"; " if note else ""}{note}')
    if self._tty:
      self._out.write('\r' + line.ljust(self._width))
      self._width = len(line)
    else:
      self._out.write(line + '\n')
    self._out.flush()
