"""What no private estimate of a proportion can beat, in squared error.

Under REPLACE_ONE, n public. The largest risk over all proportions p in [0, 1]
is meant. Source: thesis 000, sections 0.5, 3.1.2 and 4.1.1 (item INT-04,
MOD-INTRO, MOD-BERN, errata E-04, E-11).
"""

import functools
import math

import numpy as np

from dpjax import errors
from dpjax.privacy import notions
from dpjax.stats.minimax import proportions_exact
from dpjax.stats.minimax import scores
from dpjax.stats.minimax import separations
from dpjax.stats.minimax.bounds import Bound
from dpjax.stats.minimax.bounds import Guarantee


def trivial() -> float:
  """Of the constant 1/2."""
  return 0.25


def non_private(num_examples: int) -> float:
  """The minimax risk without privacy: `proportions_exact.non_private_risk`."""
  errors.check_at_least('num_examples', num_examples, 1)
  return proportions_exact.non_private_risk(num_examples)


@functools.lru_cache(maxsize=256)
def solved(num_examples: int, epsilon: float) -> proportions_exact.Solution:
  """`proportions_exact.solve`, remembered: seconds where n is large."""
  return proportions_exact.solve(num_examples=num_examples, epsilon=epsilon)


def is_solved(num_examples: int, guarantee: Guarantee) -> bool:
  """Whether the minimax risk itself is within reach."""
  return isinstance(guarantee, notions.PureDP) and (
      num_examples <= 200_000 and guarantee.epsilon >= 1e-6)


def lower(*, num_examples: int, guarantee: Guarantee) -> tuple[Bound, ...]:
  """All that hold for the guarantee."""
  found = (
      Bound(non_private(num_examples), 'minimax without privacy'),
      Bound(separations.squared(lambda t: t, num_examples=num_examples,
                                guarantee=guarantee), 'two proportions'),
      Bound(scores.proportion(num_examples=num_examples, guarantee=guarantee),
            'scores'))
  if is_solved(num_examples, guarantee):
    found += (Bound(solved(num_examples, guarantee.epsilon).lower,
                    'minimax, solved'),)
  return found


def thesis(*, num_examples: int, guarantee: Guarantee,
           printed: bool = False) -> float:
  """The bounds of section 4.1.1 at its choice of proportions; true, and loose.

  (1 - 1/sqrt 2) / (32 n) without privacy, n >= 4; e^(-1/sqrt 2) / (32 (n
  epsilon)^2), n epsilon >= 2; 1 / (64 n^2 rho), n sqrt rho >= 2. Outside of
  these regimes nothing is said: 0.

  Args:
    num_examples: n.
    guarantee: None, pure or zCDP.
    printed: 1/160 and 1/80 for the first two constants.
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
      raise ValueError(f'the thesis has no bound for {guarantee}')


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


def printed_introduction(*, num_examples: int, epsilon: float) -> float:
  """1 / (8 (n epsilon)^2) for n epsilon >= 2: of section 3.1.2, without proof.

  Its proportions are 1 / (n epsilon) apart and prove e^-1 / 8 (erratum E-04).
  """
  total = num_examples * epsilon
  return 1 / (8 * total**2) if total >= 2 else 0.0
