"""Loads the records of a part by several threads or processes at once."""

from collections.abc import Callable
from concurrent import futures
import multiprocessing
import os
import pickle
import weakref

import jax
import numpy as np

from dpjax import errors
from dpjax.typing import PyTree

# In a worker process: the function that loads records.
_LOAD: list[Callable[[np.ndarray], PyTree]] = []


class Parallel:
  """A function that loads records, which divides them among workers.

  Threads suffice for files, networks, and decoders that release the lock of the
  interpreter, as those of Pillow, NumPy and Arrow do. Processes are for
  decoders in Python.
  """

  def __init__(self, load: Callable[[np.ndarray], PyTree], *, workers: int,
               processes: bool):
    """Checks the function; workers start when they are needed.

    Args:
      load: numbers [k] -> tree of arrays [k, ...]; called by several threads at
        once, or in other processes, where it is a copy.
      workers: number of workers.
      processes: whether they are processes.

    Raises:
      ValueError: if the function cannot be sent to a process.
    """
    self._workers = errors.check_at_least('workers', workers, 1)
    self._load = load
    self._pool: futures.Executor | None = None
    self._content = _pickled(load) if processes else None

  def __call__(self, numbers: np.ndarray) -> PyTree:
    """Returns the records with these numbers, in order."""
    if self._pool is None:
      self._pool = self._started()
    function = self._load if self._content is None else _load
    shares = np.array_split(numbers, min(self._workers, len(numbers)))
    parts = list(self._pool.map(function, shares))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

  def _started(self) -> futures.Executor:
    pool: futures.Executor
    if self._content is None:
      pool = futures.ThreadPoolExecutor(self._workers, 'dpjax-worker')
    else:
      # Not 'fork', which copies locks that threads of JAX hold.
      pool = futures.ProcessPoolExecutor(
          self._workers, multiprocessing.get_context('spawn'),
          initializer=_start, initargs=(self._content,))
    weakref.finalize(self, pool.shutdown, wait=False, cancel_futures=True)
    return pool


def _pickled(load: Callable[[np.ndarray], PyTree]) -> bytes:
  try:
    return pickle.dumps(load)
  except Exception as error:
    raise ValueError(
        'processes need records that can be pickled, such as a function of a '
        f'module, not a local one: {errors.one_line(error)}') from error


def _start(content: bytes) -> None:
  """Prepares a worker process, which needs no accelerator."""
  os.environ['JAX_PLATFORMS'] = 'cpu'
  _LOAD.append(pickle.loads(content))


def _load(numbers: np.ndarray) -> PyTree:
  return _LOAD[0](numbers)
