"""Couplings of laws: how seldom random data sets can be made to differ.

Whoever draws from K laws at once, so that two of them rarely differ, turns what
privacy says of neighbours into what it says of laws. Laws are [K, m]
probabilities of the same m values. Source: thesis 000, section 3.4 (item
CPL-MAX, CPL-BERN, CPL-AS, CPL-HAM).
"""

import functools
from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
from scipy import special

from dpjax import errors
from dpjax.stats import precision
from dpjax.typing import Array, PRNGKey


def maximal(p: np.ndarray, q: np.ndarray) -> np.ndarray:
  """[m, m] joint probabilities: different with probability TV(p, q) only.

  What both laws have stays together; the rests, on different values, are
  independent. Source: thesis 000, Fact 3.4.1.

  Args:
    p: [m] probabilities.
    q: [m] probabilities.
  """
  _checked(np.stack([p, q]))
  common = np.minimum(p, q)
  apart = np.sum(p - common)
  rest = np.outer(p - common, q - common)
  return np.diag(common) + (rest / apart if apart else rest)


@precision.in_float64
def draw_pairs(key: PRNGKey, joint: np.ndarray, *, num_draws: int) -> Array:
  """[R, 2] values of a joint law [m, m], as that of `maximal`.

  Args:
    key: of the draws.
    joint: probabilities.
    num_draws: R.
  """
  ends = jnp.cumsum(jnp.asarray(joint, jnp.float64).ravel())
  uniform = jax.random.uniform(key, (num_draws,), jnp.float64)
  cell = jnp.searchsorted(ends, uniform * ends[-1], side='right')
  return jnp.stack(jnp.divmod(jnp.minimum(cell, ends.size - 1),
                              joint.shape[1]), axis=1)


@precision.in_float64
def draw_bernoulli(key: PRNGKey, probs: np.ndarray, *, num_draws: int) -> Array:
  """[R, K] bits 1{U < p_i}: two differ with probability |p_i - p_j|, their TV.

  All pairs at once. Source: thesis 000, Example 3.4.2.

  Args:
    key: of the draws.
    probs: [K] of a 1.
    num_draws: R.
  """
  uniform = jax.random.uniform(key, (num_draws, 1), jnp.float64)
  return (uniform < jnp.asarray(probs, jnp.float64)[None]).astype(jnp.int32)


@precision.in_float64
def draw(key: PRNGKey, laws: np.ndarray, *, num_draws: int) -> Array:
  """[R, K] values; two differ with probability 2 TV / (1 + TV) at most.

  All laws look at one stream of points, a value and a height, and each takes
  the first point below its probability. Where that of one is the first of two,
  the other takes it too, but for the differences of the two laws. Three laws on
  two of three values each allow no less (Example 3.4.3). Source: Angel and
  Spinka 2021 (thesis 000, Fact 3.4.4).

  Args:
    key: of the draws.
    laws: [K, m] probabilities.
    num_draws: R.
  """
  return _streams(jax.random.split(key, num_draws),
                  jnp.asarray(_checked(laws), jnp.float64))


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, None))
def _streams(key: PRNGKey, laws: Array) -> Array:
  """[K] values of one stream; ends with probability 1."""
  highest = jnp.max(laws)

  def look(state):
    number, values, found = state
    place, height = jax.random.split(jax.random.fold_in(key, number))
    value = jax.random.randint(place, (), 0, laws.shape[1], jnp.int32)
    below = jax.random.uniform(height, (), laws.dtype) * highest < jnp.take(
        laws, value, axis=1)
    return number + 1, jnp.where(found, values, value), found | below

  values = jnp.zeros(laws.shape[0], jnp.int32)
  _, values, _ = lax.while_loop(
      lambda state: ~jnp.all(state[2]), look,
      (jnp.int32(0), values, jnp.zeros(laws.shape[0], bool)))
  return values


def disagreements(laws: np.ndarray) -> np.ndarray:
  """[K, K] probabilities that two of `draw` differ, exact.

  If the first point that one of two laws takes is not of both, the other goes
  on, and may meet the same value: 1 - (sum min + sum (p - q)+ q + (q - p)+ p) /
  (1 + TV), which is 2 TV / (1 + TV) at most, and equal to it where the laws
  differ only at values that one of them never takes.

  Args:
    laws: [K, m] probabilities.
  """
  p = _checked(laws)[:, None]
  q = p[:, 0][None]
  common = np.minimum(p, q)
  met = np.sum(common + (p - common) * q + (q - common) * p, -1)
  return 1 - met / np.sum(np.maximum(p, q), -1)


class Moments(NamedTuple):
  """Of the number of records d in which two coupled data sets differ.

  Attributes:
    mean: E d.
    square: E d^2.
    decay: E e^(-epsilon d).
  """
  mean: np.ndarray
  square: np.ndarray
  decay: np.ndarray


def product_moments(disagreement: np.ndarray, *, num_examples: int,
                    epsilon: float) -> Moments:
  """Records coupled one by one, d ~ Bin(n, t): exact.

  Source: thesis 000, Lemma 3.4.6.

  Args:
    disagreement: t, of one record.
    num_examples: n.
    epsilon: >= 0.
  """
  t = _disagreement(disagreement, num_examples, epsilon)
  return Moments(
      num_examples * t,
      num_examples * t * (1 - t) + np.square(num_examples * t),
      np.exp(special.xlog1py(num_examples, t * np.expm1(-epsilon))))


def joint_moments(disagreement: np.ndarray, *, num_examples: int,
                  epsilon: float) -> Moments:
  """Data sets coupled as a whole: the worst, all n records differ or none.

  E d and E d^2 are at most, and E e^(-epsilon d) at least, what is returned.
  Source: thesis 000, Lemma 3.4.5.

  Args:
    disagreement: probability that the two data sets differ.
    num_examples: n.
    epsilon: >= 0.
  """
  apart = _disagreement(disagreement, num_examples, epsilon)
  return Moments(num_examples * apart, num_examples**2 * apart,
                 1 + np.expm1(-num_examples * epsilon) * apart)


def _disagreement(value, num_examples, epsilon) -> np.ndarray:
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_non_negative('epsilon', epsilon)
  value = np.asarray(value, np.float64)
  if not ((value >= 0) & (value <= 1)).all():
    raise ValueError('disagreement must lie in [0, 1]')
  return value


def _checked(laws: np.ndarray) -> np.ndarray:
  laws = np.asarray(laws, np.float64)
  if laws.ndim != 2 or (laws < 0).any() or (
      np.abs(laws.sum(1) - 1) > 1e-9).any():
    raise ValueError('laws must be [K, m] probabilities, each row of sum 1')
  return laws
