"""Partitions of the outputs of a release into cells, learnt from a sample.

A partition maps each output to one of a few cells, by a score and edges. The
scores are: single coordinates, the direction between the means, likelihood
ratios, sums and sizes, whole outputs (useful if few are possible), values that
only one data set releases, lowest bits, and the number of values that are not
finite. Other modules choose the cells that distinguish two data sets.
"""

from collections.abc import Callable, Iterable, Iterator
import functools
from typing import NamedTuple

import numpy as np

# Most cells, and the mean number of learnt outputs in a cell.
_CELLS, _IN_A_CELL = 64, 64
# Up to this number of distinct scores, each score gets its own cell.
_EXACT = 256
# Only the first coordinates get scores of their own, to bound the work.
_COORDINATES = 24
_BIT_COORDINATES = 4
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
  """
  name: str
  score: Score
  edges: np.ndarray

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
      The latter are always included if all outputs are integers.
  """
  fitted = list(_scores(present, absent))
  if low_bits or _integers(present) and _integers(absent):
    fitted += _supports(present, absent)
  if low_bits:
    fitted += lowest_bits(present.shape[1])
  return cut(present, absent, fitted)


def cut(present: np.ndarray, absent: np.ndarray,
        scores: Iterable[tuple[str, Score]]) -> list[Partition]:
  """Returns one partition for each (name, score function)."""
  both = np.concatenate([present, absent])
  return [Partition(name, score, _edges(score(both)))
          for name, score in scores]


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
  """Returns exponents [n] of the powers of two that divide a coordinate.

  Floating-point noise added to a number is rounded to a multiple of a power of
  two that depends on the number, so the possible sums reveal the number.
  """
  mantissa, exponent = np.frexp(_finite(outputs[:, [place]])[:, 0])
  # A float64 has 53 significant bits, so this product is an integer.
  whole = np.abs(mantissa * 2.0**53).astype(np.int64)
  # x & -x keeps only the lowest bit of an integer in two's complement.
  lowest = np.log2(np.maximum(whole & -whole, 1).astype(np.float64))
  # Every power divides 0: its score is above all exponents of a float64.
  return np.where(whole == 0, 1100.0, exponent - 53 + lowest)


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
  length = np.linalg.norm(direction)
  direction = direction / length if length else direction
  return lambda y: _finite(y) @ direction


def _naive(present: np.ndarray, absent: np.ndarray,
           places: list[int]) -> Score:
  """Returns the sum of single coordinates' histogram log-likelihood ratios."""
  tables = []
  for place in places:
    cells = Partition('', functools.partial(_coordinate, place), _edges(
        np.concatenate([present[:, place], absent[:, place]])))
    # Half a count more in each cell keeps logarithms finite.
    counts = [cells.counts(y) + 0.5 for y in (present, absent)]
    tables.append((cells, np.log(counts[0] / counts[0].sum()) -
                   np.log(counts[1] / counts[1].sum())))
  return lambda y: np.sum([table[cells.cells(y)] for cells, table in tables],
                          axis=0)


def _edges(scores: np.ndarray) -> np.ndarray:
  """Returns cell edges: all values if few; else quantiles, tails and atoms.

  Each atom, a value with many scores, gets a cell of its own.
  """
  scores = scores[np.isfinite(scores)]
  values, counts = np.unique(scores, return_counts=True)
  if values.size <= _EXACT:
    return values
  cells = int(np.clip(scores.size / _IN_A_CELL, 2, _CELLS))
  quantiles = np.quantile(scores, np.linspace(0, 1, cells + 1)[1:-1],
                          method='inverted_cdf')
  tails = np.concatenate([values[:3], values[-3:]])
  atoms = values[counts > scores.size / (4 * cells)]
  return np.unique(np.concatenate([
      # An edge right above each atom separates it from larger values.
      quantiles, tails, atoms, np.nextafter(atoms, np.inf)]))
