"""Lower bounds on epsilon from one run with many canaries.

An independent fair coin decides whether each of m canaries is in the training
set. The auditor tosses the coins, then guesses some of them from the release
and counts correct guesses. Validity needs no other randomness: all other
records are fixed. Canaries may interfere with each other, which costs power but
not validity. The claim must hold for adding or removing one canary.

The p-values of this module are the published ones. Those of `one_run_tight` are
the smallest that are valid for a count of correct guesses; the grid uses them.

Sources: Steinke, Nasr and Jagielski (2023; AUD-06), Mahloujifar, Melis and
Chaudhuri (2024; AUD-07), Ville's inequality (AUD-08).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy import stats

from dpjax import errors
from dpjax.audit import one_run_tight

FRACTIONS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Fractions of the canaries to guess: a grid fixed before any audit.

Few guesses show most of the tails of Gaussian noise, all guesses most of
randomised response. Each fraction more costs all others significance.
"""

# Stakes of the bets in `wealth`, a mixture with equal weights.
_BETS = np.array([0.05, 0.1, 0.2, 0.4, 0.8])
# Larger lower bounds are cut to these values, which keeps them valid.
_LARGEST_EPSILON = 50.0
_LARGEST_SHIFT = 20.0
# e^710 overflows float64.
_LARGEST_LOG = 700.0


def p_value(epsilon: float, *, num_canaries: int, num_guesses: int,
            num_correct: int, delta: float) -> float:
  """Returns the p-value of the hypothesis of (epsilon, delta)-DP (AUD-06).

  For delta = 0 each guess is correct with probability expit(epsilon) at most,
  whatever the other guesses were. A delta > 0 adds
  2 m delta max_i (P(>= v - i correct) - P(>= v correct)) / i to the p-value.

  Args:
    epsilon: epsilon of the hypothesis, >= 0.
    num_canaries: number m of canaries.
    num_guesses: number r of guesses; the auditor abstains on other canaries.
    num_correct: number v of correct guesses.
    delta: delta of the hypothesis, in [0, 1).
  """
  one_run_tight.check_counts(num_canaries, num_guesses, num_correct)
  if not 0 <= delta < 1:
    raise ValueError(f'delta must lie in [0, 1), got {delta}')
  right = special.expit(errors.check_non_negative('epsilon', epsilon))
  tail = stats.binom.sf(num_correct - 1, num_guesses, right)
  if delta == 0 or num_correct == 0:
    return float(tail)
  # Up to v correct guesses may be owed to delta instead of epsilon.
  extra = np.arange(1, num_correct + 1)
  more = stats.binom.sf(num_correct - extra - 1, num_guesses, right)
  gain = np.max((more - tail) / extra)
  return float(min(1.0, tail + 2 * num_canaries * delta * gain))


def epsilon_lower_bound(*, num_canaries: int, num_guesses: int,
                        num_correct: int, delta: float,
                        significance: float = 0.05) -> float:
  """Returns the largest epsilon that `p_value` rejects (AUD-06), or 0."""
  errors.check_open_unit('significance', significance)
  return one_run_tight.largest_rejected(
      lambda epsilon: p_value(
          epsilon, num_canaries=num_canaries, num_guesses=num_guesses,
          num_correct=num_correct, delta=delta) <= significance,
      _LARGEST_EPSILON)


def largest_bound(*, num_guesses: int, significance: float = 0.05) -> float:
  """Returns the bound that perfect guesses give at delta 0."""
  errors.check_at_least('num_guesses', num_guesses, 1)
  # The p-value of r perfect guesses is expit(epsilon)^r.
  return float(max(0.0, special.logit(significance**(1 / num_guesses))))


def rejects_trade_off(blow_up: Callable[[float], float], *, num_canaries: int,
                      num_guesses: int, num_correct: int,
                      significance: float = 0.05) -> bool:
  """Returns whether the guesses refute a whole trade-off function (AUD-07).

  Args:
    blow_up: the inverse of 1 - f: maps a power to the least false alarm rate of
      a test with that power; Phi(Phi^-1(.) - mu) for a Gaussian trade-off.
    num_canaries: number m of canaries.
    num_guesses: number r of guesses.
    num_correct: number v of correct guesses.
    significance: upper bound on the probability of a false rejection.
  """
  one_run_tight.check_counts(num_canaries, num_guesses, num_correct)
  errors.check_open_unit('significance', significance)
  # The recursion of Mahloujifar, Melis and Chaudhuri (2024), downwards from v.
  right = significance * num_correct / num_canaries
  wrong = significance * (num_guesses - num_correct) / num_canaries
  for i in range(num_correct - 1, -1, -1):
    larger = max(wrong, blow_up(right))
    if larger == wrong:  # Neither value would change in later steps.
      break
    right = min(1.0, right + i / (num_guesses - i) * (larger - wrong))
    wrong = larger
  return right + wrong > num_guesses / num_canaries


def gaussian_shift_lower_bound(*, num_canaries: int, num_guesses: int,
                               num_correct: int,
                               significance: float = 0.05) -> float:
  """Returns the largest refuted mu of a Gaussian trade-off (AUD-07).

  It holds for Gaussian trade-offs only. `bounds.shift_to_epsilon` converts it
  to an epsilon.
  """
  def rejects(shift: float) -> bool:
    return rejects_trade_off(
        lambda power: special.ndtr(special.ndtri(power) - shift),
        num_canaries=num_canaries, num_guesses=num_guesses,
        num_correct=num_correct, significance=significance)

  return one_run_tight.largest_rejected(rejects, _LARGEST_SHIFT)


