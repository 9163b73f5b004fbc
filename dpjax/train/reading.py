"""Parts of the batches of a private loop: read at once, or ahead of the device.

The batches of all steps follow from the key of the run and the number of the
step. So a reader can draw and load them before the steps are computed, and a
run that is resumed reads the same batches. Reading ahead spends no budget: a
step counts when it has run.
"""

from collections.abc import Callable, Iterator
import itertools
import queue
import threading
from typing import Any, NamedTuple
import weakref

import numpy as np

from dpjax.sampling import Sampler
from dpjax.sampling import Selection
from dpjax.train import loading
from dpjax.train.sources import Source
from dpjax.typing import PRNGKey, PyTree

# Seconds that closing waits for a record that is being read.
_PATIENCE = 2.0


class Part(NamedTuple):
  """A part of the batch of one step, filled up to the rows of a part; PRIVATE.

  Attributes:
    records: tree of arrays [part_size, ...]; padding is 0.
    numbers: [part_size] int32, numbers of the records; padding is 0.
    mask: [part_size] bool, False for padding.
    num_selected: number of records of the whole batch, int32.
    is_last: whether it is the last part of its batch.
  """
  records: PyTree
  numbers: np.ndarray
  mask: np.ndarray
  num_selected: np.int32
  is_last: bool


def parts(load: loading.Load, numbers: np.ndarray, size: int
          ) -> Iterator[Part]:
  """Loads a batch part by part; at least one part, for the shapes of a record.

  Args:
    load: loads records by number.
    numbers: [k] int32 numbers of the records of the batch.
    size: number of rows of a part.
  """
  for start in range(0, max(len(numbers), 1), size):
    chosen = numbers[start:start + size]
    # An empty batch needs the shapes of a record; its mask leaves it out.
    asked = chosen if len(chosen) else np.zeros([1], np.int32)
    records = loading.padded(loading.checked(
        load(asked), len(asked), 'one for each number that was asked for'),
                             size)
    yield Part(records, np.pad(chosen, (0, size - len(chosen))),
               np.arange(size) < len(chosen), np.int32(len(numbers)),
               start + size >= len(numbers))


def drawn(sampler: Sampler, draw: Callable[..., Selection],
          key: PRNGKey, step: int) -> np.ndarray:
  """Returns the numbers of the records of a batch, on the host; PRIVATE.

  Args:
    sampler: says where batches are drawn.
    draw: (key, step) -> batch, drawn on the device.
    key: of all batches of the run.
    step: number of the step.
  """
  if sampler.on_host:
    return sampler.host_batch(key, step)
  rows, count = draw(key, np.int32(step))
  return np.asarray(rows)[:int(count)]


