"""Couplings of distributions: random data sets that rarely differ.

Drawing from K distributions at once so that two draws rarely differ turns
privacy bounds for neighbours into bounds for distributions. The `probs` are [K,
m] probabilities of the same m values. Source: Lalanne (2023, section 3.4) (item
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
  """Returns joint probabilities [m, m] that differ with probability TV(p, q).

  This is the least possible. The common part of both stays together; the
  remainders, on different values, are independent. Source: Lalanne (2023, Fact
  3.4.1).

  Args:
    p: [m] probabilities.
    q: [m] probabilities.
  """
  _checked(np.stack([p, q]))
  common = np.minimum(p, q)
  variation = np.sum(p - common)
  remainders = np.outer(p - common, q - common)
  return np.diag(common) + (remainders / variation if variation else remainders)


@precision.in_float64
def draw_pairs(key: PRNGKey, joint: np.ndarray, *, num_draws: int) -> Array:
  """Draws pairs [R, 2] of values from a joint distribution [m, m].

  Args:
    key: random key of the draws.
    joint: probabilities, such as those of `maximal`.
    num_draws: R, the number of draws.
  """
  # Inverse transform: cell i has the interval below its cumulated probability.
  cumulated = jnp.cumsum(jnp.asarray(joint, jnp.float64).ravel())
  uniform = jax.random.uniform(key, (num_draws,), jnp.float64)
  cell = jnp.searchsorted(cumulated, uniform * cumulated[-1], side='right')
  return jnp.stack(jnp.divmod(jnp.minimum(cell, cumulated.size - 1),
                              joint.shape[1]), axis=1)


@precision.in_float64
def draw_bernoulli(key: PRNGKey, probs: np.ndarray, *, num_draws: int) -> Array:
  """Draws bits 1{U < p_i} [R, K]; two differ with probability |p_i - p_j|.

  That is the total variation, attained for all pairs at once. Source: Lalanne
  (2023, Example 3.4.2).

  Args:
    key: random key of the draws.
    probs: [K] probabilities of a 1.
    num_draws: R, the number of draws.
  """
  uniform = jax.random.uniform(key, (num_draws, 1), jnp.float64)
  return (uniform < jnp.asarray(probs, jnp.float64)[None]).astype(jnp.int32)


@precision.in_float64
def draw(key: PRNGKey, probs: np.ndarray, *, num_draws: int) -> Array:
  """Draws values [R, K]; two differ with probability at most 2 TV / (1 + TV).

  All distributions use one stream of points, each a value and a height. Each
  takes the first point below its probability. The first point that either of
  two takes is taken by the other too, unless it lies where they differ. Three
  distributions on two of three values each allow no less (Example 3.4.3).
  Source: Angel and Spinka 2021 (Lalanne, 2023, Fact 3.4.4).

  Args:
    key: random key of the draws.
    probs: [K, m] probabilities.
    num_draws: R, the number of draws.
  """
  return _streams(jax.random.split(key, num_draws),
                  jnp.asarray(_checked(probs), jnp.float64))


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, None))
def _streams(key: PRNGKey, probs: Array) -> Array:
  """Draws values [K] from one stream of points; ends with probability 1."""
  highest = jnp.max(probs)

  def look(state):
    number, values, is_done = state
    place, height = jax.random.split(jax.random.fold_in(key, number))
    # Points are uniform below the largest probability of any value.
    value = jax.random.randint(place, (), 0, probs.shape[1], jnp.int32)
    below = jax.random.uniform(height, (), probs.dtype) * highest < jnp.take(
        probs, value, axis=1)
    return number + 1, jnp.where(is_done, values, value), is_done | below

  values = jnp.zeros(probs.shape[0], jnp.int32)
  _, values, _ = lax.while_loop(
      lambda state: ~jnp.all(state[2]), look,
      (jnp.int32(0), values, jnp.zeros(probs.shape[0], bool)))
  return values


def disagreements(probs: np.ndarray) -> np.ndarray:
  """Returns the exact probabilities [K, K] that two values of `draw` differ.

  If the first point that one of two takes does not suit both, the other goes on
  and may still meet the same value: 1 - (sum min + sum (p - q)+ q + (q - p)+ p)
  / (1 + TV). This is at most 2 TV / (1 + TV), with equality where the
  distributions differ only at values that one of them never takes.

  Args:
    probs: [K, m] probabilities.
  """
  p = _checked(probs)[:, None]
  q = p[:, 0][None]
  common = np.minimum(p, q)
  met = np.sum(common + (p - common) * q + (q - common) * p, -1)
  return 1 - met / np.sum(np.maximum(p, q), -1)


class Moments(NamedTuple):
  """Moments of the number d of records in which two coupled data sets differ.

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
  """Returns exact moments with records coupled one by one, d ~ Bin(n, t).

  Source: Lalanne (2023, Lemma 3.4.6).

  Args:
    disagreement: t, probability that one record differs.
    num_examples: n, the number of records.
    epsilon: >= 0.
  """
  t = _disagreement(disagreement, num_examples, epsilon)
  return Moments(
      num_examples * t,
      num_examples * t * (1 - t) + np.square(num_examples * t),
      np.exp(special.xlog1py(num_examples, t * np.expm1(-epsilon))))


def joint_moments(disagreement: np.ndarray, *, num_examples: int,
                  epsilon: float) -> Moments:
  """Returns moments with data sets coupled as a whole.

  In the worst case all n records differ, or none. E d and E d^2 are at most,
  and E e^(-epsilon d) at least, the returned numbers. Source: Lalanne (2023,
  Lemma 3.4.5).

  Args:
    disagreement: probability that the two data sets differ.
    num_examples: n, the number of records.
    epsilon: >= 0.
  """
  apart = _disagreement(disagreement, num_examples, epsilon)
  return Moments(num_examples * apart, num_examples**2 * apart,
                 1 + np.expm1(-num_examples * epsilon) * apart)


def _disagreement(value: np.ndarray | float, num_examples: int, epsilon: float
                  ) -> np.ndarray:
  """Checks the arguments and returns the probabilities as float64."""
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_non_negative('epsilon', epsilon)
  value = np.asarray(value, np.float64)
  if not ((value >= 0) & (value <= 1)).all():
    raise ValueError('disagreement must lie in [0, 1]')
  return value


def _checked(probs: np.ndarray) -> np.ndarray:
  """Checks probabilities [K, m] and returns them as float64."""
  probs = np.asarray(probs, np.float64)
  if probs.ndim != 2 or (probs < 0).any() or (
      np.abs(probs.sum(1) - 1) > 1e-9).any():
    raise ValueError('probs must be [K, m] probabilities, each row of sum 1')
  return probs
