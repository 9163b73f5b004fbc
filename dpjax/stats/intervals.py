"""Computes confidence intervals that cover sampling error and privacy noise.

Post-processing: nothing here sees records. Arrays are float32 and broadcast;
`confidence` is a Python number in (0, 1).
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from scipy import special

from dpjax import errors
from dpjax.typing import Array

BINOMIAL = ('wald', 'wilson')
# Halvings of the bisection: an error of 2^-30, finer than float32.
_STEPS = 30
# If the standard deviation exceeds this many noise scales, the sum is normal up
# to a thousandth of the tail; the exact formula would subtract large numbers.
_NORMAL_FROM = 20.0


class Estimate(NamedTuple):
  """An estimate with a confidence interval; the three arrays share one shape.

  Attributes:
    value: unbiased or nearly so where possible, so it may leave the range of
      the estimated quantity. Clip it for a report, but not before averaging.
    low: lower end, within the range.
    high: upper end, within the range.
  """
  value: Array
  low: Array
  high: Array


def clipped(estimate: Estimate, lower: float, upper: float) -> Estimate:
  """Clips the interval to a range that contains the truth; keeps the value."""
  return Estimate(estimate.value, jnp.clip(estimate.low, lower, upper),
                  jnp.clip(estimate.high, lower, upper))


def normal_quantile(confidence: float) -> float:
  """Returns z with P(|N(0, 1)| <= z) = confidence."""
  errors.check_open_unit('confidence', confidence)
  return -float(special.ndtri((1 - confidence) / 2))


def symmetric(value: Array, half: Array) -> Estimate:
  """Returns the interval value - half .. value + half."""
  return Estimate(value, value - half, value + half)


def wald(value: Array, stddev: Array, *, confidence: float) -> Estimate:
  """Returns value +- z stddev, for an error that is nearly normal."""
  return symmetric(value, normal_quantile(confidence) * stddev)


def half_width(stddev: Array, scale: Array, *, confidence: float) -> Array:
  """Returns t with P(|X| <= t) = confidence, for X normal plus Laplace noise.

  The two parts of X are independent. Bisection solves P(X > t) = Q(t/s) +
  e^(s^2 / 2b^2) [e^(-t/b) Phi(t/s - s/b) - e^(t/b) Phi(-t/s - s/b)] / 2 (item
  INT-03).

  Args:
    stddev: s > 0 of the normal part.
    scale: b > 0 of the Laplace part.
    confidence: in (0, 1).
  """
  errors.check_open_unit('confidence', confidence)
  ratio = jnp.minimum(stddev / scale, _NORMAL_FROM)
  tail = (1 - confidence) / 2
  # In units of b. An upper end for the bisection: if X exceeds the sum of two
  # quantiles, one part exceeds its own, by a union bound.
  high = (-float(special.ndtri(tail / 2)) * ratio
          - math.log(tail)) * jnp.ones_like(ratio)

  def halve(_: Array, interval: tuple[Array, Array]) -> tuple[Array, Array]:
    low, high = interval
    middle = (low + high) / 2
    over = _upper_tail(middle, ratio) > tail
    return jnp.where(over, middle, low), jnp.where(over, high, middle)

  low, high = jax.lax.fori_loop(0, _STEPS, halve, (jnp.zeros_like(high), high))
  # Laplace noise of scale b has variance 2 b^2.
  normal = normal_quantile(confidence) * jnp.sqrt(
      jnp.square(stddev) + 2 * jnp.square(scale))
  return jnp.where(stddev >= _NORMAL_FROM * scale, normal, high * scale)


def _upper_tail(t: Array, ratio: Array) -> Array:
  """Returns P(X > t) for a normal part of standard deviation `ratio`, b = 1.
  """
  log_ndtr = jax.scipy.special.log_ndtr
  # Exponents are summed before exp: the factor e^(ratio^2 / 2) overflows alone.
  shift, place = jnp.square(ratio) / 2, t / ratio
  return (jax.scipy.special.ndtr(-place)
          + (jnp.exp(shift - t + log_ndtr(place - ratio))
             - jnp.exp(shift + t + log_ndtr(-place - ratio))) / 2)


def binomial(share: Array, num_examples: int, *, confidence: float,
             method: str = 'wilson') -> Estimate:
  """Returns a confidence interval for the proportion in a population.

  Args:
    share: observed proportion of n records, in [0, 1].
    num_examples: n >= 1.
    confidence: in (0, 1).
    method: 'wald' is for large counts; 'wilson' has about the stated confidence
      for all counts.

  Examples:
    >>> from dpjax.stats import intervals
    >>> interval = intervals.binomial(jnp.float32(0.0), 100, confidence=0.95)
    >>> round(float(interval.high), 3)
    0.037
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_choice('method', method, BINOMIAL)
  variance = share * (1 - share)
  if method == 'wald':
    return wald(share, jnp.sqrt(variance / num_examples),
                confidence=confidence)
  # Wilson's interval: the proportions p with |share - p| <= z sd(p).
  weight = normal_quantile(confidence)**2 / num_examples
  centre = (share + weight / 2) / (1 + weight)
  half = jnp.sqrt(weight * (variance + weight / 4)) / (1 + weight)
  return Estimate(share, centre - half, centre + half)
