"""Estimates proportions from polls in which people answer at random.

Post-processing of `privacy.local`: the answers are private already. Numbers of
yes answers may be arrays of any shape. Source: lecture notes, chapter 7,
Exercises 7.1 and 7.2 (items EST-01, EST-02).
"""

import jax.numpy as jnp

from dpjax import errors
from dpjax.stats import intervals
from dpjax.stats.intervals import Estimate
from dpjax.typing import Array


def proportion(num_yes: Array, num_examples: int, *, truth_prob: float,
               confidence: float = 0.95, method: str = 'wilson') -> Estimate:
  """Estimates the true share of yes if answers are true with probability phi.

  Item EST-01.

  Args:
    num_yes: number of yes answers.
    num_examples: n, number of answers.
    truth_prob: phi in (0, 1), other than 1/2.
    confidence: level of the interval.
    method: see `intervals.binomial`.
  """
  slope = 2 * errors.check_open_unit('truth_prob', truth_prob) - 1
  if slope == 0:
    raise ValueError('truth_prob must not be 1/2: such answers carry no '
                     'information')
  # P(yes) = 1 - phi + slope p, inverted for the estimate and both ends.
  value, first_end, second_end = (
      (number - (1 - truth_prob)) / slope for number in intervals.binomial(
          _share(num_yes, num_examples), num_examples, confidence=confidence,
          method=method))
  # With a negative slope the inversion swaps the ends.
  low, high = (first_end, second_end) if slope > 0 else (second_end, first_end)
  return intervals.clipped(Estimate(value, low, high), 0.0, 1.0)


def proportion_forced(num_yes: Array, num_examples: int, *, yes_prob: float,
                      confidence: float = 0.95,
                      method: str = 'wilson') -> Estimate:
  """Estimates the true share of yes if some people say yes in any case.

  Item LDP-03.

  Args:
    num_yes: number of yes answers.
    num_examples: n, number of answers.
    yes_prob: q in (0, 1), probability of a forced yes.
    confidence: level of the interval.
    method: see `intervals.binomial`.
  """
  errors.check_open_unit('yes_prob', yes_prob)
  return intervals.clipped(Estimate(*(
      (number - yes_prob) / (1 - yes_prob) for number in intervals.binomial(
          _share(num_yes, num_examples), num_examples, confidence=confidence,
          method=method))), 0.0, 1.0)


def proportion_drowned(num_yes: Array, num_examples: int, *,
                       num_other_yes: Array, num_other_examples: int,
                       confidence: float = 0.95) -> Estimate:
  """Estimates the share of yes to a question mixed with a harmless one.

  People answer yes if either of the two questions applies to them; other
  people, independently, answer the harmless question alone, which estimates its
  share (item EST-02). The interval is symmetric in ln(1 - p). If all of these
  say yes to the harmless question, nothing can be learned: the value is NaN and
  the interval is [0, 1].

  Args:
    num_yes: number of yes answers to either question.
    num_examples: n, people who were asked both.
    num_other_yes: number of yes answers to the harmless question alone.
    num_other_examples: m, people who were asked that one alone.
    confidence: level of the interval.
  """
  either = _share(num_yes, num_examples)
  other = _share(num_other_yes, num_other_examples)
  # With other = 1 the quotient has no denominator; `where` needs a finite one.
  known = other < 1
  other_no = jnp.where(known, 1 - other, 1.0)
  value = jnp.where(known, (either - other) / other_no, jnp.nan)
  # Without any no, count half a no so that the logarithm stays finite.
  no = jnp.maximum(1 - either, 0.5 / num_examples)
  stddev = jnp.sqrt((1 - no) / (num_examples * no)
                    + other / (num_other_examples * other_no))
  factor = jnp.exp(intervals.normal_quantile(confidence) * stddev)
  ratio = no / other_no
  return Estimate(value,
                  jnp.where(known, jnp.clip(1 - ratio * factor, 0, 1), 0.0),
                  jnp.where(known, jnp.clip(1 - ratio / factor, 0, 1), 1.0))


def variance(prob: float, num_examples: int, *, truth_prob: float) -> float:
  """Returns the exact variance of the estimate of `proportion` (EST-01).

  p (1 - p) / n, as without privacy, plus e^epsilon / (n (e^epsilon - 1)^2).
  """
  slope = 2 * errors.check_open_unit('truth_prob', truth_prob) - 1
  yes_prob = prob * truth_prob + (1 - prob) * (1 - truth_prob)
  return yes_prob * (1 - yes_prob) / (num_examples * slope**2)


def variance_drowned(prob: float, other_prob: float, num_examples: int,
                     num_other_examples: int) -> float:
  """Returns the large-sample variance of `proportion_drowned` (EST-02)."""
  either = prob + other_prob - prob * other_prob
  return (either * (1 - either) / (num_examples * (1 - other_prob)**2)
          + (1 - prob)**2 * other_prob
          / (num_other_examples * (1 - other_prob)))


def _share(num_yes: Array, num_examples: int) -> Array:
  """Returns the share of yes answers as float32."""
  errors.check_at_least('num_examples', num_examples, 1)
  return jnp.asarray(num_yes, jnp.float32) / num_examples
