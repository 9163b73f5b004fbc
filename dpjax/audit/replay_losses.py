"""What the sites of a release cost on one pair of neighbours.

The cost of a site is that of its noise between the two values that it hides,
given all earlier noisy values. Costs of sites add up, because the noisy values
of all sites together are released at most (adaptive composition).
"""

import dataclasses
import math

import numpy as np
from scipy import optimize

from dpjax.audit import replay_noise
from dpjax.audit import replay_samplers as samplers
from dpjax.audit import replay_trace
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency

# Points of the grid on which probabilities of the largest are integrated.
_GRID = 8001


@dataclasses.dataclass(frozen=True)
class Cost:
  """Privacy cost of noisy values on one pair.

  Attributes:
    shift: mu of all Gaussian noise.
    laplace: ratios of shift and scale, one for each Laplace draw.
    discrete: (rate, whole shift) of discrete Laplace draws.
    pure: sum of other largest privacy losses.
    exact: False if `pure` or the others are upper bounds only.
    unknown: why a cost is unknown; empty if all are known.
    error: relative error of the measured scales.
  """
  shift: float = 0.0
  laplace: tuple[float, ...] = ()
  discrete: tuple[tuple[float, int], ...] = ()
  pure: float = 0.0
  exact: bool = True
  unknown: str = ''
  error: float = 0.0

  def __add__(self, other: 'Cost') -> 'Cost':
    return Cost(math.hypot(self.shift, other.shift),
                self.laplace + other.laplace, self.discrete + other.discrete,
                self.pure + other.pure, self.exact and other.exact,
                self.unknown or other.unknown, max(self.error, other.error))

  @property
  def largest_loss(self) -> float:
    """The largest privacy loss; infinite for Gaussian noise."""
    return (math.inf if self.shift > 0 else self.pure + math.fsum(self.laplace)
            + math.fsum(rate * step for rate, step in self.discrete))


def epsilon(cost: Cost, delta: float) -> float:
  """Returns the epsilon of a cost at delta, without the unknown parts."""
  if delta == 0 or cost.shift == 0 and cost.largest_loss in (0, math.inf):
    return cost.largest_loss
  if math.isinf(cost.shift) or math.isinf(cost.pure) or any(
      map(math.isinf, cost.laplace)):
    return math.inf
  if not (cost.laplace or cost.discrete or cost.pure):
    return _gaussian(cost.shift, delta)
  both = Adjacency.ADD_OR_REMOVE_ONE  # Of sensitivity 1 in the library.
  largest = dataclasses.replace(cost, shift=0.0).largest_loss
  if largest > 50 or cost.shift > 20:
    # Too much for the accountant; composition at delta is an upper bound.
    return largest + (_gaussian(cost.shift, delta) if cost.shift else 0.0)
  events = [accounting.laplace_event(noise_multiplier=1 / ratio)
            for ratio in cost.laplace if ratio > 1e-6]
  events += [accounting.discrete_laplace_event(noise_parameter=rate,
                                               sensitivity=step)
             for rate, step in cost.discrete]
  if cost.shift > 1e-6:
    events.append(accounting.gaussian_event(noise_multiplier=1 / cost.shift))
  if cost.pure > 0:
    events.append(accounting.pure_event(epsilon=cost.pure, adjacency=both))
  if not events:
    return 0.0
  spent = accounting.epsilon(accounting.composed_event(events), delta=delta,
                             adjacency=both)
  return min(spent, largest) if cost.shift == 0 else spent


def _gaussian(shift: float, delta: float) -> float:
  """Returns the epsilon of Gaussian noise of this mu."""
  if shift < 1e-4:
    return 0.0
  # For huge shifts the loss is mu^2 / 2 up to a few mu.
  return (shift**2 / 2 if shift > 100
          else accounting.gaussian_epsilon(shift=shift, delta=delta))


def of_sites(sites: list[replay_trace.Site], noise: replay_noise.Noise,
             one: np.ndarray, other: np.ndarray, units: np.ndarray,
             keep: list[int]) -> Cost:
  """Returns the joint cost of the sites `keep` in one run.

  Args:
    sites: all sites.
    noise: their joint noise.
    one: [D] values that the sites hide, of one data set.
    other: [D] those of its neighbour.
    units: [D] factors of the noise in this run.
    keep: numbers of the sites that count.
  """
  total, rows = Cost(), []
  users = [{site for site in range(len(sites)) if noise.mixing[
      noise.rows(site), column].any()} for column in range(
          len(noise.columns))]
  for number in keep:
    site, place = sites[number], noise.rows(number)
    alone = all(len(use) == 1 for use in users if number in use)
    if is_selection(site) or site.kind == 'threshold':
      part = (_selected if is_selection(site) else _compared)(
          site, noise, place, one, other, units)
      if not alone and change(one[place], other[place]).any():
        part = dataclasses.replace(
            part, unknown='a draw of a selection is used in two places')
      total += part
    else:
      rows += range(place.start, place.stop)
  return total + _sums(noise, np.array(rows, int), one, other, units)


