"""Helpers for several processes that run one program together."""

from collections.abc import Callable
import pickle
from typing import Any

import jax
from jax.experimental import multihost_utils
import numpy as np


def is_first() -> bool:
  """Returns whether this process is the one that prints and writes files."""
  return jax.process_index() == 0


def from_first(function: Callable[[], Any]) -> Any:
  """Calls `function` in the first process and returns its value in all.

  Only the first process may be able to read the files, while all processes must
  act alike. Every process must call this at the same place of the program.

  Args:
    function: called in the first process only; its value must be picklable.

  Raises:
    Exception: whatever `function` raises, in the first process; the other
      processes raise a ValueError with the same text.
  """
  if jax.process_count() == 1:
    return function()
  message: tuple[str, Any] = ('value', None)
  failure = None
  if is_first():
    try:
      message = 'value', function()
    except Exception as error:  # Or the others would wait for ever.
      message, failure = ('error', str(error)), error
  content = np.frombuffer(pickle.dumps(message), np.uint8)
  # Broadcasts need equal shapes in all processes: first the size, then bytes.
  size = int(multihost_utils.broadcast_one_to_all(np.int32(content.size)))
  # What the others send is ignored, so theirs is cut or filled up.
  padded = np.zeros(size, np.uint8)
  padded[:content.size] = content[:size]
  # Unpickling is safe here: the bytes come from a process of this run.
  kind, value = pickle.loads(
      np.asarray(multihost_utils.broadcast_one_to_all(padded)).tobytes())
  if failure is not None:
    raise failure
  if kind == 'error':
    raise ValueError(value)
  return value
