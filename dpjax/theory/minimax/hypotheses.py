"""Lower bounds on test errors, for many hypotheses around a central one.

Data are n independent records. Adjacency: REPLACE_ONE, n public. Source: Barber
and Duchi (2014, Theorem 3) (item LB-14). The other bounds for many hypotheses
are in experiments/methods/theory/packing_bounds.py.
"""

import math

import numpy as np
from scipy import stats

from dpjax import errors
from dpjax.privacy import notions

# Binomial sums are cut off this many standard deviations from the mean.
_REACH = 12.0


def packing_lemma_around(log_hypotheses: float, variation: float, *,
                         num_examples: int, guarantee: notions.PureDP) -> float:
  """Bounds the mean error of distributions around a base P_0 (LB-14).

  The bound is the largest over k of 1 - e^(epsilon k) / V - P(B > k).

  Args:
    log_hypotheses: ln V.
    variation: largest total variation of a distribution of one record from P_0.
    num_examples: n.
    guarantee: pure privacy.
  """
  size = checked_size(log_hypotheses)
  d, probs = binomials(num_examples, np.array([variation]))
  inside = np.cumsum(probs[0])
  return float(np.max(inside - np.exp(np.minimum(
      guarantee.epsilon * d - size, 1))))


def checked_size(log_hypotheses: float) -> float:
  """Checks ln V and returns it as a float."""
  if not log_hypotheses >= math.log(2) - 1e-12:
    raise ValueError('there must be at least 2 hypotheses, got ln V = '
                     f'{log_hypotheses}')
  return float(log_hypotheses)


def binomials(num_examples: int, probs: np.ndarray
               ) -> tuple[np.ndarray, np.ndarray]:
  """Returns d, and P(Bin(n, t) = d) [T, D]; drops less than 1e-15 of mass."""
  errors.check_at_least('num_examples', num_examples, 1)
  if not ((probs >= 0) & (probs <= 1)).all():
    raise ValueError('weights and variations must lie in [0, 1]')
  mean = num_examples * probs
  # The 50 is for small means, whose tails are longer than normal ones.
  half_width = _REACH * np.sqrt(mean * (1 - probs)) + 50
  d = np.arange(max(0, math.floor(np.min(mean - half_width))),
                min(num_examples, math.ceil(np.max(mean + half_width))) + 1)
  return d, stats.binom.pmf(d, num_examples, probs[:, None])
