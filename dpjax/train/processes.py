"""Many processes that run one program, and what only the first one sees."""

from collections.abc import Callable
import pickle
from typing import Any

import jax
from jax.experimental import multihost_utils
import numpy as np


def is_first() -> bool:
  """Whether this process is the one that prints and writes."""
  return jax.process_index() == 0


def from_first(function: Callable[[], Any]) -> Any:
  """What `function` gives in the first process, known to all of them.

  Files may be seen by the first one only, and all must do the same. Every
  process calls this at the same place of the program.

  Args:
    function: is called in the first process alone, and gives what can be
      pickled; what it raises is raised by all, as a ValueError by the others.
  """
  if jax.process_count() == 1:
    return function()
  told: tuple[str, Any] = ('value', None)
  failure = None
  if is_first():
    try:
      told = 'value', function()
    except Exception as error:  # Or the others would wait for ever.
      told, failure = ('error', str(error)), error
  content = np.frombuffer(pickle.dumps(told), np.uint8)
  size = int(multihost_utils.broadcast_one_to_all(np.int32(content.size)))
  padded = np.zeros(size, np.uint8)
  padded[:content.size] = content[:size]
  kind, value = pickle.loads(
      np.asarray(multihost_utils.broadcast_one_to_all(padded)).tobytes())
  if failure is not None:
    raise failure
  if kind == 'error':
    raise ValueError(value)
  return value
