"""Lets programs end in order when a scheduler stops them."""

from collections.abc import Iterator
import contextlib
import signal
import types


@contextlib.contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
  """Makes SIGTERM, which schedulers send, act like Ctrl-C within a context."""
  def interrupt(signum: int, frame: types.FrameType | None) -> None:
    raise KeyboardInterrupt
  before = signal.signal(signal.SIGTERM, interrupt)
  try:
    yield
  finally:
    signal.signal(signal.SIGTERM, before)
