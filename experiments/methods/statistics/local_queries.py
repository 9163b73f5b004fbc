"""Statistical queries, answered by people under local privacy.

An SQ oracle answers with the mean of a query over a population, within a
tolerance, and may choose any such answer. People with local privacy can replace
it: every person answers one query, once, so many adaptive queries together cost
no more than one answer. Source: lecture notes (chapter 7, Proposition 7.35),
whose sample size misses a logarithm and constants (item SQ-01..03, erratum
L-E14).
"""

from collections.abc import Callable
import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import laplace
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey

Query = Callable[[Array], Array]
"""A query: records [m, ...] -> values [m] in [-1, 1], record by record."""

Ask = Callable[[Query], float]
"""An oracle: query -> answer."""

RANDOMIZERS = ('bernoulli', 'laplace')
_WORDS = 2**32
# More than the float64 rounding error of a product below 2^32, in words.
_SLACK = 1e-5


def exact_oracle(mean: Callable[[Query], float], *, tolerance: float,
                 perturbation: Callable[[int], float] = lambda number: 0.0
                 ) -> Ask:
  """Returns a STAT(tolerance) oracle for a known population (SQ-01).

  Args:
    mean: returns the expectation of a query over the population.
    tolerance: tau > 0, the largest error of an answer.
    perturbation: maps the number of the query, from 0, to the answer's error as
      a fraction of the tolerance, in [-1, 1]: the adversary. Common choices are
      constant 1 or -1, or signs drawn beforehand.
  """
  errors.check_positive('tolerance', tolerance)
  asked: list[Query] = []

  def ask(query: Query) -> float:
    fraction = perturbation(len(asked))
    if not -1 <= fraction <= 1:
      raise ValueError(f'perturbation must lie in [-1, 1], got {fraction}: it '
                       'is a fraction of the tolerance')
    asked.append(query)
    return float(mean(query)) + fraction * tolerance

  return ask