def selection(numbers: np.ndarray, size: int,
              num_rows: int | None = None) -> Selection:
  """Returns a batch that was drawn on the host, in rows of whole parts.

  Args:
    numbers: [k] int32 numbers of the records of the batch.
    size: number of rows of a part.
    num_rows: number of rows; None for the least multiple of `size`.

  Raises:
    ValueError: if there are fewer rows than records.
  """
  if num_rows is None:
    num_rows = max(1, -(-len(numbers) // size)) * size
  if len(numbers) > num_rows:
    raise ValueError(
        f'the batch has {num_rows} rows, the sample has more records: a '
        'Poisson batch must not be cut off; load all of sample(state).indices')
  # They stay on the host, where a user reads them.
  rows: Any = np.pad(numbers, (0, num_rows - len(numbers)))
  num_selected: Any = np.int32(len(numbers))
  return Selection(rows, num_selected)


class Reader:
  """Reads the parts of consecutive steps in a thread, in order.

  At most `ahead` parts are loaded or being loaded before they are asked for.
  """

  def __init__(self, draw: Callable[[int], np.ndarray], load: loading.Load, *,
               size: int, steps: tuple[int, int | None], ahead: int):
    """Starts the thread.

    Args:
      draw: number of a step -> numbers of the records of its batch. It must not
        refer to the owner of the reader, which would never be freed.
      load: loads records by number; called in the thread only.
      size: number of rows of a part.
      steps: the first step, and the number of steps of the plan or None.
      ahead: number of parts, at least 1.
    """
    first, limit = steps
    numbers = itertools.count(first) if limit is None else range(first, limit)
    read = itertools.chain.from_iterable(
        parts(load, draw(step), size) for step in numbers)
    self._results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    self._slots, stop = threading.Semaphore(ahead), threading.Event()
    thread = threading.Thread(
        target=_produce, args=(read, self._results, self._slots, stop),
        name='dpjax-reader', daemon=True)
    thread.start()
    # Runs when the reader is freed, and at the exit of the interpreter.
    self._finalize = weakref.finalize(self, _end, self._slots, stop, thread)

  def batch(self) -> Iterator[Part]:
    """Returns the parts of the next batch; raises what loading raised."""
    while True:
      result = self._results.get()
      if isinstance(result, BaseException):
        raise result
      # A new part is read from now on.
      self._slots.release()
      yield result
      if result.is_last:
        return

  def close(self) -> None:
    """Ends the thread; parts that were read are dropped."""
    self._finalize()


class ReadAhead:
  """The reader of one run, started anew when another state is trained."""

  def __init__(self) -> None:
    self._reader: Reader | None = None
    self._next: tuple[bytes, int, Source] | None = None

  def batch(self, run: bytes, step: int, source: Source,
            start: Callable[[], Reader]) -> Iterator[Part]:
    """Returns the parts of a batch; raises what loading raised.

    Args:
      run: the run, by any name.
      step: number of the step.
      source: records.
      start: returns a reader that starts at this step.
    """
    reader = self._reader
    if reader is None or self._next != (run, step, source):
      self.close()
      reader = self._reader = start()
    # If the caller fails on a part, the next call starts anew.
    self._next = None
    try:
      yield from reader.batch()
    except BaseException:
      self.close()
      raise
    self._next = run, step + 1, source

  def close(self) -> None:
    """Ends the thread of the reader, if there is one."""
    if self._reader is not None:
      self._reader.close()
      self._reader = None


class PartSums:
  """Adds up the sums of the parts of batches.

  At most two parts are on the device: one is copied while that before it is
  summed.
  """

  def __init__(self) -> None:
    self._ended: Any = None  # Known when the newest part is summed.

  def total(self, batch: Iterator[Part], *, zeros: Callable[[], PyTree],
            add: Callable[[PyTree, PyTree], tuple[PyTree, Any]],
            place: Callable[[PyTree], PyTree]) -> tuple[PyTree, np.int32]:
    """Returns (sums of a batch, number of its records).

    Args:
      batch: the parts.
      zeros: returns the sums of no record.
      add: (sums, (records, numbers, mask)) -> (sums with those of the part, an
        array that is known when they are).
      place: copies a part to the device.
    """
    total, count = None, np.int32(0)
    for part in batch:
      data = place(part[:3])
      if total is None:
        total = zeros()
      # Without waiting, many parts would be in the memory of the device.
      if self._ended is not None:
        self._ended.block_until_ready()
      total, self._ended = add(total, data)
      count = part.num_selected
    return total, count


def _produce(read: Iterator[Part], results: queue.SimpleQueue[Any],
             slots: threading.Semaphore, stop: threading.Event) -> None:
  """Reads parts, one for each slot, until the end, an error or the stop."""
  try:
    while True:
      slots.acquire()
      if stop.is_set():
        return
      part = next(read, None)
      if part is None:
        return
      results.put(part)
  # Whatever it is, the step that needs this part must not wait for ever.
  except BaseException as error:
    results.put(error)


def _end(slots: threading.Semaphore, stop: threading.Event,
         thread: threading.Thread) -> None:
  """Tells the thread to end, and waits for it for a limited time."""
  stop.set()
  slots.release()
  # The collector of garbage may run this function in the thread itself.
  if thread is not threading.current_thread():
    thread.join(_PATIENCE)
