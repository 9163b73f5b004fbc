"""Partitions of the outputs of a release into cells, learnt from a sample.

A partition maps each output to a cell, by a score and edges. The scores are:
single coordinates, differences and products of two, the direction between the
means, likelihood ratios, sums and sizes, whole outputs (useful if few are
possible), values that only one data set releases, lowest bits and remainders,
the number of values that are not finite, and a learnt score. Other modules
choose the cells that distinguish two data sets.
"""

from collections.abc import Callable, Iterable, Iterator
import functools
import itertools
from typing import NamedTuple

import numpy as np

from dpjax.audit import intervals
from dpjax.audit import lattices
from dpjax.audit import learned

# Only the first coordinates get scores of their own, to bound the work.
_COORDINATES = 24
_BIT_COORDINATES = 4
# Differences and products are of two of so many coordinates.
_PAIRED = 5
_TAUGHT = 256
# A value counts as released by one data set only if it was seen this often
# there and never for the other. Values of continuous noise hardly ever repeat.
_OFTEN = 2
# Integers below are spaced more finely than 1 in float32: rounding of floats
# does not make them.
_INTEGERS = 2.0**22
# Wider outputs get a diagonal covariance, which needs fewer samples.
_LARGEST_COVARIANCE = 64
_RIDGE = 1e-9

Score = Callable[[np.ndarray], np.ndarray]
"""Function of outputs [n, d] that returns numbers [n]."""


class Partition(NamedTuple):
  """A partition of outputs into finitely many cells.

  Attributes:
    name: name of the score.
    score: function of outputs [n, d] that returns numbers [n].
    edges: [k] increasing. The cells are the k + 1 intervals between them, and
      one cell each for infinity, minus infinity and NaN.
    order: [num_cells] cells in the order of their likelihood ratios in the
      learnt samples, the likeliest of `present` first; None to take the order
      from the samples on which events are chosen.
  """
  name: str
  score: Score
  edges: np.ndarray
  order: np.ndarray | None = None

  @property
  def num_cells(self) -> int:
    """Number of cells."""
    return self.edges.size + 4

  def cells(self, outputs: np.ndarray) -> np.ndarray:
    """Returns the cell numbers [n] of outputs [n, d]."""
    scores = self.score(outputs)
    places = np.searchsorted(self.edges, scores, side='right')
    last = self.edges.size
    places = np.where(np.isposinf(scores), last + 1, places)
    places = np.where(np.isneginf(scores), last + 2, places)
    return np.where(np.isnan(scores), last + 3, places)

  def counts(self, outputs: np.ndarray) -> np.ndarray:
    """Returns the number [num_cells] of outputs in each cell."""
    return np.bincount(self.cells(outputs), minlength=self.num_cells)


def learn(present: np.ndarray, absent: np.ndarray, *,
          low_bits: bool) -> list[Partition]:
  """Learns partitions that may distinguish two samples of outputs [n, d].

  Judge them on other outputs: on these, fitted scores look better than they
  are.

  Args:
    present: outputs of one data set.
    absent: outputs of its neighbour.
    low_bits: whether to include what floating-point rounding may cause: the
      lowest bits of coordinates, and values that only one data set releases.
      Both are always included if all outputs are integers.
  """
  fitted = list(_scores(present, absent))
  low_bits = low_bits or _integers(present) and _integers(absent)
  if low_bits:
    fitted += _supports(present, absent)
    fitted += lowest_bits(present.shape[1])
  fitted += _remainders(present, absent)
  return cut(present, absent, fitted)


def learn_network(present: np.ndarray, absent: np.ndarray) -> list[Partition]:
  """Returns the partition by a learnt score, for several numbers only.

  Fewer outputs than 256 of each data set teach a network nothing.
  """
  if present.shape[1] == 1 or min(len(present), len(absent)) < _TAUGHT:
    return []
  return cut(present, absent, [('learned', learned.score(present, absent))])


def cut(present: np.ndarray, absent: np.ndarray,
        scores: Iterable[tuple[str, Score]]) -> list[Partition]:
  """Returns one partition for each (name, score function)."""
  return [_cut(name, score, present, absent) for name, score in scores]


