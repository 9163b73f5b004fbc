"""Printed and best tunings of projections, which know what a user does not.

The printed number of functions is that of Lalanne, Garivier and Gribonval
(2023, Theorem 4; Lalanne 2023, Theorem 5.2.3); Pinsker's weights are the best
on a class of smooth densities, and the oracle's on one density (items DEN-P1 to
P5, DEN-B4).
"""

from collections.abc import Callable
import dataclasses
import math

import numpy as np
from scipy import optimize

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import sensitivities
from dpjax.stats.density_methods.densities import Density
from dpjax.stats.density_methods.mechanism import Risk
from dpjax.stats.density_methods.projections import Projection
from dpjax.stats.density_methods.projections import WeightedProjection

_MOST = 2048


def printed_num_functions(signal: float, *, num_records: int, smoothness: int,
                          pure: bool) -> int:
  """Returns N of Theorem 4, "of the order of", as the nearest odd number.

  min(n^(1 / (2 beta + 1)), (n alpha)^(1 / (beta + 3/2))) under pure privacy,
  with beta + 1 under zCDP and (epsilon, delta); at least 3. It depends neither
  on constants nor on L. beta is an integer (erratum DEN-E23).

  Args:
    signal: n alpha, records times budget.
    num_records: n, the number of records.
    smoothness: beta, the order of the bounded derivative.
    pure: whether noise is Laplace.
  """
  errors.check_positive('signal', signal)
  errors.check_at_least('num_records', num_records, 1)
  errors.check_at_least('smoothness', smoothness, 1)
  power = smoothness + (1.5 if pure else 1)
  least = min(num_records**(1 / (2 * smoothness + 1)), signal**(1 / power))
  # The nearest odd number: a cosine comes with its sine.
  return max(3, round(least) // 2 * 2 + 1)


def printed_projection(*, num_records: int, smoothness: int,
                       epsilon: float | None = None, rho: float | None = None,
                       adjacency: Adjacency) -> Projection:
  """Returns the estimator of Theorem 4, as published."""
  mechanism = Projection(num_records=num_records, epsilon=epsilon, rho=rho,
                         adjacency=adjacency, num_functions=3,
                         tuning='printed', fix_mass=False)
  if mechanism.noise_distribution is None:
    raise ValueError('Theorem 4 needs a budget, epsilon or rho')
  return dataclasses.replace(mechanism, num_functions=printed_num_functions(
      num_records * mechanism.budget, num_records=num_records,
      smoothness=smoothness, pure=mechanism.pure))


def tuned_num_functions(mechanism: Projection, *, smoothness: int,
                        radius: float) -> int:
  """Returns the N of least `worst_case` over a class; it sees no data."""
  return _least(mechanism,
                lambda candidate: candidate.worst_case(smoothness, radius))


def oracle_num_functions(mechanism: Projection, density: Density) -> int:
  """Returns the N of least expected error for a known density."""
  return _least(mechanism, lambda candidate: candidate.expected(density))


def _least(mechanism: Projection,
           risk: Callable[[Projection], Risk]) -> int:
  """Returns the odd N of least total risk."""
  best, best_size, size = math.inf, 3, 3
  while True:
    candidate_risk = risk(dataclasses.replace(mechanism, num_functions=size))
    # Sampling and privacy errors increase with N, so the search can stop.
    if candidate_risk.sampling + candidate_risk.privacy >= best:
      return best_size
    if candidate_risk.total < best:
      best, best_size = candidate_risk.total, size
    size += 2


def pinsker_weights(width: float, *, smoothness: int) -> tuple[float, ...]:
  """Returns 1 - (k / W)^beta for k < W: the minimax linear estimator's weights.

  Args:
    width: W > 1, the frequency at which weights reach 0.
    smoothness: beta, the order of the bounded derivative.
  """
  if not (math.isfinite(width) and width > 1):
    raise ValueError(f'width must be a number > 1, got {width}')
  errors.check_at_least('smoothness', smoothness, 1)
  k = np.arange(1, math.ceil(width))
  return sensitivities.as_weights(1 - (k / width)**smoothness)


def pinsker_projection(*, num_records: int, rho: float, smoothness: int,
                       radius: float, basis: str = 'fourier',
                       adjacency: Adjacency) -> WeightedProjection:
  """Returns Pinsker's weights with the width of least error over a class.

  Args:
    num_records: n, the number of records.
    rho: budget of the release.
    smoothness: beta, the order of the bounded derivative.
    radius: L, see `SumsMechanism.worst_case`.
    basis: 'fourier' or 'cosine'.
    adjacency: which data sets are neighbours.
  """
  def mechanism(log_width: float) -> WeightedProjection:
    return WeightedProjection(
        num_records=num_records, rho=rho, basis=basis, adjacency=adjacency,
        coefficient_weights=pinsker_weights(math.exp(log_width),
                                            smoothness=smoothness))

  def risk(log_width: float) -> Risk:
    return mechanism(log_width).worst_case(smoothness, radius)
  # The first width at which variance is above bias, in steps of sqrt 2.
  log_width, step = math.log(1.5), math.log(2) / 2
  while (now := risk(log_width)).total < 2 * now.bias:
    log_width += step
  optimum = optimize.minimize_scalar(
      lambda place: risk(place).total, method='bounded',
      bounds=(max(log_width - 3 * step, 1e-3), log_width + 2 * step),
      options={'xatol': 1e-4})
  return mechanism(optimum.x)


def oracle_weights(density: Density, *, num_records: int,
                   rho: float | None) -> tuple[float, ...]:
  """Returns weights of the best `WeightedProjection` for a known density.

  For a given kappa, the best weight of a frequency of energy e is (e - 2 kappa
  / n^2)+ / (e + (2 - e) / n) (Wiener's, with the noise that it causes). kappa
  falls as the weights do, so a single number is solved for.

  Args:
    density: the true density.
    num_records: n, the public number of records.
    rho: budget of the release; None without privacy.
  """
  energies = density.energies(_MOST)
  best = energies + (2 - energies) / num_records

  def weights(kappa: float) -> np.ndarray:
    return np.maximum(energies - 2 * kappa / num_records**2, 0) / best

  if rho is None:
    return sensitivities.as_weights(np.trim_zeros(weights(0.0), 'b'))

  def excess(kappa: float) -> float:
    return kappa - sensitivities.weighted_circle(
        np.trim_zeros(weights(kappa), 'b'),
        adjacency=Adjacency.REPLACE_ONE) / (2 * rho)
  # Just below the largest kappa that leaves any weight positive.
  high = energies.max() * num_records**2 / 2 * (1 - 1e-9)
  low = high / 2
  while excess(low) > 0:
    low /= 2
  kappa = optimize.brentq(excess, low, high, rtol=1e-10)
  return sensitivities.as_weights(np.trim_zeros(weights(kappa), 'b'))
