"""Local privacy for the upper end of a uniform distribution: no curator.

Estimates use either answers that each person made noisy, or statistical
queries. The largest noisy answer diverges with the number of people; twice the
mean does not. Source: lecture notes (chapter 7, Exercise 7.36; items EST-06 and
EST-07, erratum L-E15).
"""

import math

import jax.numpy as jnp

from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.laplace import LaplaceMechanism
from dpjax.stats.intervals import Estimate
from dpjax.typing import Array, PRNGKey
from experiments.methods.statistics import doubled_means
from experiments.methods.statistics import local_queries as queries


def local_answers(*, epsilon: float) -> LaplaceMechanism:
  """Returns the mechanism by which each person releases a number in [0, 1].

  The mechanism takes the number minus 1/2. It is epsilon-LDP: the vector of all
  answers, released as one, is epsilon-DP under REPLACE_ONE, where one
  coordinate changes by at most 1.
  """
  return LaplaceMechanism(record_norm=0.5, epsilon=epsilon,
                          adjacency=Adjacency.REPLACE_ONE)


def local_maximum(answers: Array) -> Array:
  """Returns the largest answer, which diverges with their number (EST-06a).

  Args:
    answers: [n], from `local_answers`.
  """
  return jnp.max(answers) + 0.5


def local_maximum_mean(theta: float, *, num_examples: int,
                       epsilon: float) -> float:
  """Returns the mean of `local_maximum` for large n.

  [ln(n M / 2) + 0.5772] / epsilon with M = (e^(epsilon theta) - 1) / (epsilon
  theta). The limit is a Gumbel distribution, whose standard deviation pi /
  (sqrt(6) epsilon) does not shrink.
  """
  growth = math.expm1(epsilon * theta) / (epsilon * theta)
  return (math.log(num_examples * growth / 2) + 0.5772156649) / epsilon


def local_doubled_mean(answers: Array, *, epsilon: float,
                       confidence: float = 0.95) -> Estimate:
  """Returns twice the mean answer, of risk theta^2 / (3 n) + 8 / (n epsilon^2).

  Args:
    answers: [n], from `local_answers`.
    epsilon: privacy budget of one answer.
    confidence: confidence level of the interval.
  """
  num_examples = answers.shape[0]
  return doubled_means.of_mean(jnp.mean(answers) + 0.5, num_examples,
                          8 / (num_examples * epsilon**2), confidence)


def local_doubled_mean_risk(theta: float, *, num_examples: int,
                            epsilon: float) -> float:
  """Returns the exact risk of `local_doubled_mean` (EST-06b)."""
  return (theta**2 / 3 + 8 / epsilon**2) / num_examples


def by_queries(oracle: queries.LocalOracle, key: PRNGKey,
               data: Array) -> Estimate:
  """Finds theta by bisection; each person answers one query (EST-06c, EST-07).

  Runs on the host, one query after the other. With probability 1 -
  `oracle.failure_prob` theta is in the interval, whatever n and theta are.

  Args:
    oracle: oracle with one query for each halving.
    key: random key of the answers.
    data: [n], at least `oracle.num_examples` records in [0, 1].
  """
  state = oracle.init(key, data)

  def ask(query: queries.Query) -> float:
    nonlocal state
    state, answer = oracle.ask(state, query)
    return float(answer)

  estimate = jnp.float32(queries.bisect_support(
      ask, num_queries=oracle.num_queries, tolerance=oracle.tolerance))
  last = 2.0**-(oracle.num_queries + 1)
  # The estimate is in theta [1 - 2 tau, 1], up to the last half interval.
  shrunk = 1 - 2 * oracle.tolerance
  high = (estimate + last) / shrunk if shrunk > 0 else jnp.ones_like(estimate)
  return Estimate(estimate, estimate - last, jnp.minimum(high, 1.0))


def by_one_query(answer: Array) -> Array:
  """Returns 2 E[x] from the answer to the query x -> x.

  It is off by at most twice the tolerance of the answer.
  """
  return 2 * answer
