"""Computes the fixed point of Algorithm 8, which divides by a batch maximum.

It shows erratum E19 to Barczewski (2025, Theorem 5.2.3). The model has one
weight and no intercept, and the loss is 0.5 (theta x - y)^2. There are two
kinds of records: (x, y) = (1, 0), and (10, 10) with proportion p. The
least-squares solution is 100 p / (1 + 99 p). Algorithm 8 divides the gradients
of a batch by its largest |x|, so a batch without large records counts ten times
as much, and the mean of its update is not proportional to the gradient of the
objective.

Given the batch, the update is linear in theta, and so is its mean. The fixed
point is therefore a ratio of two sums over the compositions of a batch.
Dividing each record's gradient by its own |x| is, at any batch size, the same
as batches of one record.

The division does no harm only where residuals are unrelated to inputs: in
`regression`, E e = 0 for every x makes (a, b) a fixed point for any divisor
that depends on x alone.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from dpjax import errors
from dpjax.typing import PRNGKey

_SMALL, _LARGE = 1.0, 10.0


class Compositions(NamedTuple):
  """The possible numbers of small and large records in a batch.

  Attributes:
    small: counts of records with x = 1, [k].
    large: counts of records with x = 10, [k].
    probability: probability of each pair of counts, [k]; sums to 1.
  """
  small: np.ndarray
  large: np.ndarray
  probability: np.ndarray


def with_replacement(batch_size: int, share: float) -> Compositions:
  """Returns compositions of batches of one size, drawn with replacement."""
  errors.check_at_least('batch_size', batch_size, 1)
  errors.check_open_unit('share', share)
  large = np.arange(batch_size + 1)
  return Compositions(batch_size - large, large,
                      stats.binom.pmf(large, batch_size, share))


def poisson(num_small: int, num_large: int,
            sampling_prob: float) -> Compositions:
  """Returns compositions of nonempty Poisson batches.

  Algorithm 8 draws again while the batch is empty.
  """
  pairs = np.mgrid[:num_small + 1, :num_large + 1].reshape(2, -1)
  small, large = pairs[:, 1:]  # the first pair is the empty batch
  probability = (stats.binom.pmf(small, num_small, sampling_prob) *
                 stats.binom.pmf(large, num_large, sampling_prob))
  return Compositions(small, large, probability / probability.sum())


def least_squares(share: float) -> float:
  """Returns the theta that minimises the objective, by least squares."""
  return 100 * share / (1 + 99 * share)


def fixed_point(batches: Compositions) -> float:
  """Returns theta at which the mean update (1 / (|V| X)) sum_i grad_i is 0."""
  curvature, level = _coefficients(batches.small, batches.large)
  weights = batches.probability
  return float(weights @ level / (weights @ curvature))


def _coefficients(small, large):
  """Returns A and B, each [k], of a batch's noiseless update A theta - B."""
  size = small + large
  divisor = size * np.where(large > 0, _LARGE, _SMALL)
  return ((small * _SMALL**2 + large * _LARGE**2) / divisor,
          large * _LARGE * _LARGE / divisor)


def simulate(key: PRNGKey, *, batch_size: int, share: float,
             num_steps: int, num_runs: int) -> np.ndarray:
  """Simulates Algorithm 8 without noise; returns mean theta [num_runs].

  With a constant step the update is linear in theta with coefficients drawn
  anew, so that the stationary mean of theta is the fixed point exactly.

  Args:
    key: key of the batches.
    batch_size: number of records of a batch, drawn with replacement.
    share: proportion of large records, in [0, 1].
    num_steps: number of steps; the first half is left out of the mean.
    num_runs: number of independent runs.
  """

  def step(theta, key):
    large = jax.random.bernoulli(key, share, (num_runs, batch_size))
    x = jnp.where(large, _LARGE, _SMALL)
    residual = theta[:, None] * x - jnp.where(large, _LARGE, 0.0)
    scaled = jnp.sum(residual * x, 1) / jnp.max(x, 1)
    theta = theta - 0.02 * scaled / batch_size
    return theta, theta

  keys = jax.random.split(key, num_steps)
  path = jax.jit(lambda keys: jax.lax.scan(
      step, jnp.zeros([num_runs], jnp.float32), keys)[1])(keys)
  return np.asarray(path, np.float64)[num_steps // 2:].mean(0)
