"""Tight p-values of the correct guesses of a one-run audit.

The game is that of `one_run`: m canaries, each present by an independent fair
coin, and r guesses of coins, of which v are correct. `p_value` and
`curve_p_value` are the largest probability of v correct guesses that the claim
allows, so no valid test of the count is stronger. They hold however the
canaries interfere. `independent_p_value` is smaller, and holds only for games
that share no randomness: m separate runs, or one release that treats every
canary by itself. Canaries of one training run are not such games.

Statements and proofs: docs/theory/one_run.md. Sources: Steinke, Nasr and
Jagielski (2023), Mahloujifar, Melis and Chaudhuri (2024), whose p-values these
improve; Xiang et al. (2025), for the most confident of independent games.
"""

from collections.abc import Callable
import functools

import numpy as np
from scipy import special
from scipy import stats

from dpjax import errors
from dpjax.audit import curves
from dpjax.audit import one_run_program

# Larger lower bounds are cut to these values, which keeps them valid.
_LARGEST_EPSILON = 50.0
_LARGEST_SHIFT = 20.0
# Points of a Gaussian curve.
_POINTS = 48
# Cells of the quadrature over the rank of the last guess, which rounds up.
_CELLS = 1000
_SHIFT_PRECISION = 1e-3


def p_value(epsilon: float, *, num_canaries: int, num_guesses: int,
            num_correct: int, delta: float) -> float:
  """Returns the largest P(V >= v) over all (epsilon, delta)-DP mechanisms.

  V is the number of correct guesses. With B binomial (r, expit(epsilon)), the
  largest probability is the concave hull of the points
  (j P(B = j) / P(B >= j), P(B >= v) / P(B >= j)), j = 0..v, at m delta.

  Args:
    epsilon: epsilon of the hypothesis, >= 0.
    num_canaries: number m of canaries.
    num_guesses: number r of guesses; the auditor abstains on other canaries.
    num_correct: number v of correct guesses.
    delta: delta of the hypothesis, in [0, 1).
  """
  check_counts(num_canaries, num_guesses, num_correct)
  if not 0 <= delta < 1:
    raise ValueError(f'delta must lie in [0, 1), got {delta}')
  right = special.expit(errors.check_non_negative('epsilon', epsilon))
  levels = np.arange(num_correct + 1)
  tails = stats.binom.logsf(levels - 1, num_guesses, right)
  # The cost of a level is the m delta at which all guesses may start from it.
  costs = levels * np.exp(
      stats.binom.logpmf(levels, num_guesses, right) - tails)
  return _hull(costs, np.exp(tails[-1] - tails), num_canaries * delta)


def curve_p_value(curve: curves.PrivacyCurve, *, num_canaries: int,
                  num_guesses: int, num_correct: int) -> float:
  """Returns an upper bound on P(V >= v) for mechanisms with a privacy curve.

  It is the value of a linear program, whose variables are the probabilities of
  0..r correct guesses and whose constraints are the points of the curve. Dual
  multipliers make the result an upper bound whatever the solver's errors.

  Args:
    curve: privacy curve of the hypothesis; 1 is returned if it is empty.
    num_canaries: number m of canaries.
    num_guesses: number r of guesses.
    num_correct: number v of correct guesses.
  """
  check_counts(num_canaries, num_guesses, num_correct)
  # Every point holds, so the best of the single points' bounds does.
  best = min((p_value(epsilon, num_canaries=num_canaries,
                      num_guesses=num_guesses, num_correct=num_correct,
                      delta=min(delta, 1 - 1e-9))
              for epsilon, delta in zip(*curve, strict=True)), default=1.0)
  if curve.epsilons.size < 2 or num_correct == 0:
    return best
  return min(best, one_run_program.p_value(
      one_run_program.thinned(curve, num_canaries), num_canaries, num_guesses,
      num_correct))