def realised(sites: list[replay_trace.Site], noise: replay_noise.Noise,
             one: np.ndarray, other: np.ndarray, units: np.ndarray,
             outputs: np.ndarray, keep: list[int]) -> float | None:
  """Returns the privacy loss at the recorded noisy values of some sites.

  It is the logarithm of the ratio of the joint densities at them, exact for
  adaptive sites too; None unless all noise is independent Laplace noise. See
  `of_sites` for the arguments; `outputs` are the noisy values [D].
  """
  loss = 0.0
  for number in keep:
    rows = noise.rows(number)
    mixing = noise.mixing[rows]
    used = np.flatnonzero(mixing.any(0))
    columns = [noise.columns[column] for column in used]
    if (sites[number].kind != 'sum' or is_selection(sites[number]) or any(
        column.family not in ('laplace', 'discrete_laplace')
        for column in columns) or np.any(np.count_nonzero(
            noise.mixing[:, used], axis=0) > 1) or np.any(
                np.count_nonzero(mixing, axis=1) != 1)):
      return None
    scales = np.abs(mixing).max(1) * units[rows]
    scales = scales * [noise.columns[np.flatnonzero(row)[0]].scale
                       for row in mixing]
    mine, theirs = (np.abs(outputs[rows] - side[rows]) / scales
                    for side in (one, other))
    loss += float(np.sum(np.where(change(one[rows], other[rows]) == 0, 0.0,
                                  theirs - mine)))
  return loss


def is_selection(site: replay_trace.Site) -> bool:
  """Returns whether only the place of the largest noisy value is used."""
  return site.kind == 'sum' and site.scores and site.axes is not None


def change(one: np.ndarray, other: np.ndarray) -> np.ndarray:
  """Returns differences; NaN against a number counts as infinite."""
  with np.errstate(invalid='ignore'):
    differences = one - other
  same = (one == other) | (np.isnan(one) & np.isnan(other))
  # float32 sums are off by about their size times 1e-7 for each addition.
  slack = 2e-6 * np.maximum(np.abs(one), np.abs(other))
  differences = np.where(np.isnan(differences), np.inf, differences)
  return np.where(same | (np.abs(differences) <= slack), 0.0, differences)


def _sums(noise: replay_noise.Noise, rows: np.ndarray, one: np.ndarray,
          other: np.ndarray, units: np.ndarray) -> Cost:
  """Returns the cost of sums, component by component of the shared draws."""
  shifts = change(one[rows], other[rows]) / units[rows]
  mixing = noise.mixing[rows]
  total = Cost()
  for members, columns in noise.blocks(rows):
    if not shifts[members].any():
      continue
    if not np.isfinite(shifts[members]).all() or not len(columns):
      total += Cost(pure=math.inf)
      continue
    total += _component(mixing[np.ix_(members, columns)], shifts[members],
                        [noise.columns[column] for column in columns])
  return total


def _component(mixing: np.ndarray, shifts: np.ndarray,
               columns: list[replay_noise.Column]) -> Cost:
  """Returns the cost of sums whose noises are functions of the same draws."""
  families = {column.family for column in columns}
  error = max(column.error for column in columns)
  if len(families) > 1:
    return Cost(unknown=f'noise mixed of {", ".join(sorted(families))}')
  family, = families
  if family == 'k_norm':
    return _k_norm(mixing, shifts, columns)
  moved, *_ = np.linalg.lstsq(mixing, shifts, rcond=1e-6)
  if np.abs(mixing @ moved - shifts).max() > 1e-4 * np.abs(shifts).max():
    # Some sum of noisy values has no noise, and it differs.
    return Cost(pure=math.inf, error=error)
  scales = np.array([column.scale for column in columns])
  if family in ('normal', 'discrete_gaussian'):
    return Cost(shift=float(np.linalg.norm(moved / scales)), error=error)
  exact = np.linalg.matrix_rank(mixing, 1e-6) == len(columns)
  if not exact:
    moved = _least(mixing, shifts, scales)
  moved = np.where(np.abs(moved) < 1e-6 * np.abs(moved).max(), 0.0, moved)
  return dataclasses.replace(_of_draws(family, np.abs(moved), scales),
                             exact=bool(exact), error=error)


