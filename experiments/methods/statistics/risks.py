"""Measures risks by Monte Carlo, and bounds their gap to empirical risks.

Source: Lalanne (2023, section 0.3; item INT-05).
"""

from collections.abc import Callable
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array, PRNGKey, PyTree


class Risk(NamedTuple):
  """The mean of a cost over independent repetitions, with its standard error.

  Attributes:
    mean: mean cost.
    standard_error: standard error of that mean, estimated from the same
      repetitions.
  """
  mean: Array
  standard_error: Array


def monte_carlo(cost: Callable[[PyTree], Array],
                estimator: Callable[[PRNGKey, Array], PyTree],
                sampler: Callable[[PRNGKey], Array], *, key: PRNGKey,
                num_repetitions: int, batch_size: int = 256) -> Risk:
  """Estimates the mean cost of an estimator over data and its noise; jittable.

  Args:
    cost: maps an estimate to a scalar, or to an array of costs that are
      averaged separately.
    estimator: (key, data) -> an estimate.
    sampler: key -> data.
    key: random key of all repetitions.
    num_repetitions: number of repetitions, at least 2.
    batch_size: number of repetitions computed at once.
  """
  errors.check_at_least('num_repetitions', num_repetitions, 2)

  def once(key: PRNGKey) -> Array:
    data_key, estimator_key = jax.random.split(key)
    return jnp.asarray(cost(estimator(estimator_key, sampler(data_key))),
                       jnp.float32)

  keys = jax.random.split(key, num_repetitions)
  costs = jax.lax.map(once, keys, batch_size=min(batch_size, num_repetitions))
  return Risk(jnp.mean(costs, 0),
              jnp.std(costs, 0, ddof=1) / math.sqrt(num_repetitions))


def empirical_risk(loss: Callable[[PyTree, Array], Array], prediction: PyTree,
                   data: Array) -> Array:
  """Returns R_n, the mean of `loss(prediction, record)` over records [n, ...].
  """
  return jnp.mean(jax.vmap(lambda record: loss(prediction, record))(data))


def gap_bound(*, epsilon: float, delta: float = 0.0) -> float:
  """Bounds the mean of a private learner's risk minus its empirical risk.

  e^epsilon - 1 + delta, for losses in [0, 1] and a learner that is (epsilon,
  delta)-DP under REPLACE_ONE: E R <= e^epsilon E R_n + delta, and E R_n <= 1.
  """
  errors.check_non_negative('epsilon', epsilon)
  if not 0 <= delta < 1:
    raise ValueError(f'delta must lie in [0, 1), got {delta}')
  return math.expm1(epsilon) + delta