def wealth(correct: np.ndarray, *, epsilon: float) -> np.ndarray:
  """Returns the wealth [r] after each bet on a correct guess (AUD-08).

  The wealth starts at 1. If the run is epsilon-DP it is a nonnegative
  supermartingale, so by Ville's inequality it ever reaches 1 / significance
  with probability `significance` at most. An audit may stop once it does.

  Args:
    correct: [r] bool, whether each guess is correct, in the order of guessing.
    epsilon: epsilon of the hypothesis; delta is 0.
  """
  # A bet of stake b multiplies the wealth by 1 + b (correct - p) / p. Its mean
  # is at most 1, and it stays positive because b < 1.
  right = special.expit(errors.check_non_negative('epsilon', epsilon))
  gains = np.asarray(correct, np.float64) - right
  bets = np.log1p(_BETS[:, None] / right * gains[None])
  # The mean over stakes of supermartingales is a supermartingale.
  logs = special.logsumexp(np.cumsum(bets, 1), axis=0, b=1 / _BETS.size)
  return np.exp(np.minimum(logs, _LARGEST_LOG))


def anytime_lower_bound(correct: np.ndarray, *,
                        significance: float = 0.05) -> float:
  """Returns the largest epsilon (delta 0) refuted by the bets (AUD-08)."""
  errors.check_open_unit('significance', significance)
  # Wealth falls in epsilon, so the refuted values form an interval [0, x).
  return one_run_tight.largest_rejected(
      lambda epsilon: wealth(correct, epsilon=epsilon).max(
          initial=1.0) >= 1 / significance, _LARGEST_EPSILON)


def count_guesses(scores: np.ndarray, included: np.ndarray,
                  num_guesses: int) -> int:
  """Counts correct guesses on the most extreme scores.

  The lowest half of the guesses is `out`, the highest half `in`.

  Args:
    scores: [m], high for canaries that look included.
    included: [m] bool, the coins.
    num_guesses: number r of guesses, at most m.
  """
  scores, included = np.asarray(scores), np.asarray(included, bool)
  errors.check_at_least('num_canaries', scores.size,
                        errors.check_at_least('num_guesses', num_guesses, 1))
  # NaN ranks highest: a score that fails looks included.
  order = np.argsort(np.where(np.isnan(scores), np.inf, scores), kind='stable')
  low = num_guesses // 2
  high = num_guesses - low
  return int(np.sum(~included[order[:low]]) +
             np.sum(included[order[scores.size - high:]]))


class GridBound(NamedTuple):
  """The best bound over a grid of numbers of guesses.

  Attributes:
    epsilon_lower: lower bound on epsilon, see `grid_bound`.
    num_guesses: number of guesses that gave the bound.
    num_correct: number of correct guesses among them.
  """
  epsilon_lower: float
  num_guesses: int
  num_correct: int


def grid_counts(size: int,
                fractions: Sequence[float] = FRACTIONS) -> list[int]:
  """Converts fractions of `size` canaries to increasing guess counts."""
  return sorted({max(1, round(fraction * size)) for fraction in fractions})


def grid_bound(scores: np.ndarray, included: np.ndarray, *, delta: float,
               significance: float = 0.05,
               fractions: Sequence[float] = FRACTIONS,
               independent: bool = False) -> GridBound:
  """Returns the best bound over a grid of guess counts (AUD-12).

  The bounds are those of `one_run_tight`; `independent` is explained there.
  Each count is tested at significance / (number of counts), a Bonferroni
  correction over a grid fixed before the scores were seen. Correcting only for
  the corners of the empirical ROC's hull would be invalid, because the scores
  choose these corners.
  """
  counts = grid_counts(len(scores), fractions)
  guesses = ((count, count_guesses(scores, included, count))
             for count in counts)
  return max(GridBound(one_run_tight.epsilon_lower_bound(
      num_canaries=len(scores), num_guesses=count, num_correct=right,
      delta=delta, significance=significance / len(counts),
      independent=independent), count, right) for count, right in guesses)


def grid_lower_bound(scores: np.ndarray, included: np.ndarray, *,
                     delta: float, significance: float = 0.05,
                     fractions: Sequence[float] = FRACTIONS,
                     independent: bool = False) -> float:
  """Returns the lower bound on epsilon of `grid_bound`."""
  return grid_bound(scores, included, delta=delta, significance=significance,
                    fractions=fractions,
                    independent=independent).epsilon_lower


def grid_largest_bound(*, num_canaries: int, delta: float,
                       significance: float = 0.05,
                       fractions: Sequence[float] = FRACTIONS,
                       independent: bool = False) -> float:
  """Returns the bound that `grid_bound` gives if all guesses are correct.

  A delta costs little here, because a mechanism that reveals coins with
  probability delta rarely does: 300 canaries at significance 5 % show an
  epsilon of 4.1 both at delta 3e-4 and at delta 1e-6.
  """
  counts = grid_counts(num_canaries, fractions)
  return max(one_run_tight.epsilon_lower_bound(
      num_canaries=num_canaries, num_guesses=count, num_correct=count,
      delta=delta, significance=significance / len(counts),
      independent=independent) for count in counts)