def independent_p_value(curve: curves.PrivacyCurve, *, num_canaries: int,
                        num_guesses: int, num_correct: int) -> float:
  """Returns an upper bound on P(V >= v) over independent games.

  The r guesses may be the most confident of m games, chosen after all releases
  were seen: the order statistics of the confidence are accounted for. Do not
  use it for canaries of one training run. A mechanism that reveals all coins
  together with probability delta is (0, delta)-DP, and refuted by this bound.

  Args:
    curve: privacy curve of each game; 1 is returned if it is empty.
    num_canaries: number m of independent games.
    num_guesses: number r of guesses.
    num_correct: number v of correct guesses.
  """
  check_counts(num_canaries, num_guesses, num_correct)
  if num_correct == 0:
    return 1.0
  others = num_canaries - num_guesses
  if others == 0:
    return float(_tail(num_correct, num_guesses, _accuracy(curve, np.ones(1))
                       )[0])
  # The fraction of games at least as confident as the first that is not
  # guessed has the distribution beta (r + 1, m - r).
  ends = special.betaincinv(num_guesses + 1, others, [1e-9, 1 - 1e-9])
  edges = np.linspace(*ends, _CELLS + 1)
  masses = np.diff(special.betainc(num_guesses + 1, others, edges))
  # Accuracy falls in the fraction, so the lower end of a cell bounds it.
  tails = _tail(num_correct, num_guesses, _accuracy(curve, edges[:-1]))
  return float(min(1.0, masses @ tails + 2e-9))


def rejects_curve(curve: curves.PrivacyCurve, *, num_canaries: int,
                  num_guesses: int, num_correct: int,
                  significance: float = 0.05) -> bool:
  """Returns whether `curve_p_value` is at most `significance`, often faster.

  Independent games are among the mechanisms that `curve_p_value` allows, so
  where these reach the count there is no linear program to solve.
  """
  errors.check_open_unit('significance', significance)
  counts = dict(num_canaries=num_canaries, num_guesses=num_guesses,
                num_correct=num_correct)
  return (independent_p_value(curve, **counts) <= significance and
          curve_p_value(curve, **counts) <= significance)


def gaussian_curve(shift: float) -> curves.PrivacyCurve:
  """Returns points of the curve of N(0, 1) against N(shift, 1)."""
  errors.check_positive('shift', shift)
  # Of each epsilon the best test is a threshold on the release, here at `cuts`.
  cuts = shift / 2 + np.linspace(0, 6.5, _POINTS)
  epsilons = shift * (cuts - shift / 2)
  deltas = special.ndtr(shift - cuts) - np.exp(
      epsilons + special.log_ndtr(-cuts))
  # Rounded up, by more than the rounding error of the difference.
  return curves.PrivacyCurve(epsilons, np.clip(deltas, 0, 1) + 1e-15)


@functools.lru_cache(maxsize=4096)
def epsilon_lower_bound(*, num_canaries: int, num_guesses: int,
                        num_correct: int, delta: float,
                        significance: float = 0.05,
                        independent: bool = False) -> float:
  """Returns the largest epsilon that the guesses refute at delta, or 0.

  Args:
    num_canaries: number m of canaries.
    num_guesses: number r of guesses.
    num_correct: number v of correct guesses.
    delta: delta of the hypothesis, in [0, 1).
    significance: probability with which the bound may be wrong.
    independent: True for games that share no randomness, see
      `independent_p_value`; False is always valid.
  """
  errors.check_open_unit('significance', significance)
  counts = dict(num_canaries=num_canaries, num_guesses=num_guesses,
                num_correct=num_correct)

  def rejects(epsilon: float) -> bool:
    if not independent:
      return p_value(epsilon, **counts, delta=delta) <= significance
    return independent_p_value(curves.PrivacyCurve(
        np.array([epsilon]), np.array([delta])), **counts) <= significance
  return largest_rejected(rejects, _LARGEST_EPSILON)


