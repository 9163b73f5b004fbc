"""Printed lower bounds for means with a bounded moment.

For comparison only: `moment_bounds` never calls them. Proposition 2 is true,
but loose where n level >= 1/4, and it diverges as the level tends to 0 (errata
E-06, E-11). Proposition 4 rests on a false theorem (E-07, the balls of its
packing overlap) and its argument gives a quarter of it; its claim about the
mean is still true, by the sphere of `moment_bounds`. Source: Barber and Duchi
(2014, equations (12), (15)-(17)) (item MOD-KMOM).
"""

import math

from dpjax import errors
from dpjax.theory.parametric.moment_bounds import check_class


def printed_proposition_2(*, num_examples: int, level: float, moment: float,
                          radius: float, corrected: bool = False) -> float:
  """Returns r^2 g^(2 - 2/k) / 4 at g = 1 / (4 n level), printed Proposition 2.

  The bound is for total variation privacy.

  Args:
    num_examples: n, the number of records.
    level: level of total variation privacy.
    moment: k, the order of the bounded moment.
    radius: r, the bound on the k-th moment norm.
    corrected: return r^2 g^(2 - 2/k) (1 - n level g) / 2 at the smaller of 1
      and 1 / (2 n level): TV contracts by n level, without a factor 2.
  """
  check_class(moment, radius)
  errors.check_positive('level', level)
  whole = errors.check_at_least('num_examples', num_examples, 1) * level
  if not corrected:
    return radius**2 / 4 * (1 / (4 * whole))**(2 - 2 / moment)
  weight = min(1.0, 1 / (2 * whole))
  return radius**2 / 2 * weight**(2 - 2 / moment) * (1 - whole * weight)


def printed_proposition_4(*, num_examples: int, epsilon: float,
                          delta: float = 0.0, dimension: int, moment: float,
                          radius: float, corrected: bool = False) -> float:
  """Returns r^2 g^(2 - 2/k) / 32, with g of equation (17), Proposition 4.

  The bound is for (epsilon, delta)-DP.

  Args:
    num_examples: n, the number of records.
    epsilon: below d / 2.
    delta: below (1 - e^-epsilon) / (4 e^epsilon).
    dimension: d, the dimension, >= 2.
    moment: k, the order of the bounded moment.
    radius: r, the bound on the k-th moment norm.
    corrected: divide by 128 instead, with balls of half the radius (E-07).
  """
  check_class(moment, radius)
  errors.check_at_least('dimension', dimension, 2)
  errors.check_positive('epsilon', epsilon)
  least = -math.expm1(-epsilon) / (4 * math.exp(epsilon))
  if not epsilon < dimension / 2 or not 0 <= delta < least:
    raise ValueError('epsilon must be below d / 2 and delta below (1 - '
                     f'e^-epsilon) / (4 e^epsilon), got {epsilon} and {delta}')
  size = dimension / 2 - epsilon
  if delta:
    size = min(size, math.log(least / delta))
  weight = min(1.0, size / (errors.check_at_least(
      'num_examples', num_examples, 1) * epsilon))
  return radius**2 * weight**(2 - 2 / moment) / (128 if corrected else 32)


def records_needed(*, epsilon: float, delta: float = 0.0, dimension: int,
                   moment: float) -> float:
  """Returns the n from which on privacy keeps the rate r^2 / n, equation (16).

  ((d^2 or ln(1 / delta)^2) / epsilon^2)^((k - 1) / (k - 2)), the smaller one;
  infinite for k = 2. This is a rate without constants.
  """
  check_class(moment, 1.0)
  errors.check_positive('epsilon', epsilon)
  size = min(dimension, math.log(1 / delta)) if delta else dimension
  if moment == 2:
    return math.inf
  power = 1.0 if math.isinf(moment) else (moment - 1) / (moment - 2)
  return (size / epsilon)**(2 * power)
