"""Lower bounds for private estimates of a proportion, in squared error.

Under REPLACE_ONE, n public. The risk is the largest over all proportions p in
[0, 1]. Source: Lalanne (2023, sections 0.5, 3.1.2 and 4.1.1) (item INT-04,
MOD-INTRO, MOD-BERN, errata T-E02, E-11).
"""

import functools
import math

import numpy as np

from dpjax import errors
from dpjax.privacy import notions
from dpjax.theory.minimax import proportions_exact
from dpjax.theory.minimax import scores
from dpjax.theory.minimax import separations
from dpjax.theory.minimax.bounds import Bound
from dpjax.theory.minimax.bounds import Guarantee


def trivial() -> float:
  """Returns the largest risk of the constant 1/2."""
  return 0.25


def non_private(num_examples: int) -> float:
  """Returns the minimax risk without privacy.

  It is `proportions_exact.non_private_risk`.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  return proportions_exact.non_private_risk(num_examples)


@functools.lru_cache(maxsize=256)
def solved(num_examples: int, epsilon: float) -> proportions_exact.Solution:
  """Returns `proportions_exact.solve`, cached: it takes seconds for large n."""
  return proportions_exact.solve(num_examples=num_examples, epsilon=epsilon)


def solution(num_examples: int, guarantee: Guarantee
             ) -> proportions_exact.Solution | None:
  """Returns the minimax risk itself where it can be computed, else None."""
  if (isinstance(guarantee, notions.PureDP) and num_examples <= 200_000
      and guarantee.epsilon >= 1e-6):
    return solved(num_examples, guarantee.epsilon)
  return None


def lower(*, num_examples: int, guarantee: Guarantee) -> tuple[Bound, ...]:
  """Returns all lower bounds that hold for the guarantee."""
  # Each holds by itself; `Study.best_lower` takes the largest.
  bounds = [
      Bound(non_private(num_examples), 'minimax without privacy'),
      Bound(separations.squared(lambda t: t, num_examples=num_examples,
                                guarantee=guarantee), 'two proportions'),
      Bound(scores.proportion(num_examples=num_examples, guarantee=guarantee),
            'scores')]
  exact = solution(num_examples, guarantee)
  if exact is not None:
    bounds.append(Bound(exact.lower, 'minimax, solved'))
  return tuple(bounds)


def thesis(*, num_examples: int, guarantee: Guarantee,
           printed: bool = False) -> float:
  """Returns the bounds of Lalanne (2023, section 4.1.1); true, and loose.

  At the proportions chosen there: (1 - 1/sqrt 2) / (32 n) without privacy, n >=
  4; e^(-1/sqrt 2) / (32 (n epsilon)^2), n epsilon >= 2; 1 / (64 n^2 rho), n
  sqrt rho >= 2. Outside these regimes the bound is 0.

  Args:
    num_examples: n.
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
