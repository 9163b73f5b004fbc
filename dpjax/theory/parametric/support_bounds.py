"""Lower bounds for private estimates of the end of a uniform distribution.

Records are uniform on [0, theta], theta in (0, 1]. Distributions with ends
theta and theta - D have total variation D / theta. Under REPLACE_ONE, n public.
The risk is the largest over all theta. Source: Lalanne (2023, section 4.1.2);
Barber and Duchi (2014, Proposition 3) (item MOD-UNIF, MOD-SUPP, erratum
E-10).
"""

import math

import numpy as np

from dpjax import errors
from dpjax.theory.minimax import separations
from dpjax.theory.minimax.bounds import Bound
from dpjax.theory.minimax.bounds import Guarantee

# Nodes of an integral over the largest record, and its relative error.
_NODES = 4000
_SLACK = 1e-5


def trivial() -> float:
  """Returns the largest squared error of the constant 1/2."""
  return 0.25


def absolute_trivial() -> float:
  """Returns the largest absolute error of the constant estimate 1/2."""
  return 0.5


def non_private(num_examples: int) -> float:
  """Returns 1 / (n + 1)^2, the least risk of a multiple of the largest record.

  The multiple is (n + 2) / (n + 1); minimax risks approach this risk.
  """
  return 1 / (errors.check_at_least('num_examples', num_examples, 1) + 1)**2


def absolute_non_private(num_examples: int) -> float:
  """Returns 2^(1 / (n + 1)) - 1, the least absolute risk of such a multiple.

  The multiple of the largest record is 2^(1 / (n + 1)).
  """
  errors.check_at_least('num_examples', num_examples, 1)
  return math.expm1(math.log(2) / (num_examples + 1))


def bayes(num_examples: int) -> float:
  """Returns the largest Bayes risk of priors a theta^(a - 1), for any estimate.

  Given the largest record m, theta has density proportional to theta^(a - 1 -
  n) on [m, 1]. The integral over m is in -ln m, by the trapezoidal rule.
  """
  n = errors.check_at_least('num_examples', num_examples, 1)
  # Any prior gives a lower bound; the slack covers the error of quadrature.
  return max(_bayes(n, fraction) for fraction in (0.15, 0.25, 0.4, 0.7, 1.0)
             ) * (1 - _SLACK)


def _bayes(n: int, fraction: float) -> float:
  """Returns the Bayes risk of the prior with a = fraction n."""
  a = fraction * n
  depth = np.linspace(0, 60 / min(a, n), _NODES)  # -ln of the largest record.

  def powers(k: int) -> np.ndarray:
    """Returns integrals of theta^(a - 1 - n + k) over [m, 1], m = e^-depth."""
    c = a - n + k
    # At c = 0 the integrand is 1 / theta, whose integral is -ln m.
    return np.where(abs(c) < 1e-9, depth, -np.expm1(-c * depth) / (
        c if abs(c) >= 1e-9 else 1.0))

  mass, first, second = powers(0), powers(1), powers(2)
  with np.errstate(divide='ignore', invalid='ignore'):
    variance = np.where(mass > 0, second - first**2 / mass, 0.0)
  density = a * n * np.exp(-n * depth) * np.maximum(variance, 0.0)
  return float(np.trapezoid(density, depth))


def lower(*, num_examples: int, guarantee: Guarantee) -> tuple[Bound, ...]:
  """Returns all lower bounds that hold for the guarantee, squared error."""
  return (
      Bound(bayes(num_examples), 'Bayes risk without privacy'),
      Bound(separations.squared(lambda t: t, num_examples=num_examples,
                                guarantee=guarantee), 'two supports'))


def absolute_lower(*, num_examples: int,
                   guarantee: Guarantee) -> tuple[Bound, ...]:
  """Returns all lower bounds that hold for the guarantee, absolute error."""
  return (Bound(separations.absolute(lambda t: t, num_examples=num_examples,
                                     guarantee=guarantee), 'two supports'),)