def _cut(name: str, score: Score, present: np.ndarray,
         absent: np.ndarray) -> Partition:
  """Returns the partition by one score, its cells ordered by the samples."""
  partition = Partition(name, score,
                        intervals.learn(score(present), score(absent)))
  return partition._replace(order=ratio_order(
      partition.counts(present), partition.counts(absent)))


def ratio_order(present: np.ndarray, absent: np.ndarray) -> np.ndarray:
  """Returns cells in the order of the ratios of their counts, largest first."""
  # Half a count more in each cell ranks empty cells without dividing by zero.
  return np.argsort((absent + 0.5) / (present + 0.5), kind='stable')


def _scores(present: np.ndarray,
            absent: np.ndarray) -> Iterator[tuple[str, Score]]:
  """Yields (name, score function) for all scores but the lowest bits."""
  width = present.shape[1]
  coordinates = sorted({*range(min(width, _COORDINATES)), width - 1})
  for place in coordinates:
    # A lambda would see the last `place` only.
    yield f'coordinate {place}', functools.partial(_coordinate, place)
  if not np.isfinite(np.concatenate([present, absent])).all():
    yield 'not finite', lambda y: np.sum(~np.isfinite(y), 1).astype(float)
  if width == 1:
    return
  yield 'whole output', _hashes
  yield 'sum', lambda y: _finite(y).sum(1)
  yield 'size', lambda y: np.square(_finite(y)).sum(1)
  yield 'means', _linear(present, absent)
  yield 'likelihood', _naive(present, absent, coordinates)
  yield from _paired(present, absent)


def _paired(present: np.ndarray,
            absent: np.ndarray) -> Iterator[tuple[str, Score]]:
  """Yields differences and centred products of two coordinates.

  A difference reveals noise that was used twice. A product reveals dependence
  that neither coordinate shows alone.
  """
  width = present.shape[1]
  if width > _PAIRED:
    return
  centre = np.median(_finite(np.concatenate([present, absent])), 0)
  for one, other in itertools.combinations(range(width), 2):
    yield f'difference of coordinates {one} and {other}', functools.partial(
        lambda i, j, y: _finite(y)[:, i] - _finite(y)[:, j], one, other)
    yield f'product of coordinates {one} and {other}', functools.partial(
        lambda i, j, y: np.prod((_finite(y) - centre)[:, [i, j]], axis=1),
        one, other)


def _coordinate(place: int, outputs: np.ndarray) -> np.ndarray:
  """Returns one coordinate [n] of the outputs [n, d]."""
  return outputs[:, place]


def lowest_bits(width: int) -> list[tuple[str, Score]]:
  """Lists (name, score function) of the first coordinates' lowest bits."""
  return [(f'lowest bit of coordinate {place}',
           functools.partial(_lowest_bit, place))
          for place in range(min(width, _BIT_COORDINATES))]


def _integers(outputs: np.ndarray) -> bool:
  """Returns whether all outputs [n, d] are integers that are not too large."""
  return bool(np.all((np.abs(outputs) < _INTEGERS) &
                     (outputs == np.round(outputs))))


def _remainders(present: np.ndarray,
                absent: np.ndarray) -> Iterator[tuple[str, Score]]:
  """Yields, for each coordinate, the remainder in which samples differ most."""
  for place in range(min(present.shape[1], _BIT_COORDINATES)):
    ranked = sorted(lattices.remainders(present[:, place], absent[:, place]),
                    key=lambda each: each[0])
    for _, phase in ranked[:1]:
      yield f'remainder of coordinate {place}', functools.partial(
          lambda phase, place, y: phase(y[:, place]), phase, place)


def _supports(present: np.ndarray,
              absent: np.ndarray) -> Iterator[tuple[str, Score]]:
  """Yields scores that find outputs which only one data set can release.

  Other scores have too few cells for outputs of thousands of values if those of
  both data sets alternate. Each score here has three cells, compared on other
  outputs, so a value that one sample misses by chance is no evidence.
  """
  width = present.shape[1]
  keys: list[tuple[str, Score]] = [
      (f'support of coordinate {place}',
       functools.partial(_coordinate, place))
      for place in range(min(width, _BIT_COORDINATES))]
  if width > 1:
    keys.append(('support of whole output', _hashes))
  for name, key in keys:
    ours, theirs = key(present), key(absent)
    first, second = _only(ours, theirs), _only(theirs, ours)
    if first.size or second.size:
      yield name, functools.partial(_side, key, first, second)


