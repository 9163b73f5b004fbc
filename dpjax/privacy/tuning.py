"""Privacy cost of releasing only the best of several private runs.

Theorem. Let runs be independent and of one privacy profile delta(.), let their
number have the generating function f and be independent of the data, and let
only the best output be released, by an order of outputs that is fixed before.
Put w(u) = f'(1 - u) and g(u) = min over real e of e^e u + delta(e), the largest
probability that an event of probability u can have on a neighbouring data set.
Let phi be convex with phi(x) >= max over u of (w(u) - x w(g(u)))_+, written as

  phi(x) = sum_j D_j (1 - x / t_j)_+,   D_j >= 0.

Then the release is (epsilon, sum_j D_j delta(epsilon - ln t_j))-DP for every
epsilon. The proof is in docs/theory/private_selection.md.

It holds for any distribution of the number, and for runs that draw their own
hyperparameters. For a pure epsilon_0 and a truncated negative binomial number
it gives epsilon_0 + (1 + eta) ln((e^epsilon_0 + g) / (1 + g e^epsilon_0)),
which is attained, and less than the (2 + eta) epsilon_0 of Papernot and Steinke
(2022). Each factor t_j is at most that of Koskela, Redberg and Wang (2024), who
have one for all. Item DP-21.
"""

from collections.abc import Callable, Sequence
import math
from typing import NamedTuple

import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.stopping import RandomStopping

_NUM_EPSILONS = 200
_LARGEST_EPSILON = 300.0
# Largest epsilon of a composition, in steps of its grid.
_MOST_STEPS = 10**6
# Shares u of better runs at which the ratio of the weights is bounded.
_SHARES = np.append(0.0, np.geomspace(1e-11, 1.0, 40_000))
# Of the mean number of runs: covers the errors of sums in float64.
_ROUNDING = 1e-13


class Profile(NamedTuple):
  """Privacy profile of a release: upper bounds on delta at some epsilons.

  Attributes:
    epsilons: [m] increasing from 0, at least two.
    deltas: [m] in [0, 1]: the release is (epsilons[i], deltas[i])-DP.
  """
  epsilons: np.ndarray
  deltas: np.ndarray

  def at(self, epsilons: np.ndarray) -> np.ndarray:
    """Returns deltas, upper bounds, at these epsilons, which may be negative.

    delta is convex in e^epsilon, so it is at most its chord. At -e it is at
    most 1 - e^-e + e^-e delta(e), by the exchange of both data sets.
    """
    size = np.abs(epsilons)
    last = len(self.epsilons) - 1
    left = np.clip(np.searchsorted(self.epsilons, size, 'right') - 1, 0,
                   last - 1)
    start, stop = self.epsilons[left], self.epsilons[left + 1]
    share = np.expm1(np.minimum(size, stop) - start) / np.expm1(stop - start)
    deltas = (1 - share) * self.deltas[left] + share * self.deltas[left + 1]
    return np.where(epsilons >= 0, deltas,
                    -np.expm1(-size) + np.exp(-size) * deltas)

  def largest_prob(self, prob: np.ndarray) -> np.ndarray:
    """Returns g(u): the largest probability of an event on a neighbour.

    Args:
      prob: its probability u on the data set.
    """
    epsilons = np.concatenate([-self.epsilons[:0:-1], self.epsilons])
    slopes, offsets = np.exp(epsilons), self.at(epsilons)
    # Every line e^e u + delta(e) bounds the probability. The one of least value
    # is where the slope of the convex function delta passes -u.
    descents = np.minimum.accumulate(-np.diff(offsets) / np.diff(slopes))
    best = np.searchsorted(-descents, -prob)
    return np.minimum(1.0, offsets[best] + slopes[best] * prob)