class OracleState(NamedTuple):
  """State of an oracle between two queries.

  Attributes:
    key: key of the remaining answers.
    records: [n, ...] records of the people, in the order in which they are
      asked.
    num_asked: queries so far, a plain integer.
  """
  key: PRNGKey
  records: Array
  num_asked: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalOracle:
  """Answers T adaptive queries, each by its own group of people.

  Guarantee: all answers together are epsilon-DP under REPLACE_ONE, in the
  sequentially interactive local model: each person answers once, and the answer
  may depend on earlier answers of others. With probability 1 - `failure_prob`
  over people drawn from the population and their random answers, all T answers
  are within `tolerance`.

  Attributes:
    num_queries: T, the number of queries.
    tolerance: tau, in (0, 1].
    failure_prob: beta, in (0, 1).
    epsilon: budget of one person's answer, in (0, 20].
    randomizer: 'bernoulli' answers with one of two numbers, and needs 4 to 17
      times fewer people than 'laplace', which adds noise.
  """
  num_queries: int
  tolerance: float
  failure_prob: float
  epsilon: float
  randomizer: str = 'bernoulli'

  def __post_init__(self):
    errors.check_at_least('num_queries', self.num_queries, 1)
    errors.check_probability('tolerance', self.tolerance)
    errors.check_open_unit('failure_prob', self.failure_prob)
    errors.check_positive('epsilon', self.epsilon)
    if self.epsilon > 20:
      raise ValueError(f'epsilon must be at most 20, got {self.epsilon}')
    errors.check_choice('randomizer', self.randomizer, RANDOMIZERS)

  @property
  def adjacency(self) -> Adjacency:
    """Returns REPLACE_ONE, because one person's data changes."""
    return Adjacency.REPLACE_ONE

  @property
  def event(self) -> accounting.DpEvent:
    """Returns the privacy cost of all answers; each person gives one."""
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)

  @property
  def batch_size(self) -> int:
    """Returns m, the people for a query, by Hoeffding's inequality (SQ-02)."""
    if self.randomizer == 'bernoulli':
      return math.ceil(2 * (_size(self.epsilon) / self.tolerance)**2
                       * math.log(2 * self.num_queries / self.failure_prob))
    return math.ceil(8 / self.tolerance**2 * max(1.0, 16 / self.epsilon**2)
                     * math.log(4 * self.num_queries / self.failure_prob))

  @property
  def num_examples(self) -> int:
    """Returns the number n = T m of people needed."""
    return self.num_queries * self.batch_size

  def init(self, key: PRNGKey, records: Array) -> OracleState:
    """Returns the state before the first query.

    Args:
      key: key of all answers.
      records: [n, ...], at least `num_examples`; people are asked in random
        order.
    """
    if records.shape[0] < self.num_examples:
      raise ValueError(f'{self.num_queries} queries need {self.num_examples} '
                       f'people, there are {records.shape[0]}')
    order, key = jax.random.split(key)
    chosen = jax.random.permutation(order, records.shape[0])
    return OracleState(key, records[chosen[:self.num_examples]], 0)

  def ask(self, state: OracleState, query: Query) -> tuple[OracleState, Array]:
    """Returns the next state and the answer to a query, a float32 scalar.

    Values of the query are clipped to [-1, 1], and NaN becomes 0, so each
    person's answer is private for every query.

    Raises:
      ValueError: at query number T + 1, when everybody has answered; or for a
        query that does not return one value for each person, since people would
        then answer several times.
    """
    if state.num_asked >= self.num_queries:
      raise ValueError(f'all {self.num_queries} queries are answered; '
                       'everybody answers once')
    size = self.batch_size
    people = state.records[state.num_asked * size:][:size]
    draw, key = jax.random.split(state.key)
    values = query(people)
    if values.shape != (size,):
      raise ValueError(f'a query must have one value for each of {size} people,'
                       f' got an array of shape {values.shape}')
    # Clipping alone would keep NaN, and a NaN answer would reveal itself.
    values = jnp.nan_to_num(values.astype(jnp.float32))
    values = jnp.clip(values, -1.0, 1.0)
    answer = jnp.mean(self.randomize(draw, values))
    return OracleState(key, state.records, state.num_asked + 1), answer

  def randomize(self, key: PRNGKey, values: Array) -> Array:
    """Returns unbiased private answers [m] to values [m] in [-1, 1], float32.
    """
    if self.randomizer == 'laplace':
      return laplace.add_laplace_noise(key, values, 2 / self.epsilon)
    size = _size(self.epsilon)
    least = self.least_words
    # The answer is +size with probability 1/2 + value / (2 size), else -size.
    wanted = (0.5 + values / (2 * size)) * jnp.float32(_WORDS)
    # The largest float32 number below 2^32, which would overflow.
    most = min(_WORDS - least, _WORDS - 256)
    words = jnp.clip(wanted, jnp.float32(least),
                     jnp.float32(most)).astype(jnp.uint32)
    # The ends of the range, rounded to float32, may lie outside of it.
    words = jnp.clip(words, jnp.uint32(least), jnp.uint32(_WORDS - least))
    positive = additive.random_words(key, values.shape) < words
    return jnp.where(positive, jnp.float32(size), jnp.float32(-size))

  @property
  def least_words(self) -> int:
    """Returns how many of 2^32 words give the rarer answer, for any value."""
    return math.ceil(_WORDS / (math.exp(self.epsilon) + 1) + _SLACK)


def _size(epsilon: float) -> float:
  """Returns (e^epsilon + 1) / (e^epsilon - 1), the magnitude of an answer."""
  return 1 / math.tanh(epsilon / 2)


def bisect_support(ask: Ask, *, num_queries: int, tolerance: float) -> float:
  """Estimates theta of a uniform distribution on [0, theta], theta <= 1.

  Asks the queries 1{x >= u}. For every oracle within the tolerance, the error
  lies in [-2 tolerance theta - 2^-(T + 1), 2^-(T + 1)]. Source: lecture notes
  (chapter 7, Exercise 7.36; item SQ-03).

  Args:
    ask: the oracle.
    num_queries: T, the number of queries.
    tolerance: tau, of the oracle.

  Returns:
    An estimate of theta in (0, 1).
  """
  errors.check_at_least('num_queries', num_queries, 1)
  errors.check_positive('tolerance', tolerance)
  low, high = 0.0, 1.0
  for _ in range(num_queries):
    middle = (low + high) / 2
    answer = ask(lambda x, u=middle: (x >= u).astype(jnp.float32))
    low, high = (middle, high) if answer > tolerance else (low, middle)
  return (low + high) / 2
