"""Proportions from polls in which people answer at random, with intervals.

Post-processing of `privacy.local`: nothing here is private or needs to be.
Numbers of yeses may be arrays of any shape. Source: lecture 002, Exercises 7.1
and 7.2 (item EST-01, EST-02).
"""

import jax.numpy as jnp

from dpjax import errors
from dpjax.stats import intervals
from dpjax.stats.intervals import Estimate
from dpjax.typing import Array


def proportion(num_yes: Array, num_examples: int, *, truth_prob: float,
               confidence: float = 0.95, method: str = 'wilson') -> Estimate:
  """Who means yes, when answers are true with probability phi (EST-01).

  Args:
    num_yes: yeses among the answers.
    num_examples: n, answers.
    truth_prob: phi, anything but 1/2.
    confidence: of the interval.
    method: see `intervals.binomial`.
  """
  slope = 2 * errors.check_open_unit('truth_prob', truth_prob) - 1
  if slope == 0:
    raise ValueError('truth_prob must not be 1/2: answers tell nothing')
  value, one, other = (
      (each - (1 - truth_prob)) / slope for each in intervals.binomial(
          _share(num_yes, num_examples), num_examples, confidence=confidence,
          method=method))
  low, high = (one, other) if slope > 0 else (other, one)
  return intervals.clipped(Estimate(value, low, high), 0.0, 1.0)


def proportion_forced(num_yes: Array, num_examples: int, *, yes_prob: float,
                      confidence: float = 0.95,
                      method: str = 'wilson') -> Estimate:
  """Who means yes, when some say yes in any case (LDP-03).

  Args:
    num_yes: yeses among the answers.
    num_examples: n, answers.
    yes_prob: q, with which yes is said whatever the truth is.
    confidence: of the interval.
    method: see `intervals.binomial`.
  """
  errors.check_open_unit('yes_prob', yes_prob)
  return intervals.clipped(Estimate(*(
      (each - yes_prob) / (1 - yes_prob) for each in intervals.binomial(
          _share(num_yes, num_examples), num_examples, confidence=confidence,
          method=method))), 0.0, 1.0)


def proportion_drowned(num_yes: Array, num_examples: int, *,
                       num_other_yes: Array, num_other_examples: int,
                       confidence: float = 0.95) -> Estimate:
  """The same, when the share of the other question is estimated too (EST-02).

  A yes is to either of two questions; other people, independently, are asked
  the harmless one alone. The interval is symmetric in ln(1 - p). Where all say
  yes to the harmless question nothing can be learned: the value is NaN and the
  interval is [0, 1].

  Args:
    num_yes: yeses to either question.
    num_examples: n, people who were asked both.
    num_other_yes: yeses to the harmless question alone.
    num_other_examples: m, people who were asked that.
    confidence: of the interval.
  """
  either = _share(num_yes, num_examples)
  other = _share(num_other_yes, num_other_examples)
  known = other < 1
  other_no = jnp.where(known, 1 - other, 1.0)
  value = jnp.where(known, (either - other) / other_no, jnp.nan)
  # Half a no, where there is none: the logarithm is to stay finite.
  no = jnp.maximum(1 - either, 0.5 / num_examples)
  spread = jnp.sqrt((1 - no) / (num_examples * no)
                    + other / (num_other_examples * other_no))
  factor = jnp.exp(intervals.normal_quantile(confidence) * spread)
  ratio = no / other_no
  return Estimate(value,
                  jnp.where(known, jnp.clip(1 - ratio * factor, 0, 1), 0.0),
                  jnp.where(known, jnp.clip(1 - ratio / factor, 0, 1), 1.0))


def variance(prob: float, num_examples: int, *, truth_prob: float) -> float:
  """Of the estimate of `proportion`, exact (EST-01).

  p (1 - p) / n, as without privacy, plus e^epsilon / (n (e^epsilon - 1)^2).
  """
  slope = 2 * errors.check_open_unit('truth_prob', truth_prob) - 1
  seen = prob * truth_prob + (1 - prob) * (1 - truth_prob)
  return seen * (1 - seen) / (num_examples * slope**2)


def variance_drowned(prob: float, other_prob: float, num_examples: int,
                     num_other_examples: int) -> float:
  """Of the estimate of `proportion_drowned`, for large numbers (EST-02)."""
  either = prob + other_prob - prob * other_prob
  return (either * (1 - either) / (num_examples * (1 - other_prob)**2)
          + (1 - prob)**2 * other_prob
          / (num_other_examples * (1 - other_prob)))


def _share(num_yes: Array, num_examples: int) -> Array:
  errors.check_at_least('num_examples', num_examples, 1)
  return jnp.asarray(num_yes, jnp.float32) / num_examples
