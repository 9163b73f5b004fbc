"""Costs of comparisons with noise, and of choosing the largest noisy score."""

import math

import numpy as np

from dpjax.audit.recording import costs
from dpjax.audit.recording import samplers
from dpjax.audit.recording.costs import Cost
from dpjax.audit.recording.noise import Noise
from dpjax.audit.recording.values import Site

# Points of the grid on which probabilities of the largest are integrated.
_GRID = 8001


def is_selection(site: Site) -> bool:
  """Returns whether only the place of the largest noisy value is used."""
  return site.kind == 'sum' and site.scores and site.axes is not None


def compared(site: Site, noise: Noise,
              place: slice, one: np.ndarray, other: np.ndarray,
              units: np.ndarray) -> Cost:
  """Returns the cost of comparisons of data with independent draws."""
  del site, units
  total = Cost()
  for row in range(place.start, place.stop):
    if not costs.change(one[row:row + 1], other[row:row + 1]).any():
      continue
    columns = np.flatnonzero(noise.mixing[row])
    column = noise.columns[columns[0]] if len(columns) == 1 else None
    if column is None or not column.family or column.family not in (
        'words', 'uniform', 'normal', 'laplace', 'logistic', 'gumbel'):
      return Cost(unknown='a comparison with a draw of unknown family')
    family = samplers.Family(
        column.family, column.location,
        column.scale if column.family in ('words', 'uniform') else
        float(abs(noise.mixing[row, columns[0]])))
    probs = samplers.cdf(family, np.array([one[row], other[row]]))
    p, q = (float(np.nan_to_num(prob)) for prob in probs)
    total += Cost(pure=_binary_loss(p, q), reverse=_binary_loss(q, p))
  return total


def _binary_loss(p: float, q: float) -> float:
  """Returns the largest log-ratio of bits that are 1 with p, or with q."""
  if p > 0 and q <= 0 or p < 1 and q >= 1:
    return math.inf
  return max(math.log(p / q) if p > 0 else -math.inf,
             math.log((1 - p) / (1 - q)) if p < 1 else -math.inf)


def selected(site: Site, noise: Noise,
              place: slice, one: np.ndarray, other: np.ndarray,
              units: np.ndarray) -> Cost:
  """Returns the cost of choosing the largest of noisy scores, row by row."""
  mixing = noise.mixing[place]
  columns = [np.flatnonzero(row) for row in mixing]
  if any(len(column) != 1 for column in columns) or len(
      {int(column[0]) for column in columns}) < len(columns):
    return Cost(unknown='scores whose noise is not independent')
  families = {noise.columns[column[0]].family for column in columns}
  factors = np.array([abs(row[column[0]]) for row, column in zip(
      mixing, columns, strict=True)]) * units[place]
  if len(families) > 1 or families & {'', 'k_norm'}:
    return Cost(unknown='scores with noise of unknown family')
  family, = families
  if not np.allclose(factors, factors[0], rtol=1e-3):
    return Cost(unknown='scores with noise of several scales')
  total = Cost()
  for scores, others in zip(*(rows_of(side[place] / factors[0], site)
                              for side in (one, other)), strict=True):
    if costs.change(scores, others).any():
      losses = [selection_loss(family, *pair) for pair in (
          (scores, others), (others, scores))]
      if losses[0] is None or losses[1] is None:
        return Cost(unknown=f'the largest of scores with {family} noise')
      total += Cost(pure=losses[0], reverse=losses[1])
  return total


def rows_of(values: np.ndarray, site: Site) -> np.ndarray:
  """Returns flat scores as rows, one for each choice."""
  assert site.axes is not None
  shaped = values.reshape(site.shape)
  last = [axis for axis in range(shaped.ndim) if axis not in site.axes]
  size = math.prod(site.shape[axis] for axis in site.axes)
  return shaped.transpose(*last, *site.axes).reshape(-1, size)


def selection_loss(family: str, one: np.ndarray,
                   other: np.ndarray) -> float | None:
  """Returns the largest log-ratio of the probabilities to be the largest.

  Args:
    family: noise of scale 1 that is added to the scores.
    one: [m] scores of one data set.
    other: [m] those of its neighbour.
  """
  if np.isnan(one).any() or np.isnan(other).any():
    return math.inf
  if family == 'gumbel':
    logs = [scores - np.logaddexp.reduce(scores) for scores in (one, other)]
    live = ~((one == -np.inf) & (other == -np.inf))
    with np.errstate(invalid='ignore'):
      ratios = (logs[0] - logs[1])[live]
    # Draws end 45 below the best, where probabilities are 3e-20.
    seen = logs[0][live] > -40
    return float(np.nan_to_num(ratios[seen], nan=math.inf).max(initial=0.0))
  if family not in ('normal', 'laplace', 'logistic', 'exponential'):
    return None
  first, second = (_chances(family, scores) for scores in (one, other))
  # Tails below 1e-9 are not integrated well, so they are left out.
  seen = first > 1e-9
  if (second[seen] <= 1e-12).any():
    return None
  return float((np.log(first[seen]) - np.log(second[seen])).max())


def _chances(family: str, scores: np.ndarray) -> np.ndarray:
  """Returns the probabilities [m] that a noisy score is the largest."""
  live = np.isfinite(scores)
  standard = samplers.CONTINUOUS[family]
  chances = np.zeros(len(scores))
  values = scores[live]
  if not values.size:
    return chances
  # A fine grid where the density has kinks, which lie at the scores.
  grid = np.unique(np.concatenate(
      [value + np.linspace(-40, 40, _GRID) for value in values]))
  middles, steps = (grid[1:] + grid[:-1]) / 2, np.diff(grid)
  with np.errstate(divide='ignore'):
    below = np.stack([standard.logcdf(middles - value) for value in values])
    dense = np.stack([standard.logpdf(middles - value) for value in values])
  rest = np.stack([np.delete(below, place, 0).sum(0)
                   for place in range(len(values))])
  chances[live] = np.exp(dense + rest) @ steps
  return chances