def _of_draws(family: str, moved: np.ndarray, scales: np.ndarray) -> Cost:
  """Returns the cost of independent draws that are moved by some amounts."""
  moving = moved > 0
  ratios = (moved / scales)[moving]
  if family == 'laplace':
    return Cost(laplace=tuple(ratios.tolist()))
  if family == 'logistic':
    return Cost(pure=float(ratios.sum()))
  if family == 'cauchy':
    return Cost(pure=float(2 * np.arcsinh(ratios / 2).sum()))
  if family == 'discrete_laplace':
    steps = np.round(moved[moving])
    # A shift by a fraction shows in the fraction of the answer.
    if (np.abs(steps - moved[moving]) > 1e-3).any():
      return Cost(pure=math.inf)
    return Cost(discrete=tuple((float(1 / scale), int(step)) for scale, step
                               in zip(scales[moving], steps, strict=True)))
  if family in ('exponential', 'uniform', 'words'):
    # The ends of its range move with the value.
    return Cost(pure=math.inf)
  return Cost(unknown=f'noise of family {family or "unknown"}')


def _least(mixing: np.ndarray, shifts: np.ndarray,
           scales: np.ndarray) -> np.ndarray:
  """Returns the shift of the draws of least cost that explains `shifts`."""
  size = len(scales)
  solved = optimize.linprog(
      np.concatenate([1 / scales, 1 / scales]),
      A_eq=np.concatenate([mixing, -mixing], 1), b_eq=shifts)
  return (np.full(size, np.inf) if solved.x is None
          else solved.x[:size] - solved.x[size:])


def _k_norm(mixing: np.ndarray, shifts: np.ndarray,
            columns: list[replay_noise.Column]) -> Cost:
  """Returns the cost of K-norm noise of one scale."""
  scale = np.abs(np.diag(mixing)).max() if mixing.shape[0] == mixing.shape[
      1] else 0.0
  if not scale or not np.allclose(mixing, scale * np.eye(len(mixing)),
                                  atol=1e-3 * scale):
    return Cost(unknown='K-norm noise that is mixed')
  return Cost(pure=float(np.linalg.norm(shifts, columns[0].order) / scale))


def _compared(site: replay_trace.Site, noise: replay_noise.Noise,
              place: slice, one: np.ndarray, other: np.ndarray,
              units: np.ndarray) -> Cost:
  """Returns the cost of comparisons of data with independent draws."""
  del site, units
  pure = 0.0
  for row in range(place.start, place.stop):
    if not change(one[row:row + 1], other[row:row + 1]).any():
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
    pure += _binary_loss(*(float(np.nan_to_num(p)) for p in probs))
  return Cost(pure=pure)


def _binary_loss(p: float, q: float) -> float:
  """Returns the largest log-ratio of two distributions of one bit."""
  if p == q:
    return 0.0
  if min(p, q) <= 0 or max(p, q) >= 1:
    return math.inf
  return max(abs(math.log(p / q)), abs(math.log((1 - p) / (1 - q))))


def _selected(site: replay_trace.Site, noise: replay_noise.Noise,
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
  pure = 0.0
  for scores, others in zip(*(rows_of(side[place] / factors[0], site)
                              for side in (one, other)), strict=True):
    if change(scores, others).any():
      loss = selection_loss(family, scores, others)
      if loss is None:
        return Cost(unknown=f'the largest of scores with {family} noise')
      pure += loss
  return Cost(pure=pure)


def rows_of(values: np.ndarray, site: replay_trace.Site) -> np.ndarray:
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
      ratios = np.abs(logs[0] - logs[1])[live]
    # Draws end 45 below the best, where probabilities are 3e-20.
    seen = np.maximum(*logs)[live] > -40
    return float(np.nan_to_num(ratios[seen], nan=math.inf).max(initial=0.0))
  if family not in ('normal', 'laplace', 'logistic', 'exponential'):
    return None
  first, second = (_chances(family, scores) for scores in (one, other))
  seen = np.maximum(first, second) > 1e-9
  # Tails below 1e-9 are not integrated well, so they are left out.
  low = np.minimum(first, second)[seen]
  if (low <= 1e-12).any():
    return None
  return float(np.abs(np.log(first[seen]) - np.log(second[seen])).max())


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
