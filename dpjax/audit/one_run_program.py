"""A linear program: the largest probability of many correct guesses.

See docs/theory/one_run.md. Its variables are the probabilities of 0..r correct
guesses, and its constraints are points of a privacy curve.
"""

import numpy as np
from scipy import optimize
from scipy import sparse

from dpjax.audit import curves

# Points of a curve in the program. Each one is a valid constraint: fewer points
# make a larger, still valid p-value.
_POINTS = 16
# The program leaves out all but one of the points whose m delta is below this.
_LEAST_EXPECTED = 1e-5


def thinned(curve: curves.PrivacyCurve,
             num_canaries: int) -> curves.PrivacyCurve:
  """Returns at most `_POINTS` points that matter to so many canaries."""
  expected = num_canaries * curve.deltas
  # The first point with a negligible delta bounds all ratios; it stays.
  last = int(np.argmax(np.append(expected, 0) < _LEAST_EXPECTED))
  kept = np.unique(np.linspace(0, min(last, expected.size - 1),
                               _POINTS).round().astype(int))
  return curves.PrivacyCurve(curve.epsilons[kept], curve.deltas[kept])


def p_value(curve: curves.PrivacyCurve, num_canaries: int,
                num_guesses: int, num_correct: int) -> float:
  """Returns the certified value of the linear program, or 1 if it fails.

  Maximise P(V >= v) over probabilities p_0..p_r with, for each point k,
  sum_j max(0, j p_j - e^epsilon_k (r - j + 1) p_(j-1)) <= m delta_k.
  """
  count, size = num_guesses, curve.epsilons.size
  levels = np.arange(1, count + 1)
  growth = np.exp(curve.epsilons)
  # Rows: for each point the excess of each level, and then all sums of them.
  above = sparse.diags_array(levels.astype(float), offsets=1,
                             shape=(count, count + 1))
  below = sparse.diags_array(count + 1.0 - levels, shape=(count, count + 1))
  excesses = sparse.vstack([above - g * below for g in growth])
  matrix = sparse.block_array([
      [excesses, -sparse.eye_array(size * count)],
      [None, sparse.kron(sparse.eye_array(size), np.ones([1, count]))]]).tocsr()
  wanted = np.arange(count + 1) >= num_correct
  budgets = num_canaries * curve.deltas
  solved = optimize.linprog(
      -np.append(wanted, np.zeros(size * count)), A_ub=matrix,
      b_ub=np.append(np.zeros(size * count), budgets),
      A_eq=np.append(np.ones(count + 1), np.zeros(size * count))[None],
      b_eq=np.ones(1), method='highs')
  if solved.status != 0:
    return 1.0
  prices = np.maximum(0, -solved.ineqlin.marginals)
  # Weak duality: any multipliers with 0 <= y_kj <= kappa_k give a bound.
  kappas = prices[size * count:]
  shares = np.minimum(prices[:size * count], np.repeat(kappas, count))
  mass = np.max(wanted - excesses.T @ shares)
  return float(min(1.0, mass + kappas @ budgets))
