"""Discrete noise on integers: exact draws, privacy cost, tails and widths."""

import dataclasses
import fractions
import math

import numpy as np
from scipy import stats

from dpjax.privacy import exact
from dpjax.release.costs import Cost

Fraction = fractions.Fraction


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceNoise:
  """Discrete Laplace noise: integers z with P(z) ~ e^(-|z| / scale)."""
  scale: Fraction

  def cost(self, *, l1_sensitivity: int, l2_sensitivity_squared: int) -> Cost:
    """Returns the cost of this noise on every integer of a vector."""
    del l2_sensitivity_squared
    return Cost(epsilon=l1_sensitivity / self.scale)

  def draw(self, below: exact.Draw) -> int:
    """Returns one exact draw."""
    return exact.discrete_laplace(self.scale, below)

  def half_width(self, miss: float) -> int:
    """Returns the least w with P(|z| > w) <= miss."""
    # P(|z| > w) = 2 a^(w + 1) / (1 + a), with a = e^(-1 / scale).
    ratio = math.exp(-1 / float(self.scale))

    def tail(w: int) -> float:
      return 2 * math.exp(-(w + 1) / float(self.scale)) / (1 + ratio)

    # One too small unless scale * log is whole, which rounding may hide; so
    # the tail decides.
    width = max(0, math.floor(float(self.scale) * math.log(
        2 / (miss * (1 + ratio)))) - 1)
    return width if tail(width) <= miss else width + 1

  def above(self, z: np.ndarray) -> np.ndarray:
    """Returns P(noise >= z) for an array of integers z."""
    rate = 1 / float(self.scale)
    # By symmetry P(noise >= z) = 1 - P(noise >= 1 - z). The one of z and 1 - z
    # that is positive is used, so that no exponential overflows.
    smaller_tail = np.exp(-rate * np.maximum(z, 1 - z)) / (1 + math.exp(-rate))
    return np.where(z > 0, smaller_tail, 1 - smaller_tail)

  def log_moment(self, rates: np.ndarray) -> np.ndarray:
    """Returns ln E e^(rate z) for rates >= 0; infinite from 1 / scale on."""
    # Two geometric series: E e^(r z) = (1 - a)^2 / ((1 - a e^r) (1 - a e^-r)).
    a = math.exp(-1 / float(self.scale))
    divisor = 1 - a * np.exp(rates)
    with np.errstate(divide='ignore', invalid='ignore'):
      logs = (2 * math.log1p(-a) - np.log(divisor)
              - np.log1p(-a * np.exp(-rates)))
    return np.where(divisor > 0, logs, math.inf)

  @property
  def deviation(self) -> float:
    """Returns the standard deviation sqrt(2 a) / (1 - a), a = e^(-1 / scale).
    """
    rate = 1 / float(self.scale)
    return math.sqrt(2) * math.exp(-rate / 2) / -math.expm1(-rate)

  def simulated(self, generator: np.random.Generator,
                shape: tuple[int, ...]) -> np.ndarray:
    """Returns float samples, for interval widths only; never added to data."""
    scale = float(self.scale)
    # The difference of two geometric variables is discrete Laplace.
    one, other = (np.floor(scale * generator.standard_exponential(shape))
                  for _ in range(2))
    return one - other

  def to_json(self) -> dict[str, str | float]:
    """Returns the description of the noise in the release JSON."""
    return {'distribution': 'discrete Laplace: integers z, probability '
                            'proportional to exp(-|z| / scale), times the unit',
            'scale': str(self.scale)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianNoise:
  """Discrete Gaussian noise: integers z with P(z) ~ e^(-z^2 / (2 variance))."""
  variance: Fraction

  def cost(self, *, l1_sensitivity: int, l2_sensitivity_squared: int) -> Cost:
    """Returns the cost of this noise on every integer of a vector."""
    del l1_sensitivity
    return Cost(rho=l2_sensitivity_squared / (2 * self.variance))

  def draw(self, below: exact.Draw) -> int:
    """Returns one exact draw."""
    return exact.discrete_gaussian(self.variance, below)

  def half_width(self, miss: float) -> int:
    """Returns the least w with P(|z| > w) <= miss, or one more."""
    deviation = math.sqrt(self.variance)
    if deviation > 1000:
      # P(z >= w + 1) <= P(N >= w), N the continuous Gaussian of this variance
      # (Canonne, Kamath and Steinke 2020, Proposition 25).
      return math.ceil(deviation * stats.norm.isf(miss / 2))
    # Weights of 40 deviations or more, below e^-800, are 0 in float64.
    z = np.arange(math.ceil(40 * deviation) + 2, dtype=np.float64)
    weights = np.exp(-z * z / (2 * float(self.variance)))
    tail_sums = np.cumsum(weights[::-1])[::-1]  # of weights of z or more
    tails = 2 * tail_sums[1:] / (2 * tail_sums[0] - 1)
    return int(np.argmax(tails <= miss))

  def above(self, z: np.ndarray) -> np.ndarray:
    """Returns P(noise >= z) for an array of integers z, or 1e-7 more."""
    points, weights = self._weights()
    if not len(points):
      # A normal tail: a sum of the density over integers differs from its
      # integral by a 24th of that of its absolute second derivative.
      return np.minimum(1.0, 1e-7 + stats.norm.sf(
          (z - 0.5) / math.sqrt(self.variance)))
    tails = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    return tails[np.clip(z - points[0], 0, len(points)).astype(int)]

  def log_moment(self, rates: np.ndarray) -> np.ndarray:
    """Returns an upper bound of ln E e^(rate z): that of N(0, variance)."""
    # Completing the square shifts the weights by variance * rate, and a sum of
    # Gaussian weights over the integers is largest without a shift.
    return float(self.variance) / 2 * np.square(rates)

  @property
  def deviation(self) -> float:
    """Returns the standard deviation; sqrt(variance) if that is above 1000."""
    z, weights = self._weights()
    return math.sqrt(weights @ z**2) if len(z) else math.sqrt(self.variance)

  def simulated(self, generator: np.random.Generator,
                shape: tuple[int, ...]) -> np.ndarray:
    """Returns float samples, for interval widths only; never added to data."""
    z, weights = self._weights()
    if len(z):
      return generator.choice(z, shape, p=weights)
    return np.rint(generator.normal(0.0, math.sqrt(self.variance), shape))

  def _weights(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns integers and their probabilities; none if sigma > 1000."""
    deviation = math.sqrt(self.variance)
    if deviation > 1000:
      return np.zeros(0), np.zeros(0)
    # Integers beyond 12 deviations have a probability below 1e-32.
    last = math.ceil(12 * deviation) + 1
    z = np.arange(-last, last + 1.0)
    weights = np.exp(-z * z / (2 * float(self.variance)))
    return z, weights / weights.sum()

  def to_json(self) -> dict[str, str | float]:
    """Returns the description of the noise in the release JSON."""
    return {'distribution': 'discrete Gaussian: integers z, probability '
                            'proportional to exp(-z^2 / (2 variance)), times '
                            'the unit',
            'variance': str(self.variance)}


Noise = LaplaceNoise | GaussianNoise


def calibrated(cost: Cost, *, l1_sensitivity: int,
               l2_sensitivity_squared: int) -> Noise:
  """Returns the noise for every integer of a vector released at this cost.

  It is exactly epsilon-DP by the l1 sensitivity, or exactly rho-zCDP by the l2
  sensitivity (Canonne, Kamath and Steinke 2020, Theorem 4).
  """
  # Exact fractions: a rounded scale could cost more than was paid.
  if cost.epsilon is not None:
    return LaplaceNoise(scale=l1_sensitivity / cost.epsilon)
  if cost.rho is None:
    raise ValueError(f'noise needs an epsilon or a rho, got {cost}')
  return GaussianNoise(variance=l2_sensitivity_squared / (2 * cost.rho))
