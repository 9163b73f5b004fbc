"""Lower bounds for a proportion by two proportions, printed and derived.

`dpjax.theory.parametric.proportion_bounds` has better ones. Under REPLACE_ONE,
n public; the risk is the largest squared error over all proportions. Source:
Lalanne (2023, sections 0.5, 3.1.2 and 4.1.1) (item INT-04, MOD-INTRO, MOD-BERN,
errata T-E02, E-11).
"""

import math

import numpy as np

from dpjax import errors
from dpjax.privacy import notions
from dpjax.theory.minimax.bounds import Guarantee


def thesis(*, num_examples: int, guarantee: Guarantee,
           printed: bool = False) -> float:
  """Returns the bounds of Lalanne (2023, section 4.1.1); true, and loose.

  At the proportions chosen there: (1 - 1/sqrt 2) / (32 n) without privacy, n >=
  4; e^(-1/sqrt 2) / (32 (n epsilon)^2), n epsilon >= 2; 1 / (64 n^2 rho), n
  sqrt rho >= 2. Outside these regimes the bound is 0.

  Args:
    num_examples: n, the number of records.
    guarantee: None, pure or zCDP.
    printed: use the printed constants 1/160 and 1/80 for the first two.
  """
  n = errors.check_at_least('num_examples', num_examples, 1)
  match guarantee:
    case None:
      constant = 1 / 160 if printed else (1 - math.sqrt(0.5)) / 32
      return constant / n if n >= 4 else 0.0
    case notions.PureDP(epsilon=epsilon):
      constant = 1 / 80 if printed else math.exp(-math.sqrt(0.5)) / 32
      return constant / (n * epsilon)**2 if n * epsilon >= 2 else 0.0
    case notions.ZCDP(rho=rho):
      return 1 / (64 * n**2 * rho) if n * math.sqrt(rho) >= 2 else 0.0
    case _:
      raise ValueError(f'Lalanne (2023) has no bound for {guarantee}')


def two_point_bound(distance: np.ndarray | float, *, num_examples: int,
                    epsilon: float) -> np.ndarray | float:
  """Returns (D^2 / 8) e^(-n epsilon D), a lower bound under epsilon-DP.

  It holds for every `distance` D in (0, 1): two probabilities this far apart
  are hard to distinguish (Lalanne, 2023, equation (10)).
  """
  return np.square(distance) / 8 * np.exp(-num_examples * epsilon * distance)


def coupled_bound(distance: np.ndarray | float, *, num_examples: int,
                  epsilon: float) -> np.ndarray | float:
  """Returns (D^2 / 8)(1 - D (1 - e^-epsilon))^n; beats `two_point_bound`.

  The number of records in which two samples differ is binomial; Jensen's
  inequality is not needed.
  """
  return np.square(distance) / 8 * np.exp(
      num_examples * np.log1p(distance * np.expm1(-epsilon)))


def lower_bound(*, num_examples: int, epsilon: float) -> float:
  """Returns the best `coupled_bound` over D, for any epsilon-DP estimate.

  For comparison: 1 / (8 e (n epsilon)^2), which Lalanne (2023) prints without e
  (D = 1 / (n epsilon), erratum T-E02), and 1 / (2 e^2 (n epsilon)^2), the best
  `two_point_bound`, at D = 2 / (n epsilon).
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_positive('epsilon', epsilon)
  slope = -math.expm1(-epsilon)
  # The best D is where the log's derivative 2 / D - n c / (1 - c D) is 0.
  distance = min(1.0, 2 / (slope * (num_examples + 2)))
  return float(coupled_bound(distance, num_examples=num_examples,
                             epsilon=epsilon))


def printed_introduction(*, num_examples: int, epsilon: float) -> float:
  """Returns the printed 1 / (8 (n epsilon)^2) for n epsilon >= 2.

  Lalanne (2023, section 3.1.2) has it without proof. Its proportions are 1 / (n
  epsilon) apart and prove e^-1 / 8 instead of 1/8 (erratum T-E02).
  """
  total = num_examples * epsilon
  return 1 / (8 * total**2) if total >= 2 else 0.0
