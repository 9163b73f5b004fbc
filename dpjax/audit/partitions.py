"""Ways to cut the outputs of a release into cells, learnt from some of them.

Each partition is a function of an output into one of a few cells. Which cells
tell two data sets apart is decided elsewhere; here is what is looked at: every
coordinate, the direction of the means, likelihood ratios, sizes, whole outputs
where few are possible, lowest bits, and what is not finite.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

_CELLS, _IN_A_CELL = 64, 64
_EXACT = 256
_COORDINATES = 24
_BIT_COORDINATES = 4
_LARGEST_COVARIANCE = 64
_RIDGE = 1e-9


class Partition(NamedTuple):
  """A finite description of outputs.

  Attributes:
    name: of what is looked at.
    score: outputs [n, d] -> [n] numbers.
    edges: [k] increasing: cells are the intervals between them, and three
      more for NaN and both infinities.
  """
  name: str
  score: Callable[[np.ndarray], np.ndarray]
  edges: np.ndarray

  @property
  def num_cells(self) -> int:
    """How many there are."""
    return self.edges.size + 4

  def cells(self, outputs: np.ndarray) -> np.ndarray:
    """The number of the cell of each output [n, d]: [n]."""
    scores = self.score(outputs)
    places = np.searchsorted(self.edges, scores, side='right')
    last = self.edges.size
    places = np.where(np.isposinf(scores), last + 1, places)
    places = np.where(np.isneginf(scores), last + 2, places)
    return np.where(np.isnan(scores), last + 3, places)

  def counts(self, outputs: np.ndarray) -> np.ndarray:
    """How many outputs are in each cell: [num_cells]."""
    return np.bincount(self.cells(outputs), minlength=self.num_cells)


def learn(present: np.ndarray, absent: np.ndarray, *,
          low_bits: bool) -> list[Partition]:
  """Partitions that may tell two samples of outputs [n, d] apart.

  What is learnt here must be judged by other outputs, or scores that were
  fitted look better than they are.

  Args:
    present: of one data set.
    absent: of its neighbour.
    low_bits: whether to look at lowest bits as well.
  """
  fitted = list(_scores(present, absent))
  if low_bits:
    fitted += lowest_bits(present.shape[1])
  return cut(present, absent, fitted)


def cut(present: np.ndarray, absent: np.ndarray,
        scores: Iterable[tuple[str, Callable[[np.ndarray], np.ndarray]]]
        ) -> list[Partition]:
  """Partitions by these (name, function) of outputs."""
  both = np.concatenate([present, absent])
  return [Partition(name, score, _edges(score(both)))
          for name, score in scores]


def _scores(present: np.ndarray, absent: np.ndarray) -> Iterator[
    tuple[str, Callable[[np.ndarray], np.ndarray]]]:
  """(name, function) of all that is looked at."""
  width = present.shape[1]
  kept = sorted({*range(min(width, _COORDINATES)), width - 1})
  for place in kept:
    yield f'coordinate {place}', lambda y, j=place: y[:, j]
  if not np.isfinite(np.concatenate([present, absent])).all():
    yield 'not finite', lambda y: np.sum(~np.isfinite(y), 1).astype(float)
  if width == 1:
    return
  yield 'whole output', _hashes
  yield 'sum', lambda y: _finite(y).sum(1)
  yield 'size', lambda y: np.square(_finite(y)).sum(1)
  yield 'means', _linear(present, absent)
  yield 'likelihood', _naive(present, absent, kept)


def lowest_bits(width: int) -> list[
    tuple[str, Callable[[np.ndarray], np.ndarray]]]:
  """(name, function) of the lowest bits of the first coordinates."""
  return [(f'lowest bit of coordinate {place}',
           lambda y, j=place: _lowest_bit(y[:, j]))
          for place in range(min(width, _BIT_COORDINATES))]


def _finite(outputs: np.ndarray) -> np.ndarray:
  return np.where(np.isfinite(outputs), np.clip(outputs, -1e30, 1e30), 0.0)


def _lowest_bit(values: np.ndarray) -> np.ndarray:
  """The exponent of the largest power of two that divides each value.

  Noise that is drawn in floating point and added to a number is a multiple of
  what the number's own bits end with: which values are possible then tells
  the number.
  """
  mantissa, exponent = np.frexp(_finite(values[:, None])[:, 0])
  whole = np.abs(mantissa * 2.0**53).astype(np.int64)
  lowest = np.log2(np.maximum(whole & -whole, 1).astype(np.float64))
  return np.where(whole == 0, 1100.0, exponent - 53 + lowest)


def _hashes(outputs: np.ndarray) -> np.ndarray:
  """A number for each whole output; equal ones have the same."""
  words = np.ascontiguousarray(outputs + 0.0).view(np.uint64)
  odd = np.random.default_rng(0).integers(
      0, 2**63, size=outputs.shape[1], dtype=np.uint64) * np.uint64(2)
  with np.errstate(over='ignore'):
    mixed = (words ^ (words >> np.uint64(29))) * (odd + np.uint64(1))[None]
    total = mixed.sum(1, dtype=np.uint64)
  return (total >> np.uint64(12)).astype(np.float64)


def _linear(present: np.ndarray, absent: np.ndarray):
  """Fisher's direction: also along which there is next to no noise."""
  present, absent = _finite(present), _finite(absent)
  shift = present.mean(0) - absent.mean(0)
  if present.shape[1] > _LARGEST_COVARIANCE:
    spread = present.var(0) + absent.var(0)
    direction = shift / (spread + _RIDGE * spread.max() + 1e-300)
  else:
    spread = np.atleast_2d(np.cov(present.T) + np.cov(absent.T))
    ridge = _RIDGE * np.trace(spread) + 1e-300
    direction = np.linalg.solve(
        spread + ridge * np.eye(shift.size), shift)
  length = np.linalg.norm(direction)
  direction = direction / length if length else direction
  return lambda y: _finite(y) @ direction


def _naive(present: np.ndarray, absent: np.ndarray, places: list[int]):
  """The sum of log-likelihood ratios of single coordinates, by histograms."""
  tables = []
  for place in places:
    coordinate = lambda y, j=place: y[:, j]
    cut = Partition('', coordinate, _edges(
        np.concatenate([present[:, place], absent[:, place]])))
    counts = [cut.counts(y) + 0.5 for y in (present, absent)]
    tables.append((cut, np.log(counts[0] / counts[0].sum()) -
                   np.log(counts[1] / counts[1].sum())))
  return lambda y: sum(table[cut.cells(y)] for cut, table in tables)


def _edges(scores: np.ndarray) -> np.ndarray:
  """Single values where there are few; else quantiles, atoms by themselves."""
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
      quantiles, tails, atoms, np.nextafter(atoms, np.inf)]))