@functools.lru_cache(maxsize=4096)
def gaussian_shift_lower_bound(*, num_canaries: int, num_guesses: int,
                               num_correct: int, significance: float = 0.05,
                               independent: bool = False) -> float:
  """Returns the largest refuted mu of a Gaussian trade-off, or 0.

  Args:
    num_canaries: number m of canaries.
    num_guesses: number r of guesses.
    num_correct: number v of correct guesses.
    significance: probability with which the bound may be wrong.
    independent: True for games that share no randomness, see
      `independent_p_value`; False is always valid.
  """
  errors.check_open_unit('significance', significance)
  counts = dict(num_canaries=num_canaries, num_guesses=num_guesses,
                num_correct=num_correct)

  def rejects(shift: float) -> bool:
    curve = gaussian_curve(max(shift, 1e-6))
    if independent:
      return independent_p_value(curve, **counts) <= significance
    return rejects_curve(curve, **counts, significance=significance)
  return largest_rejected(rejects, _LARGEST_SHIFT, precision=_SHIFT_PRECISION)


def largest_rejected(rejects: Callable[[float], bool], most: float, *,
                     precision: float = 1e-7) -> float:
  """Returns the largest value of a rejected interval [0, x), or 0.

  The interval is searched from 0 in doubling steps, since large values can take
  long. What is returned is rejected itself, and within `precision` of x.
  """
  low, high = 0.0, min(1.0, most)
  if not rejects(low):
    return 0.0
  while rejects(high):
    if high == most:
      return most
    low, high = high, min(2 * high, most)
  while high - low > precision:
    middle = (low + high) / 2
    low, high = (middle, high) if rejects(middle) else (low, middle)
  return low


def check_counts(num_canaries: int, num_guesses: int,
                 num_correct: int) -> None:
  """Checks that the counts are consistent, or raises."""
  errors.check_at_least('num_canaries', num_canaries, 1)
  errors.check_at_least('num_guesses', num_guesses, 1)
  errors.check_at_least('num_correct', num_correct, 0)
  if not num_correct <= num_guesses <= num_canaries:
    raise ValueError('num_correct must be at most num_guesses, which must be '
                     f'at most num_canaries; got {num_correct}, {num_guesses} '
                     f'and {num_canaries}')


def _tail(least: int, trials: int, rates: np.ndarray) -> np.ndarray:
  """Returns P(binomial (trials, rate) >= least), least >= 1, of each rate."""
  return special.betainc(least, trials - least + 1, rates)


def _hull(costs: np.ndarray, values: np.ndarray, budget: float) -> float:
  """Returns the concave hull of points (cost, value) at a budget.

  Costs and values are increasing and start at cost 0; the last value is 1.
  """
  if budget >= costs[-1]:
    return 1.0
  left, right = 0, costs.size - 1
  while True:
    slope = (values[right] - values[left]) / (costs[right] - costs[left])
    heights = values - slope * costs
    top = int(np.argmax(heights))
    # No point lies above the line through both ends: it is the hull here.
    if heights[top] <= heights[left] + 1e-13:
      return float(min(1.0, heights[top] + slope * budget))
    left, right = (top, right) if costs[top] <= budget else (left, top)


def _accuracy(curve: curves.PrivacyCurve,
              fractions: np.ndarray) -> np.ndarray:
  """Returns the best accuracy on the most confident fractions of the games.

  A confident fraction u contains false guesses alpha / 2 and correct guesses
  (1 - f(alpha)) / 2 of each side, with alpha + 1 - f(alpha) = u.
  """
  growth = np.exp(curve.epsilons)[:, None]
  deltas = curve.deltas[:, None]
  # Each point bounds 1 - f by two lines a + b alpha, solved for u - alpha.
  upper = (deltas + growth * fractions) / (1 + growth)
  lower = (growth - 1 + deltas + fractions) / (1 + growth)
  hits = np.min(np.concatenate([upper, lower, fractions[None]]), axis=0)
  return np.clip(hits / fractions, 0.5, 1)
