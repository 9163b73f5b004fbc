"""Spaces of legal data sets, from which an audit draws neighbours.

A space lists structured pairs of neighbours, most promising first, and changes
a pair at random into another legal pair. All pairs respect the adjacency and
every declared bound. Without bounds every number is a legal record, even a huge
one, infinity or NaN.
"""

from collections.abc import Callable, Iterator
import dataclasses
import itertools
from typing import Any

import numpy as np

from dpjax import errors
from dpjax.audit import target
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import PyTree

Space = target.Space

# Without declared bounds, these numbers are usual records.
_USUAL = (-1.0, 1.0)
_HUGE = 1e6
# Where a leak hides between the bounds: parts of the range.
_INNER = (0.25, 0.75, 0.1, 0.9, 0.01, 0.99)
# Records on both sides of a threshold differ from it by this part of the range.
_NEAR = 1e-3
# Bases, far from zero, of sums: float32 is still much finer than the noise.
_FAR = 64.0


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

  def legal(self, values: np.ndarray) -> bool:
    """Returns whether numbers may stand in a record."""
    if self.bounds is None and not self._integers:
      return True
    low, high = self.span
    # Bounds are compared in float32 too, in which they may be rounded.
    return bool(np.all((values >= np.asarray(low, self.dtype)) &
                       (values <= np.asarray(high, self.dtype))))

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
    text = (f'{_text(record)} for {_text(other)}' if self.replace
            else f'with {_text(record)} or without')
    text += f', {len(two)} records' + (f', {what}' if what else '')
    return Pair(self.convert(one), self.convert(two), text, (one, two))

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
      place = rng.integers(len(rest) + 1)
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
    kept = {}
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
    for count in range(1, size) if numeric and size <= 16 else (size // 2,):
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sums:
  """Sums [width] whose distance between neighbours is a sensitivity.

  Attributes:
    adjacency: which data sets are neighbours.
    sensitivity: largest distance of the sums of neighbours.
    order: order of the norm of that distance: 1, 2 or infinity.
    width: number of coordinates.
    dtype: dtype of the sums. Integers differ in one coordinate only, because
      shifts of several coordinates are fractions.
  """
  adjacency: Adjacency
  sensitivity: float
  order: float = 2
  width: int = 3
  dtype: Any = np.float32

  def __post_init__(self) -> None:
    errors.check_positive('sensitivity', self.sensitivity)

  def pairs(self) -> tuple[Pair, ...]:
    """Lists pairs that differ along one axis or in all coordinates.

    Pairs near zero and far from it reveal noise that grows with the data.
    """
    width = self.width
    shifts = [np.eye(width)[place] for place in sorted({0, width - 1})]
    if width > 1 and np.dtype(self.dtype).kind not in 'iu':
      signs = np.where(np.arange(width) % 2, -1.0, 1.0)
      shifts.append(signs / np.linalg.norm(signs, self.order))
    bases = [np.zeros(width), np.full(width, _FAR) * self.sensitivity]
    return tuple(self._pair(base, self.sensitivity * shift)
                 for base in bases for shift in shifts)

  def mutated(self, rng: np.random.Generator, pair: Pair) -> Pair:
    """Returns a pair with another base, or with another shift."""
    base = np.asarray(pair.neighbour, np.float64)
    shift = np.asarray(pair.data, np.float64) - base
    if rng.random() < 0.5:
      base = self.sensitivity * rng.choice([0.5, 1.0, 8.0, _FAR]) * (
          rng.standard_normal(self.width))
    elif np.dtype(self.dtype).kind in 'iu':
      shift = self.sensitivity * rng.permutation(np.eye(self.width)[0])
    else:
      direction = rng.standard_normal(self.width)
      shift = self.sensitivity * direction / np.linalg.norm(direction,
                                                            self.order)
    if np.dtype(self.dtype).kind in 'iu':
      base = np.round(np.abs(base))  # sums of unsigned integers too
    return self._pair(base, shift)

  def _pair(self, base: np.ndarray, shift: np.ndarray) -> Pair:
    """Returns the pair of sums `base + shift` and `base`."""
    return Pair((base + shift).astype(self.dtype), base.astype(self.dtype),
                f'{_text(shift)} from {_text(base)}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
  """Scores [width] of candidates, each changed by the sensitivity at most.

  Attributes:
    adjacency: which data sets are neighbours.
    sensitivity: largest change of a score.
    monotone: True if all scores change in the same direction.
    width: number of candidates.
  """
  adjacency: Adjacency
  sensitivity: float
  monotone: bool = False
  width: int = 3

  def __post_init__(self) -> None:
    errors.check_positive('sensitivity', self.sensitivity)

  def pairs(self) -> tuple[Pair, ...]:
    """Lists pairs in which one score rises and the others fall, or stay."""
    width = self.width
    shift = np.full(width, 0.0 if self.monotone else -1.0)
    shift[0] = 1.0
    # Equal scores, then increasing and decreasing ones.
    tilt = np.linspace(0.0, 2.0, width) * self.sensitivity
    changes = ((shift, 'one up, others down'),
               (shift[::-1], 'the last up, others down'),
               (np.eye(width)[0], 'one up'), (np.ones(width), 'all up'))
    return tuple(self._pair(base, self.sensitivity * change, what)
                 for base in (np.zeros(width), tilt, -tilt)
                 for change, what in changes)

  def mutated(self, rng: np.random.Generator, pair: Pair) -> Pair:
    """Returns a pair with other scores, or with another change."""
    base = np.asarray(pair.neighbour, np.float64)
    shift = np.asarray(pair.data, np.float64) - base
    if rng.random() < 0.5:
      base = self.sensitivity * rng.choice([0.5, 2.0, 8.0]) * (
          rng.standard_normal(self.width))
    else:  # a corner of the legal changes
      shift = self.sensitivity * rng.choice(
          [0.0, 1.0] if self.monotone else [-1.0, 1.0], self.width)
    return self._pair(base, shift, f'{_text(shift)} from {_text(base)}')

  def _pair(self, base: np.ndarray, shift: np.ndarray, what: str) -> Pair:
    """Returns the pair of scores `base + shift` and `base`, in float32."""
    return Pair(np.float32(base + shift), np.float32(base), what)


def _text(numbers: np.ndarray) -> str:
  """Returns an array of numbers as a short text."""
  text = np.array2string(np.asarray(numbers), precision=4, threshold=4,
                         edgeitems=2)
  return ' '.join(text.split())
