"""Lower bounds on epsilon from one run with many canaries.

Each of m canaries is in the training set by a fair coin of its own, and the
auditor, who tossed them, guesses some of the coins from what was released. The
coins are the only randomness that is needed: the other records are fixed, and
the canaries may interfere, which costs power and no validity. The claim is one
for adding or removing a canary.

Sources: Steinke, Nasr and Jagielski 2023 (AUD-06), Mahloujifar, Melis and
Chaudhuri 2024 (AUD-07), Ville's inequality (AUD-08).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize
from scipy import special
from scipy import stats

from dpjax import errors

FRACTIONS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.33, 0.5)
"""Shares of the canaries that are guessed, a grid fixed before any audit."""

_BETS = np.array([0.05, 0.1, 0.2, 0.4, 0.8])
_LARGEST_EPSILON = 50.0
_LARGEST_SHIFT = 20.0
_LARGEST_LOG = 700.0


def p_value(epsilon: float, *, num_canaries: int, num_guesses: int,
            num_correct: int, delta: float) -> float:
  """Of so many right guesses, if the run is (epsilon, delta)-DP (AUD-06).

  Each guess of a pure mechanism is right with probability expit(epsilon) at
  most, whatever the others were; delta buys right guesses with a probability
  of at most 2 m delta in all.

  Args:
    epsilon: of the hypothesis, >= 0.
    num_canaries: m.
    num_guesses: r of them were guessed; on the others the auditor abstained.
    num_correct: v of the guesses were right.
    delta: of the hypothesis.
  """
  _check(num_canaries, num_guesses, num_correct)
  if not 0 <= delta < 1:
    raise ValueError(f'delta must lie in [0, 1), got {delta}')
  right = special.expit(errors.check_non_negative('epsilon', epsilon))
  tail = stats.binom.sf(num_correct - 1, num_guesses, right)
  if delta == 0 or num_correct == 0:
    return float(tail)
  bought = np.arange(1, num_correct + 1)
  more = stats.binom.sf(num_correct - bought - 1, num_guesses, right)
  gain = np.max((more - tail) / bought)
  return float(min(1.0, tail + 2 * num_canaries * delta * gain))


def epsilon_lower_bound(*, num_canaries: int, num_guesses: int,
                        num_correct: int, delta: float,
                        significance: float = 0.05) -> float:
  """The largest epsilon that `p_value` rejects (AUD-06); 0 if none."""
  errors.check_open_unit('significance', significance)
  return _largest_rejected(
      lambda epsilon: p_value(
          epsilon, num_canaries=num_canaries, num_guesses=num_guesses,
          num_correct=num_correct, delta=delta) <= significance,
      _LARGEST_EPSILON)


def largest_bound(*, num_guesses: int, significance: float = 0.05) -> float:
  """What guesses that are all right would give at delta 0."""
  errors.check_at_least('num_guesses', num_guesses, 1)
  return float(max(0.0, special.logit(significance**(1 / num_guesses))))


def rejects_trade_off(blow_up: Callable[[float], float], *, num_canaries: int,
                      num_guesses: int, num_correct: int,
                      significance: float = 0.05) -> bool:
  """Whether so many right guesses refute a whole trade-off (AUD-07).

  Args:
    blow_up: the inverse of 1 - f: the least false alarm rate at which a test
      has this power; Phi(Phi^-1(.) - mu) of a Gaussian.
    num_canaries: m, see `p_value`.
    num_guesses: r.
    num_correct: v.
    significance: probability of a false rejection, at most.
  """
  _check(num_canaries, num_guesses, num_correct)
  errors.check_open_unit('significance', significance)
  right = significance * num_correct / num_canaries
  wrong = significance * (num_guesses - num_correct) / num_canaries
  for i in range(num_correct - 1, -1, -1):
    larger = max(wrong, blow_up(right))
    if larger == wrong:
      break
    right = min(1.0, right + i / (num_guesses - i) * (larger - wrong))
    wrong = larger
  return right + wrong > num_guesses / num_canaries


def gaussian_shift_lower_bound(*, num_canaries: int, num_guesses: int,
                               num_correct: int,
                               significance: float = 0.05) -> float:
  """The largest mu of a Gaussian trade-off that is refuted (AUD-07).

  As an epsilon by `bounds.shift_to_epsilon`; for Gaussian trade-offs only.
  """
  def rejects(shift):
    return rejects_trade_off(
        lambda power: special.ndtr(special.ndtri(power) - shift),
        num_canaries=num_canaries, num_guesses=num_guesses,
        num_correct=num_correct, significance=significance)

  return _largest_rejected(rejects, _LARGEST_SHIFT)


def wealth(correct: np.ndarray, *, epsilon: float) -> np.ndarray:
  """What bets on right guesses have won after each of them, [r] (AUD-08).

  A martingale that starts at 1 if guesses are right as often as a pure epsilon
  allows: it ever reaches 1 / significance with probability `significance` at
  most, so an audit may stop whenever it does.

  Args:
    correct: [r] bool, guesses in the order in which they were made.
    epsilon: of the hypothesis; delta is 0.
  """
  right = special.expit(errors.check_non_negative('epsilon', epsilon))
  gains = np.asarray(correct, np.float64) - right
  bets = np.log1p(_BETS[:, None] / right * gains[None])
  logs = special.logsumexp(np.cumsum(bets, 1), axis=0, b=1 / _BETS.size)
  return np.exp(np.minimum(logs, _LARGEST_LOG))


def anytime_lower_bound(correct: np.ndarray, *,
                        significance: float = 0.05) -> float:
  """The largest pure epsilon that bets have refuted by now (AUD-08)."""
  errors.check_open_unit('significance', significance)
  return _largest_rejected(
      lambda epsilon: wealth(correct, epsilon=epsilon).max(
          initial=1.0) >= 1 / significance, _LARGEST_EPSILON)


def count_guesses(scores: np.ndarray, included: np.ndarray,
                  num_guesses: int) -> int:
  """How many are right of so many, half of them high and half low scores.

  Args:
    scores: [m], high for canaries that look included.
    included: [m] bool, the coins.
    num_guesses: r, at most m.
  """
  scores, included = np.asarray(scores), np.asarray(included, bool)
  errors.check_at_least('num_canaries', scores.size,
                        errors.check_at_least('num_guesses', num_guesses, 1))
  order = np.argsort(np.where(np.isnan(scores), np.inf, scores), kind='stable')
  low = num_guesses // 2
  high = num_guesses - low
  return int(np.sum(~included[order[:low]]) +
             np.sum(included[order[scores.size - high:]]))


class GridBound(NamedTuple):
  """The best bound over a grid of guesses.

  Attributes:
    epsilon_lower: see `grid_bound`.
    num_guesses: that gave it.
    num_correct: how many of them were right.
  """
  epsilon_lower: float
  num_guesses: int
  num_correct: int


def grid_counts(size: int,
                fractions: Sequence[float] = FRACTIONS) -> list[int]:
  """These shares of so many canaries, as numbers of guesses, increasing."""
  return sorted({max(1, round(share * size)) for share in fractions})


def grid_bound(scores: np.ndarray, included: np.ndarray, *, delta: float,
               significance: float = 0.05,
               fractions: Sequence[float] = FRACTIONS) -> GridBound:
  """The best bound over shares that are guessed, paid for (AUD-12).

  Bonferroni over a grid that was fixed before scores were seen. To correct for
  fewer tests than could have been chosen, such as the corners of the hull of
  the empirical ROC, is not valid: these corners are chosen by the scores.
  """
  counts = grid_counts(len(scores), fractions)
  found = ((count, count_guesses(scores, included, count)) for count in counts)
  return max(GridBound(epsilon_lower_bound(
      num_canaries=len(scores), num_guesses=count, num_correct=right,
      delta=delta, significance=significance / len(counts)), count, right)
             for count, right in found)


def grid_lower_bound(scores: np.ndarray, included: np.ndarray, *,
                     delta: float, significance: float = 0.05,
                     fractions: Sequence[float] = FRACTIONS) -> float:
  """The bound of `grid_bound`."""
  return grid_bound(scores, included, delta=delta, significance=significance,
                    fractions=fractions).epsilon_lower


def grid_largest_bound(*, num_canaries: int, delta: float,
                       significance: float = 0.05,
                       fractions: Sequence[float] = FRACTIONS) -> float:
  """What `grid_bound` gives if all guesses are right.

  Once m delta is not far below the significance, perfect guesses show little:
  300 canaries at 5 % an epsilon of 1.7 at delta 3e-4, of 3.3 at 1e-6.
  """
  counts = grid_counts(num_canaries, fractions)
  return max(epsilon_lower_bound(
      num_canaries=num_canaries, num_guesses=count, num_correct=count,
      delta=delta, significance=significance / len(counts))
             for count in counts)


def _check(num_canaries: int, num_guesses: int, num_correct: int) -> None:
  errors.check_at_least('num_canaries', num_canaries, 1)
  errors.check_at_least('num_guesses', num_guesses, 1)
  errors.check_at_least('num_correct', num_correct, 0)
  if not num_correct <= num_guesses <= num_canaries:
    raise ValueError('there must be at most as many right guesses as guesses '
                     f'and canaries, got {num_correct}, {num_guesses} and '
                     f'{num_canaries}')


def _largest_rejected(rejects: Callable[[float], bool], most: float) -> float:
  """The supremum of what is rejected, an interval from 0; 0 if empty."""
  if not rejects(0.0):
    return 0.0
  if rejects(most):
    return most
  return float(optimize.bisect(lambda value: 0.5 - rejects(value), 0.0, most,
                               xtol=1e-7))
