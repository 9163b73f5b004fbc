"""A proportion: what privacy costs, and what no private estimate can beat.

Under REPLACE_ONE, n public. Risks are expected squared errors. Source: thesis
000, equations (4)-(11) (spec INT-03, INT-04).
"""

import math

import numpy as np

from dpjax import errors
from dpjax.stats.mean import BoundedMean


def proportion(*, num_examples: int, epsilon: float, confidence: float = 0.95,
               interval: str = 'exact') -> BoundedMean:
  """The mechanism of the share of ones among n zeros and ones.

  Its interval is for the probability of a one.
  """
  return BoundedMean(num_examples=num_examples, lower=0.0, upper=1.0,
                     epsilon=epsilon, confidence=confidence, interval=interval)


def risk(prob: float, *, num_examples: int, epsilon: float) -> float:
  """Of `proportion`: p (1 - p) / n + 2 / (n epsilon)^2."""
  return proportion(num_examples=num_examples, epsilon=epsilon
                    ).population_risk(prob * (1 - prob))


def two_point_bound(distance: np.ndarray | float, *, num_examples: int,
                    epsilon: float) -> np.ndarray | float:
  """(D^2 / 8) e^(-n epsilon D): no epsilon-DP estimate has a smaller risk.

  The largest risk over all probabilities is at least this for every `distance`
  D in (0, 1), that of two probabilities that are hard to tell apart (equation
  (10)).
  """
  return np.square(distance) / 8 * np.exp(-num_examples * epsilon * distance)


def coupled_bound(distance: np.ndarray | float, *, num_examples: int,
                  epsilon: float) -> np.ndarray | float:
  """(D^2 / 8)(1 - D (1 - e^-epsilon))^n, sharper than `two_point_bound`.

  The records in which two samples differ are binomial; no use of Jensen's
  inequality.
  """
  return np.square(distance) / 8 * np.exp(
      num_examples * np.log1p(distance * np.expm1(-epsilon)))


def lower_bound(*, num_examples: int, epsilon: float) -> float:
  """The best of `coupled_bound`: largest risk of any epsilon-DP estimate.

  Beside it stand 1 / (8 e (n epsilon)^2), which the thesis prints without e
  (D = 1 / (n epsilon), erratum T-E02), and 1 / (2 e^2 (n epsilon)^2), the best
  of `two_point_bound`, at D = 2 / (n epsilon).
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_positive('epsilon', epsilon)
  slope = -math.expm1(-epsilon)
  # Where the derivative of its logarithm, 2 / D - n c / (1 - c D), is 0.
  distance = min(1.0, 2 / (slope * (num_examples + 2)))
  return float(coupled_bound(distance, num_examples=num_examples,
                             epsilon=epsilon))