def profile(runs: Sequence[accounting.DpEvent], *,
            adjacency: Adjacency) -> Profile:
  """Returns the profile of a run with one of these events, drawn uniformly.

  The choice is public after the run, so delta is the mean of theirs.

  Args:
    runs: one event for each candidate.
    adjacency: the neighbouring relation of the claim.

  Raises:
    ValueError: if there is no event, one without a guarantee, or one that the
      accountant does not cover.
  """
  if not runs:
    raise ValueError('there must be the event of at least one run')
  counts: dict[str, tuple[accounting.DpEvent, int]] = {}
  for event in runs:  # Events cannot be hashed, since some hold lists.
    counts[repr(event)] = event, counts.get(repr(event), (event, 0))[1] + 1
  top = max(accounting.epsilon(event, delta=accounting.MIN_DELTA,
                               adjacency=adjacency)
            for event, _ in counts.values())
  if not top <= _LARGEST_EPSILON:
    raise ValueError(f'each run needs a guarantee: epsilon of one is {top} at '
                     f'delta = {accounting.MIN_DELTA:g}, no more than '
                     f'{_LARGEST_EPSILON:g} is allowed')
  epsilons = np.linspace(0.0, max(top, 1e-6), _NUM_EPSILONS)
  deltas = sum(count * accounting.delta_curve(
      event, epsilons=list(epsilons), adjacency=adjacency)
      for event, count in counts.values()) / len(runs)
  return Profile(epsilons, np.clip(deltas, 0.0, 1.0))


class BestRun:
  """The privacy of the best of a random number of runs, see the module."""

  def __init__(self, run: Profile, stopping: RandomStopping):
    """Computes the factors t_j and their weights D_j.

    Args:
      run: profile of one run.
      stopping: distribution of the number of runs.
    """
    self._run = run
    self._mean = float(stopping.weight(np.array(0.0)))
    # For u in [u_i, u_(i+1)]: w(u) <= w(u_i), and w(g(u)) >= w(g(u_(i+1))).
    sizes, factors = _hull(stopping.weight(run.largest_prob(_SHARES[1:])),
                           stopping.weight(_SHARES[:-1]))
    self._sizes, self._shifts = sizes, np.log(factors)

  def delta(self, epsilon: float) -> float:
    """Returns a delta for which the release is (epsilon, delta)-DP."""
    errors.check_non_negative('epsilon', epsilon)
    total = self._sizes @ self._run.at(epsilon - self._shifts)
    return min(1.0, float(total) * (1 + 1e-9) + self._mean * _ROUNDING)

  def epsilon(self, delta: float) -> float:
    """Returns an epsilon for which the release is (epsilon, delta)-DP.

    Raises:
      ValueError: if delta is out of range, or too small for this many runs.
    """
    accounting.check_delta(delta)
    low, high = 0.0, float(self._run.epsilons[-1] + max(0, self._shifts.max()))
    if self.delta(low) <= delta:
      return 0.0
    if self.delta(high) > delta:
      raise ValueError(f'delta must be above {self.delta(high):.1e} for '
                       f'{self._mean:.4g} runs in the mean, got {delta}')
    while high - low > 1e-6 * max(1.0, high):
      middle = (low + high) / 2
      low, high = ((middle, high) if self.delta(middle) > delta else
                   (low, middle))
    return high


def epsilon(runs: Sequence[accounting.DpEvent], stopping: RandomStopping, *,
            delta: float, adjacency: Adjacency) -> float:
  """Returns the epsilon of the best of a random number of independent runs.

  Each run draws one of the candidates uniformly, with replacement, and releases
  its output and its score. Only the best one leaves, and neither the number of
  runs nor anything of another run may become known: not by logs, and not by the
  time that the search takes.

  Args:
    runs: the event of a run of each candidate; a score that reads private
      records is a part of it.
    stopping: distribution of the number of runs.
    delta: in [1e-12, 1), well above 1e-12 times the mean number of runs.
    adjacency: the neighbouring relation of the claim.

  Raises:
    ValueError: see `profile` and `BestRun.epsilon`.

  Examples:
    >>> from dpjax.privacy import accounting
    >>> from dpjax.privacy import tuning
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> from dpjax.privacy.stopping import RandomStopping
    >>> run = accounting.gaussian_event(noise_multiplier=4.0)
    >>> claim = dict(delta=1e-5, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    >>> best = tuning.epsilon([run], RandomStopping(mean=20), **claim)
    >>> total = tuning.all_runs_event([run] * 20)
    >>> round(accounting.epsilon(run, **claim), 2), round(best, 2), round(
    ...     accounting.epsilon(total, **claim), 2)
    (0.93, 1.58, 4.98)
  """
  accounting.check_delta(delta)
  return BestRun(profile(runs, adjacency=adjacency), stopping).epsilon(delta)


