"""Lower bounds for the end of a uniform distribution, as the papers print them.

They lie below those of `dpjax.theory.parametric.support_bounds`. Records are
uniform on [0, theta]; under REPLACE_ONE, n public, the risk is the largest over
all theta in (0, 1]. Source: Lalanne (2023, section 4.1.2); Barber and Duchi
(2014, Proposition 3) (item MOD-UNIF, MOD-SUPP, errata E-06, E-08, E-11).
"""

import math

from dpjax import errors
from dpjax.privacy import notions
from dpjax.theory.minimax.bounds import Guarantee


def thesis(*, num_examples: int, guarantee: Guarantee) -> float:
  """Returns the bounds of Lalanne (2023, section 4.1.2); true, and loose.

  At the supports chosen there: 1 / (32 n^2) without privacy, n >= 2; 1 / (8 e
  (n epsilon)^2), n epsilon > 1; (1 - 1/sqrt 2) / (8 n^2 rho), n sqrt rho > 1.
  Outside these regimes the bound is 0.

  Args:
    num_examples: n, the number of records.
    guarantee: None, pure or zCDP.
  """
  n = errors.check_at_least('num_examples', num_examples, 1)
  match guarantee:
    case None:
      return 1 / (32 * n**2) if n >= 2 else 0.0
    case notions.PureDP(epsilon=epsilon):
      return 1 / (8 * math.e * (n * epsilon)**2) if n * epsilon > 1 else 0.0
    case notions.ZCDP(rho=rho):
      return ((1 - math.sqrt(0.5)) / (8 * n**2 * rho)
              if n * math.sqrt(rho) > 1 else 0.0)
    case _:
      raise ValueError(f'Lalanne (2023) has no bound for {guarantee}')


def two_supports(num_examples: int) -> float:
  """Returns (1 - 1/n)^n / (8 n^2), the bound without privacy by 1 - 1/n and 1.

  Lalanne (2023) has e^-1 for the power, which is larger
  (`printed_two_supports`). Ends n / (n + 1) and 1 give e^-1 / (8 (n + 1)^2).
  """
  n = errors.check_at_least('num_examples', num_examples, 2)
  return (1 - 1 / n)**n / (8 * n**2)


def printed_two_supports(num_examples: int) -> float:
  """Returns e^-1 / (8 n^2), which the argument does not prove (erratum E-08).
  """
  return math.exp(-1) / (8 * num_examples**2)


def paper(*, num_examples: int, guarantee: notions.TotalVariationPrivacy,
          printed: bool = False) -> float:
  """Returns 1 / (16 n level): absolute error under total variation privacy.

  For n level >= 1/2. Below that the bound is 0, since the printed form would
  exceed the risk of a constant (erratum E-11). Source: Barber and Duchi (2014).

  Args:
    num_examples: n, the number of records.
    guarantee: guarantee of the estimator.
    printed: use 1/32, from a factor 2 that is not needed (erratum E-06), for n
      level >= 1/4.
  """
  scaled_level = num_examples * guarantee.level
  if scaled_level < (0.25 if printed else 0.5):
    return 0.0
  return 1 / ((32 if printed else 16) * scaled_level)
