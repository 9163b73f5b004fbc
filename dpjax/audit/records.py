"""The space of data sets that are arrays of records.

Its pairs are structured: extremes, inner records, constants, ties and all
categories, among equal or different records, in data sets of several sizes.
"""

from collections.abc import Callable, Iterator
import dataclasses
import itertools
from typing import Any

import numpy as np

from dpjax import errors
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import PyTree

# Without declared bounds, these numbers are usual records.
_USUAL = (-1.0, 1.0)
_HUGE = 1e6
# Where a leak hides between the bounds: parts of the range.
_INNER = (0.25, 0.75, 0.1, 0.9, 0.01, 0.99)
# The largest integers of 7, 8, 15 and 16 bits: one more wraps around.
_WRAPS = (127, 255, 32767, 65535)
# Records on both sides of a threshold differ from it by this part of the range.
_NEAR = 1e-3


def _same(records: np.ndarray) -> np.ndarray:
  """Returns its argument."""
  return records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Records:
  """Data sets that are arrays [n, *shape] of records.

  Attributes:
    adjacency: which data sets are neighbours.
    shape: shape of a record.
    bounds: bounds on the numbers in a record; None if every number of the
      dtype is legal, including infinity and NaN.
    num_categories: the records are the integers 0..K-1; None if they are
      numbers.
    dtype: dtype of the array of records; for categories an integer, by default
      int32.
    sizes: numbers of records that are tried, the main one first; under
      ADD_OR_REMOVE_ONE those of the smaller data set.
    constants: further values of interest, such as thresholds in the code.
    convert: function of an array of records that returns what `release` takes.
  """
  adjacency: Adjacency
  shape: tuple[int, ...] = ()
  bounds: tuple[float, float] | None = None
  num_categories: int | None = None
  dtype: Any = np.float32
  sizes: tuple[int, ...] = (8, 1, 2, 0)
  constants: tuple[float, ...] = ()
  convert: Callable[[np.ndarray], PyTree] = _same

  def __post_init__(self) -> None:
    if self.num_categories is not None:
      if np.dtype(self.dtype).kind not in 'iu':
        # A frozen dataclass sets its own fields like this.
        object.__setattr__(self, 'dtype', np.int32)
      errors.check_at_least('num_categories', self.num_categories, 1)
      if self.bounds is not None:
        raise ValueError('give num_categories or bounds, not both')
    if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
      raise ValueError(f'bounds must be two numbers in order, got '
                       f'{self.bounds}')
    if not any(size >= self._least for size in self.sizes):
      raise ValueError(f'sizes must have a number of records, at least '
                       f'{self._least}, got {self.sizes}')

  @property
  def replace(self) -> bool:
    """Whether neighbours differ by a replacement of one record."""
    return self.adjacency is Adjacency.REPLACE_ONE

  @property
  def _least(self) -> int:
    """The least number of records for which there are neighbours."""
    return 1 if self.replace else 0

  @property
  def _integers(self) -> bool:
    """Whether records are integers."""
    return (self.num_categories is not None or
            np.dtype(self.dtype).kind in 'iub')

  @property
  def span(self) -> tuple[float, float]:
    """The ends of the range of usual records."""
    if self.num_categories is not None:
      return 0, self.num_categories - 1
    if np.dtype(self.dtype).kind == 'b':
      return 0, 1
    if self._integers:
      info = np.iinfo(self.dtype)
      low, high = self.bounds or (info.min, info.max)
      return max(int(np.ceil(low)), info.min), min(int(np.floor(high)),
                                                   info.max)
    return self.bounds or _USUAL

  def pair(self, record: np.ndarray, other: np.ndarray, rest: np.ndarray,
           place: int = 0, what: str = '') -> Pair:
    """Returns the pair in which one record differs.

    Args:
      record: [*shape] the record at `place` of `data`.
      other: [*shape] the record at that place of `neighbour`; under
        ADD_OR_REMOVE_ONE it is not used.
      rest: [m, *shape] the records that both data sets have.
      place: position of the record that differs, in [0, m].
      what: description of `rest`.
    """
    one = np.insert(rest, place, record, axis=0)
    two = np.insert(rest, place, other, axis=0) if self.replace else rest
    difference = (f'{text(record)} for {text(other)}' if self.replace
                  else f'with {text(record)} or without')
    words = [difference, f'{len(two)} records', *([what] if what else [])]
    return Pair(self.convert(one), self.convert(two), ', '.join(words),
                (one, two))

  def parts(self, pair: Pair) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Returns the arguments (record, other, rest, place) of `pair`."""
    one, two = (np.asarray(data) for data in pair.records or pair[:2])
    size = min(len(one), len(two))
    # Compared by bytes, because NaN is not equal to itself.
    differ = [one[row].tobytes() != two[row].tobytes() for row in range(size)]
    place = differ.index(True) if True in differ else len(one) - 1
    return (one[place], two[place] if self.replace else one[place],
            np.delete(one, place, axis=0), place)

  def pairs(self) -> tuple[Pair, ...]:
    """Lists structured pairs, most promising first."""
    sizes = [size for size in self.sizes if size >= self._least]
    # First the extremes for every size, then what is inside.
    tiers = [list(self._extreme(size)) for size in sizes]
    tiers += [list(self._inner(size)) for size in sizes]
    kept, seen = [], set()
    for pair in itertools.chain.from_iterable(tiers):
      assert pair.records is not None
      one, two = pair.records
      key = (one.shape, one.tobytes(), two.tobytes())
      if key not in seen and (len(one) > len(two) or key[1] != key[2]):
        seen.add(key)
        kept.append(pair)
    return tuple(kept)

  def mutated(self, rng: np.random.Generator, pair: Pair) -> Pair:
    """Returns a random legal change of a pair."""
    record, other, rest, place = self.parts(pair)
    rest, what = rest.copy(), 'found'
    change = rng.integers(7 if len(rest) else 3)
    if change == 0:
      record = self._moved(rng, record)
    elif change == 1:
      other = self._moved(rng, other)
    elif change == 2:  # another size, that is one that has been compiled
      size = rng.choice([size for size in self.sizes if size >= self._least])
      size -= self.replace
      rest = np.concatenate([rest, np.repeat(record[None], size, 0)])[:size]
    elif change == 3:  # all others are equal
      rest[:] = self._moved(rng, rest[0])
    elif change == 4:  # a tie
      rest[rng.integers(len(rest))] = record if rng.random() < 0.5 else other
    elif change == 5:
      place = int(rng.integers(len(rest) + 1))
    else:
      row = rng.integers(len(rest))
      rest[row] = self._moved(rng, rest[row])
    if self.replace and record.tobytes() == other.tobytes():
      record, other = self._ends()
    return self.pair(record, other, rest, min(place, len(rest)), what)

  def _moved(self, rng: np.random.Generator, record: np.ndarray) -> np.ndarray:
    """Returns a record near to the given one, or a random one."""
    low, high = self.span
    kind = rng.integers(4)
    if kind == 0:
      records = self.records()
      return records[rng.integers(len(records))]
    if self.num_categories is not None or np.dtype(self.dtype).kind == 'b':
      return self._cast(rng.integers(int(low), int(high) + 1, self.shape))
    # In float64, in which the sum of huge integers does not overflow.
    wide = record.astype(np.float64)
    step = (float(high) - float(low)) * rng.choice([1e-3, 1e-2, 0.1, 0.3])
    moved = (rng.uniform(float(low), float(high), self.shape) if kind == 1 else
             wide + step * rng.standard_normal(self.shape))
    if kind == 2 and wide.size > 1:  # one coordinate only
      moved = np.where(np.arange(wide.size).reshape(self.shape) ==
                       rng.integers(wide.size), moved, wide)
    return self._cast(np.where(np.isfinite(moved), moved, 0.0))

  def _cast(self, values: Any) -> np.ndarray:
    """Returns numbers as a record, clipped to the range where it is bounded."""
    if self._integers:
      # `clip` in float64 may round the largest int64 up, so ends are put in.
      low, high = (int(end) for end in self.span)
      values = np.broadcast_to(values, self.shape)
      exact = [min(max(int(value), low), high) for value in values.ravel()]
      return np.array(exact, self.dtype).reshape(self.shape)
    if self.bounds is not None:
      values = np.clip(values, *(np.asarray(end, self.dtype)
                                 for end in self.bounds))
    return np.broadcast_to(values, self.shape).astype(self.dtype)

  def _ends(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns the two extreme records."""
    low, high = self.span
    return self._cast(low), self._cast(high)

  def _values(self) -> list[float]:
    """Lists numbers of interest: ends, constants of the code, inner points."""
    low, high = self.span
    if self.num_categories is not None:
      return list(range(self.num_categories))
    if self._integers:
      near = [value + step for value in self.constants
              if np.isfinite(value) for step in (0, 1, -1)]
      others = [(low + high) // 2, 0, 1, -1, *near, low + 1, high - 1]
    else:
      width = high - low
      near = [value + step * width * _NEAR for value in self.constants
              for step in (0, 1, -1)]
      others = [(low + high) / 2, *near,
                *(low + part * width for part in _INNER), 0.0, 1.0]
    values = [low, high, *(v for v in others if low <= v <= high)]
    if self.bounds is None and not self._integers:
      largest = float(np.finfo(self.dtype).max)
      values += [*(v for v in near if not low <= v <= high), _HUGE, -_HUGE,
                 np.inf, -np.inf, np.nan, largest, -largest]
    return values

  def records(self) -> list[np.ndarray]:
    """Lists records of interest; the first two are the extremes."""
    if self.num_categories == 1:
      return [self._cast(0)]
    kept: dict[bytes, np.ndarray] = {}
    for record in [*map(self._cast, self._values()), *self._directions()]:
      kept.setdefault(record.tobytes(), record)
    return list(kept.values())

  def _directions(self) -> Iterator[np.ndarray]:
    """Yields records that are extreme in one coordinate, or in all of them."""
    size, (low, high) = int(np.prod(self.shape)), self.span
    if size < 2:
      return
    middle = (low + high) // 2 if self._integers else (low + high) / 2
    yield self._cast(self._row([high if k % 2 else low for k in range(size)]))
    yield self._cast(self._row([high] + [middle] * (size - 1)))
    yield self._cast(self._row([middle] * (size - 1) + [high]))
    if self.bounds is None and not self._integers:
      yield self._cast(self._row([_HUGE if k % 2 else -_HUGE
                                  for k in range(size)]))

  def _row(self, values: list[float]) -> np.ndarray:
    """Returns numbers as an array of the shape of a record."""
    # Objects: huge integers would become rounded floats.
    return np.array(values, object if self._integers else None).reshape(
        self.shape)

  def _bases(self, size: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (description, records) of the records that neighbours share."""
    all_of = lambda record: np.repeat(record[None], size, axis=0)
    low, high = self._ends()
    yield 'the others low', all_of(low)
    if not size:
      return
    yield 'the others high', all_of(high)
    ends = self.span
    middle = self._cast(sum(map(int, ends)) // 2 if self._integers
                        else sum(ends) / 2)
    yield 'the others in the middle', all_of(middle)
    if size < 2:
      return
    far = all_of(middle)
    far[-1] = high
    yield 'one of the others far away', far
    # Sums of integers overflow at one of these numbers of high records.
    numeric = self._integers and self.num_categories is None
    counts = set(range(1, size)) if numeric and size <= 16 else {size // 2}
    # Code may count in fewer bits than the records have.
    counts.update(count for count in _WRAPS if count < size)
    for count in sorted(counts):
      some = all_of(low)
      some[:count] = high
      yield f'{count} of the others high, the rest low', some
    yield 'the others all different', self._spread(size)

  def _spread(self, size: int) -> np.ndarray:
    """Returns records [size, *shape] all over the range, different if any."""
    low, high = self.span
    rng = np.random.default_rng(0)
    return np.stack([
        self._cast(int(low) + (2 * row + 1) * (int(high) - int(low)) //
                   (2 * size)) if self._integers else
        self._cast(rng.uniform(low, high, self.shape)) for row in range(size)])

  def _extreme(self, size: int) -> Iterator[Pair]:
    """Yields pairs whose records differ by the whole range, on all bases."""
    records = self.records()
    ends = (records[0], records[min(1, len(records) - 1)])
    if self.num_categories:
      ends = self._ends()
    for what, rest in self._bases(size - self.replace):
      yield self.pair(*ends, rest, 0, what)
      if not self.replace:
        yield self.pair(*ends[::-1], rest, 0, what)
      # Some code treats the last record in its own way.
      if len(rest) and what.endswith('different'):
        yield self.pair(*ends, rest, len(rest), f'{what}, the last record')

  def _inner(self, size: int) -> Iterator[Pair]:
    """Yields pairs with each record of interest, and ties with it."""
    records, ends = self.records(), self._ends()
    bases = list(self._bases(size - self.replace))
    # The first base in the first round, so that each record comes early.
    for what, rest in (bases[0], bases[-1])[:len(bases)]:
      for record in records:
        yield self.pair(record, ends[0], rest, 0, what)
        if self.replace:
          yield self.pair(record, ends[1], rest, 0, what)
    for record in records:
      if len(rest):
        tied = np.repeat(record[None], len(rest), axis=0)
        yield self.pair(record, ends[0], tied, 0, 'the others equal to it')
    # Neighbouring values: what changes between them only is seen by nothing
    # else; pointless where one record is added.
    for one, other in itertools.pairwise(records if self.replace else ()):
      yield self.pair(one, other, bases[-1][1], 0, bases[-1][0])


def text(numbers: np.ndarray) -> str:
  """Returns an array of numbers as a short text."""
  text = np.array2string(np.asarray(numbers), precision=4, threshold=4,
                         edgeitems=2)
  return ' '.join(text.split())