def _only(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
  """Returns the finite values that are often in `ours` and not in `theirs`."""
  values, counts = np.unique(ours, return_counts=True)
  frequent = (counts >= _OFTEN) & np.isfinite(values)
  return np.setdiff1d(values[frequent], theirs)


def _side(key: Score, first: np.ndarray, second: np.ndarray,
          outputs: np.ndarray) -> np.ndarray:
  """Returns 1 for outputs whose key is in `first`, -1 in `second`, else 0."""
  keys = key(outputs)
  return np.isin(keys, first).astype(float) - np.isin(keys, second)


def _finite(outputs: np.ndarray) -> np.ndarray:
  """Clips outputs to +-1e30 and replaces those that are not finite by 0."""
  # Sums of squares of 1e30 are far from the overflow of float64.
  return np.where(np.isfinite(outputs), np.clip(outputs, -1e30, 1e30), 0.0)


def _lowest_bit(place: int, outputs: np.ndarray) -> np.ndarray:
  """Returns `lattices.lowest_bits` [n] of one coordinate of outputs [n, d]."""
  return lattices.lowest_bits(outputs[:, place])


def _hashes(outputs: np.ndarray) -> np.ndarray:
  """Hashes each whole output to a number; equal outputs get equal numbers."""
  # Adding 0 turns -0 into 0, which has other bits and is the same number.
  words = np.ascontiguousarray(outputs + 0.0).view(np.uint64)
  # A fixed seed: pilot and counted outputs must be hashed alike.
  even = np.random.default_rng(0).integers(
      0, 2**63, size=outputs.shape[1], dtype=np.uint64) * np.uint64(2)
  # An odd factor is invertible modulo 2^64, so it loses no bits of a word.
  odd = np.asarray(even + np.uint64(1))[None]
  with np.errstate(over='ignore'):
    # Products carry only upwards; the shift brings high bits down.
    mixed = (words ^ (words >> np.uint64(29))) * odd
    total = mixed.sum(1, dtype=np.uint64)
  # float64 represents integers of 52 bits exactly.
  return (total >> np.uint64(12)).astype(np.float64)


def _linear(present: np.ndarray, absent: np.ndarray) -> Score:
  """Returns the score along Fisher's direction, even where noise is tiny."""
  present, absent = _finite(present), _finite(absent)
  shift = present.mean(0) - absent.mean(0)
  if present.shape[1] > _LARGEST_COVARIANCE:
    covariance = present.var(0) + absent.var(0)
    direction = shift / (covariance + _RIDGE * covariance.max() + 1e-300)
  else:
    covariance = np.atleast_2d(np.cov(present.T) + np.cov(absent.T))
    # The ridge is relative, so that a direction of tiny noise still counts.
    # The last term avoids a singular matrix where nothing varies.
    ridge = _RIDGE * np.trace(covariance) + 1e-300
    direction = np.linalg.solve(
        covariance + ridge * np.eye(shift.size), shift)
  # Not the norm: where nothing varies its squares would overflow.
  length = np.abs(direction).max()
  direction = direction / length if length else direction
  return lambda y: _finite(y) @ direction


def _naive(present: np.ndarray, absent: np.ndarray,
           places: list[int]) -> Score:
  """Returns the sum of single coordinates' histogram log-likelihood ratios."""
  tables = []
  for place in places:
    cells = Partition('', functools.partial(_coordinate, place),
                      intervals.learn(present[:, place], absent[:, place]))
    # Half a count more in each cell keeps logarithms finite.
    counts = [cells.counts(y) + 0.5 for y in (present, absent)]
    tables.append((cells, np.log(counts[0] / counts[0].sum()) -
                   np.log(counts[1] / counts[1].sum())))
  return lambda y: np.sum([table[cells.cells(y)] for cells, table in tables],
                          axis=0)
