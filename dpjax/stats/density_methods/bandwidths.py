"""Numbers of bins: as published, from proved bounds, or for a known density.

For an L-Lipschitz density, a histogram of m bins with heights of mean 1 has a
mean integrated squared error of at most

  L^2 / (12 m^2)  +  (m - 1) / n  +  m (m - 1) V / n^2

for bias, sampling, and noise of variance V in each count (items DEN-H2,
DEN-H6). On [0, 1]^d m is the d-th power of an integer, and the bias is at most
min(d / 12, 1 / pi^2) L^2 m^(-2/d), by distances within a cell and by Poincare's
inequality (item EST-HIST). The published numbers of bins use neither L nor
constants. All on the host, in float64; nothing here sees records.
"""

from collections.abc import Callable
import math

from dpjax import errors

# Guards the ceiling against rounding of powers: in floats (1e6)^(1/3) is below
# 100 and (1e9)^(1/3) above 1000.
_ROUNDING = 1e-9


def smallest(bound: Callable[[int], float], *, first: int = 1, step: int = 1
             ) -> int:
  """Returns the smallest minimiser of a bound over first, first + step, ...

  Args:
    bound: integer -> value; it falls and then rises for good.
    first: the smallest allowed integer.
    step: difference of allowed integers; 2 for odd ones.
  """
  rises = lambda index: (bound(first + step * (index + 1))
                         >= bound(first + step * index))
  # Doubling brackets the minimum; bisection on the sign of the step finds it.
  high = 1
  while not rises(high - 1):
    high *= 2
  low = high // 2 - 1
  while high - 1 - low > 1:
    middle = (low + high - 1) // 2
    low, high = (low, middle + 1) if rises(middle) else (middle, high)
  return first + step * (high - 1)


def roughness(lipschitz: float, *, dimension: int = 1) -> float:
  """Returns the largest bias of a 1-bin histogram: min(d / 12, 1 / pi^2) L^2.

  Attained for d = 1, by a straight line.
  """
  return lipschitz**2 * min(dimension / 12, math.pi**-2)


def histogram_bound(num_bins: int, *, num_records: int, variance: float,
                    lipschitz: float, fix_mass: bool = True,
                    dimension: int = 1) -> float:
  """Bounds the mean integrated squared error over the class, see the module.

  Args:
    num_bins: m.
    num_records: n.
    variance: V, of the noise of a count.
    lipschitz: L.
    fix_mass: whether heights are shifted to a mean of 1; without it the noise
      term is m^2 V / n^2.
    dimension: d.
  """
  noisy = num_bins * (num_bins - 1) if fix_mass else num_bins**2
  return (roughness(lipschitz, dimension=dimension)
          * num_bins**(-2 / dimension) + (num_bins - 1) / num_records
          + noisy * variance / num_records**2)


def tuned_bins(*, num_records: int, variance: float, lipschitz: float,
               fix_mass: bool = True, dimension: int = 1) -> int:
  """Returns the m that minimises `histogram_bound` (item DEN-H6)."""
  errors.check_at_least('num_records', num_records, 1)
  errors.check_non_negative('variance', variance)
  errors.check_non_negative('lipschitz', lipschitz)
  errors.check_at_least('dimension', dimension, 1)
  return smallest(lambda side: histogram_bound(
      side**dimension, num_records=num_records, variance=variance,
      lipschitz=lipschitz, fix_mass=fix_mass,
      dimension=dimension))**dimension


def limiting_bins(*, num_records: int, variance: float, lipschitz: float
                  ) -> float:
  """Returns the real m if only sampling or only noise matters.

  The smaller of (L^2 n / 6)^(1/3) and (L^2 n^2 / (12 V))^(1/4); the latter is h
  = 96^(1/4) (L n epsilon)^(-1/2) for V = 8 / epsilon^2 (item DEN-H6).
  """
  sampling = (lipschitz**2 * num_records / 6)**(1 / 3)
  if not variance:
    return sampling
  return min(sampling, (lipschitz * num_records)**0.5 / (12 * variance)**0.25)


def printed_bins(*, num_records: int, budget: float, dimension: int = 1,
                 total: bool = False) -> int:
  """Returns m = ceil(1/h)^d, 1/h = min(n^(1/(d + 2)), (n alpha)^(1/(d + 1))).

  Source: Lalanne, Garivier and Gribonval (2023, section 3 and Theorem 1);
  Barber and Duchi (2014, section 3.2.2). The former states that this minimises
  the variance; it balances a bound without its constants.

  Args:
    num_records: n.
    budget: alpha, epsilon or the square root of rho; infinite without privacy.
    dimension: d.
    total: whether the formula is taken for m itself, as published by Barber and
      Duchi (2014): far too few bins for d > 1 (erratum E-14).
  """
  errors.check_at_least('num_records', num_records, 1)
  errors.check_at_least('dimension', dimension, 1)
  if not budget > 0:
    raise ValueError(f'budget must be positive, got {budget}')
  inverse = min(num_records**(1 / (dimension + 2)),
                (num_records * budget)**(1 / (dimension + 1)))
  if total:
    inverse **= 1 / dimension
  return max(1, math.ceil(inverse * (1 - _ROUNDING)))**dimension


def oracle_bins(risk: Callable[[int], float],
                variance: Callable[[int], float]) -> int:
  """Returns the m that minimises the risk of a known density, for comparison.

  Args:
    risk: m -> its error; it may rise and fall in any manner.
    variance: m -> a part of the risk that increases with m.
  """
  best, least, num_bins = 1, risk(1), 2
  while variance(num_bins) < least:
    candidate_risk = risk(num_bins)
    if candidate_risk < least:
      best, least = num_bins, candidate_risk
    num_bins += 1
  return best


def crossover(*, num_records: int, num_bins: int) -> float:
  """Returns the epsilon where Laplace noise equals sampling: sqrt(8 m / n).

  For m = (L^2 n / 6)^(1/3) and L = 2 it is 2.64 n^(-1/3) (item DEN-H4).
  """
  return math.sqrt(8 * num_bins / num_records)
