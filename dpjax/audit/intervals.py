"""Cell edges of one score, learnt from two samples of its values.

The edges separate quantiles, tails, atoms (values that repeat), and clusters:
intervals that are far denser than their surroundings, or in which the two
samples differ far more than in their surroundings. Clusters are searched at
every scale. Edges are learnt from one half of a pilot; another half judges
them, so that the number of intervals searched costs no significance.
"""

import numpy as np

# Most quantile cells, and the mean number of learnt scores in a cell.
_CELLS, _IN_A_CELL = 512, 32
# Up to this number of distinct scores, each score gets its own cell, provided
# that values repeat so often on average.
_EXACT, _REPEATS = 256, 4
_FEW = 16
# A value is an atom if it was seen this often; so many atoms get cells.
_ATOM, _ATOMS = 3, 64
# Windows of 8, 16, ... scores are compared with surroundings of 8 times as
# many. So many of each size get a cell if they differ by this many standard
# errors, or if they are this much denser.
_LEAST_WINDOW, _SURROUNDINGS = 8, 8
_WINDOWS, _DIFFERENT, _DENSE = 6, 3.5, 30.0


def learn(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
  """Returns increasing cell edges [k] from two samples of scores, [n] and [m].

  The cells are [edge, next edge). Scores that are not finite are ignored.
  """
  ours, theirs = (x[np.isfinite(x)] for x in (ours, theirs))
  both = np.concatenate([ours, theirs])
  values, places, counts = np.unique(both, return_inverse=True,
                                     return_counts=True)
  if values.size <= _FEW or values.size <= min(_EXACT, both.size / _REPEATS):
    return values
  cells = int(np.clip(both.size / _IN_A_CELL, 2, _CELLS))
  atoms = _atoms(values, np.bincount(places[:ours.size],
                                     minlength=values.size),
                 counts, both.size / (4 * cells))
  return np.unique(np.concatenate([
      _quantiles(np.sort(both), cells), atoms,
      # An edge right above each atom separates it from larger values.
      np.nextafter(atoms, np.inf), _clusters(ours, theirs)]))


def _quantiles(ordered: np.ndarray, cells: int) -> np.ndarray:
  """Returns quantiles of ordered scores, and finer ones in both tails."""
  inner = np.arange(1, cells) * ordered.size // cells
  # Thresholds in the tails matter for claims of a small delta.
  tails = np.unique(np.geomspace(1, max(2, ordered.size // cells),
                                 12).astype(int))
  return ordered[np.concatenate([tails - 1, inner, ordered.size - tails])]


def _atoms(values: np.ndarray, ours: np.ndarray, counts: np.ndarray,
           frequent: float) -> np.ndarray:
  """Returns the values that repeat most, or on one side only.

  Args:
    values: [k] distinct scores.
    ours: [k] how often each was seen in the first sample.
    counts: [k] how often each was seen in both samples.
    frequent: every value that was seen more often than this is an atom.
  """
  excess = np.abs(2 * ours - counts) / np.sqrt(counts)
  chosen = np.argsort(-np.where(counts >= _ATOM, excess, -1),
                      kind='stable')[:_ATOMS]
  chosen = chosen[counts[chosen] >= _ATOM]
  return np.concatenate([values[chosen], values[counts > frequent]])


def _clusters(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
  """Returns both ends of the windows that stand out, at every scale."""
  both = np.concatenate([ours, theirs])
  order = np.argsort(both, kind='stable')
  ordered = both[order]
  sums = np.append(0, np.cumsum(order < ours.size))
  ends: list[np.ndarray] = [np.zeros(0)]
  width = _LEAST_WINDOW
  while width * _SURROUNDINGS <= ordered.size:
    starts = np.arange(0, ordered.size - width + 1, width // 4)
    for chosen in _standing_out(ordered, sums, starts, width):
      first, last = ordered[chosen], ordered[chosen + width - 1]
      ends += [first, np.nextafter(last, np.inf)]
    width *= 2
  return np.concatenate(ends)


def _standing_out(ordered: np.ndarray, sums: np.ndarray, starts: np.ndarray,
                  width: int) -> list[np.ndarray]:
  """Returns starts of windows that differ from, or are denser than, others.

  Args:
    ordered: [n] scores in increasing order.
    sums: [n + 1] sums[i] of the first i scores are of the first sample.
    starts: [s] places in `ordered` at which windows start.
    width: number of scores in a window.
  """
  around = width * _SURROUNDINGS
  left = np.clip(starts + width // 2 - around // 2, 0, ordered.size - around)
  part = (sums[starts + width] - sums[starts]) / width
  # Half a score more on each side keeps the standard error positive.
  usual = (sums[left + around] - sums[left] + 0.5) / (around + 1)
  different = np.abs(part - usual) / np.sqrt(usual * (1 - usual) / width)
  with np.errstate(over='ignore', invalid='ignore'):
    length = ordered[starts + width - 1] - ordered[starts]
    wide = ordered[left + around - 1] - ordered[left]
    dense = wide / np.maximum(_SURROUNDINGS * length,
                              np.finfo(float).tiny)
  dense = np.where(np.isfinite(dense), dense, 0.0)
  return [starts[np.argsort(-score, kind='stable')[:_WINDOWS]][
      np.sort(-score)[:_WINDOWS] <= -least]
      for score, least in ((different, _DIFFERENT), (dense, _DENSE))]
