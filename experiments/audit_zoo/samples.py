"""Releases of the worst pair, prepared for auditors that take numbers.

A pilot of other runs decides how the rest is scaled, coded and projected, so
that a test of the rest keeps its significance.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from dpjax.typing import PRNGKey
from experiments.audit_zoo import bug

# An output with at most this many values in the pilot counts as discrete.
_FEW = 64


class Samples(NamedTuple):
  """Releases of two neighbouring data sets.

  Attributes:
    pilot: two arrays [p, d], to choose what is tested.
    tested: two arrays [n, d] of further releases.
  """
  pilot: tuple[np.ndarray, np.ndarray]
  tested: tuple[np.ndarray, np.ndarray]


def draw(key: PRNGKey, item: bug.Bug, fixed: bool, *, num_pilot: int,
         num_tested: int) -> Samples:
  """Draws releases of both data sets of the worst pair; all are finite.

  Infinity and NaN become numbers beyond all others, because the auditors that
  use them expect numbers.
  """
  target = item.given_pair(fixed)
  sides = [target.draw(k, data, num_pilot + num_tested) for k, data in zip(
      jax.random.split(key), item.worst[:2], strict=True)]
  if sides[0].shape[1] != sides[1].shape[1]:
    raise ValueError('the two data sets release different numbers of values')
  one, other = np.split(_finite(np.concatenate(sides)), 2)
  return Samples((one[:num_pilot], other[:num_pilot]),
                 (one[num_pilot:], other[num_pilot:]))


def _finite(outputs: np.ndarray) -> np.ndarray:
  """Returns outputs [n, d] with numbers beyond all others for inf and NaN."""
  finite = np.where(np.isfinite(outputs), outputs, 0.0)
  low, high = finite.min(), finite.max()
  width = high - low + 1.0
  return np.nan_to_num(outputs, nan=low - 2 * width, posinf=high + width,
                       neginf=low - width)


def scaled(samples: Samples) -> Samples:
  """Returns samples whose columns have median 0 and quartiles near -1 and 1."""
  pilot = np.concatenate(samples.pilot)
  low, middle, high = np.quantile(pilot, [0.25, 0.5, 0.75], axis=0)
  # A column with an atom may have equal quartiles.
  spread = np.where(high > low, high - low, pilot.std(axis=0)) / 2
  spread = np.where(spread > 0, spread, 1.0)
  return _mapped(samples, lambda rows: (rows - middle) / spread)


def projected(samples: Samples) -> Samples:
  """Returns samples [n, 1]: their part along the difference of the means."""
  one, other = samples.pilot
  if one.shape[1] == 1:
    return samples
  direction = one.mean(axis=0) - other.mean(axis=0)
  return _mapped(scaled(samples), lambda rows: rows @ direction[:, None])


def values(samples: Samples) -> np.ndarray | None:
  """Returns the distinct values [m] of samples [n, 1]; None if too many."""
  distinct = np.unique(np.concatenate(samples.pilot))
  return distinct if distinct.size <= _FEW else None


def coded(samples: Samples) -> Samples:
  """Returns samples whose discrete columns have values 0, 1, ..."""
  columns = []
  for place in range(samples.pilot[0].shape[1]):
    column = _mapped(samples, lambda rows: rows[:, place:place + 1])
    known = values(column)
    if known is not None:
      # A value that the pilot did not have counts as the next larger one.
      column = _mapped(column, lambda rows: np.minimum(
          np.searchsorted(known, rows), known.size - 1).astype(np.float64))
    columns.append(column)
  joined = [np.concatenate([column[part][side] for column in columns], axis=1)
            for part in range(2) for side in range(2)]
  return Samples((joined[0], joined[1]), (joined[2], joined[3]))


def scores(samples: Samples) -> tuple[np.ndarray, np.ndarray]:
  """Returns scores [n] of the tested releases, larger on one side.

  For discrete outputs the score is the logarithm of the ratio of their
  frequencies in the pilot; otherwise it is the projected output.
  """
  line = coded(projected(samples))
  if values(line) is None:
    return line.tested[0][:, 0], line.tested[1][:, 0]
  size = int(max(rows.max() for part in line for rows in part)) + 1
  # Half a count more, because a value may be missing on one side.
  counts = [np.bincount(rows[:, 0].astype(int), minlength=size) + 0.5
            for rows in line.pilot]
  ratio = np.log(counts[0] / counts[1])
  return (ratio[line.tested[0][:, 0].astype(int)],
          ratio[line.tested[1][:, 0].astype(int)])


def _mapped(samples: Samples, function: Callable[[np.ndarray], np.ndarray]
            ) -> Samples:
  """Applies a function of rows [n, d] to all parts."""
  pilot, tested = ((function(one), function(other)) for one, other in samples)
  return Samples(pilot, tested)