def all_runs_event(runs: Sequence[accounting.DpEvent]) -> accounting.DpEvent:
  """Returns the event of a choice from a number of runs that was fixed.

  It is that of releasing all runs. So it covers every rule of choice, also a
  search whose next run depends on earlier ones, and it allows to publish them.

  Args:
    runs: the event of each run, fixed before the first; those of a search that
      chooses them need `adaptive_epsilon` of experiments.
  """
  if not runs:
    raise ValueError('there must be the event of at least one run')
  return accounting.composed_event(list(runs))


def all_runs_guarantee(runs: Sequence[ApproxDP]) -> ApproxDP:
  """Returns the guarantee of all of these runs, and of any choice among them.

  The sum of their epsilons and deltas; or, at twice the sum of the deltas, the
  optimal composition, if it is less by a percent and takes only seconds.

  Args:
    runs: the guarantee of each run, all under one adjacency.
  """
  total = math.fsum(run.epsilon for run in runs)
  delta = math.fsum(run.delta for run in runs)
  if delta >= 1:
    raise ValueError(f'all runs together have no guarantee: their deltas add '
                     f'up to {delta:.3g}, no less than 1')
  least = min((run.epsilon for run in runs if run.epsilon), default=1.0)
  grid = min(1e-4, least / 50)  # That of `optimal_composition`.
  if total <= _MOST_STEPS * grid and accounting.MIN_DELTA <= 2 * delta < 1:
    tighter = accounting.optimal_composition(runs, delta=2 * delta)
    if tighter < 0.99 * total:  # Else a smaller delta is worth more.
      return ApproxDP(epsilon=tighter, delta=2 * delta)
  return ApproxDP(epsilon=total, delta=delta)


def run_epsilon(cost: Callable[[float], float], target: float) -> float:
  """Returns an epsilon for each run, so that the choice costs the target.

  Args:
    cost: epsilon of one run -> epsilon of the whole, increasing and not less
      than the first.
    target: of the whole, positive.

  Returns:
    An epsilon with cost(epsilon) <= target, within one percent of the largest.

  Raises:
    ValueError: if even a thousandth of the target is too much.
  """
  errors.check_positive('epsilon', target)
  low, high, share = 0.0, target, target / 2
  while share > 1e-3 * target:
    spent = cost(share)
    low, high = (share, high) if spent <= target else (low, share)
    if low and (high <= 1.01 * low or 0.99 * target <= spent <= target):
      return low
    # The cost is nearly proportional; if that misleads, halve the interval.
    guess = 0.995 * share * target / spent
    share = guess if low < guess < high else (low + high) / 2
  raise ValueError(f'no epsilon of a run allows a choice at {target}: it costs '
                   'more than that by itself; raise epsilon or delta, or make '
                   'fewer runs')


def _hull(slopes: np.ndarray,
          heights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns (D, t) with sum_j D_j (1 - x / t_j)_+ = max_i (a_i - x b_i)_+.

  The lines that reach the maximum are the corners of the upper hull of the
  points (b_i, a_i) and (0, 0); its edges have the slopes t_j.

  Args:
    slopes: b, decreasing.
    heights: a, decreasing.
  """
  corners = [(0.0, 0.0)]
  edges: list[float] = []
  for slope, height in zip(slopes[::-1].tolist(), heights[::-1].tolist(),
                           strict=True):
    while True:
      rise, run = height - corners[-1][1], slope - corners[-1][0]
      edge = rise / run if run > 0 else math.inf
      if rise <= 0 or not edges or edge < edges[-1]:
        break
      corners.pop()
      edges.pop()
    if rise > 0:
      corners.append((slope, height))
      edges.append(edge)
  return np.diff([height for _, height in corners]), np.array(edges)
