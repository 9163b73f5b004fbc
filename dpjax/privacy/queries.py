"""Statistical queries, and answers to them by people who trust nobody.

An SQ oracle answers with the mean of a query over a population, within a
tolerance, and may choose any such answer. A crowd with local privacy can stand
in for it: every person answers one query, once, so that each of many adaptive
queries costs as much as one. Source: lecture 002, Proposition 7.35, whose
sample size misses a logarithm and constants (item SQ-01..03, erratum L-E14).
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
"""Records [m, ...] -> values [m] in [-1, 1], record by record."""

Ask = Callable[[Query], float]
"""An oracle in use: a query -> its answer."""

RANDOMIZERS = ('bernoulli', 'laplace')
_WORDS = 2**32
# What float64 may make too much of a product below 2^32, in words.
_SLACK = 1e-5


def exact_oracle(mean: Callable[[Query], float], *, tolerance: float,
                 perturbation: Callable[[int], float] = lambda number: 0.0
                 ) -> Ask:
  """A STAT(tolerance) oracle of a known population (SQ-01).

  Args:
    mean: the expectation of a query.
    tolerance: tau > 0.
    perturbation: number of the query, from 0 -> in [-1, 1], the share of the
      tolerance by which the answer is off: an adversary. Constant 1 and -1, or
      signs drawn beforehand, are the usual ones.
  """
  errors.check_positive('tolerance', tolerance)
  asked = []

  def ask(query: Query) -> float:
    share = perturbation(len(asked))
    if not -1 <= share <= 1:
      raise ValueError(f'an answer may be off by the tolerance, not by {share} '
                       'times it')
    asked.append(query)
    return float(mean(query)) + share * tolerance

  return ask


class OracleState(NamedTuple):
  """How far an oracle is.

  Attributes:
    key: for the answers to come.
    records: [n, ...] of the people, in the order in which they are asked.
    num_asked: queries so far, a plain integer.
  """
  key: PRNGKey
  records: Array
  num_asked: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalOracle:
  """Answers T adaptive queries, each by a batch of people of its own.

  Guarantee: epsilon-DP under REPLACE_ONE of everything that is said, in the
  sequentially interactive local model: a person's one answer may depend on what
  others said before. With probability 1 - `failure_prob` over people drawn from
  the population and their coins, all T answers are within `tolerance`.

  Attributes:
    num_queries: T.
    tolerance: tau, in (0, 1].
    failure_prob: beta, in (0, 1).
    epsilon: of one person's answer, in (0, 20].
    randomizer: 'bernoulli' answers one of two numbers, and needs 4 to 17 times
      fewer people than 'laplace', which adds noise.
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
    """One person answers for another."""
    return Adjacency.REPLACE_ONE

  @property
  def event(self) -> accounting.DpEvent:
    """What all answers together cost: each person gives one."""
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)

  @property
  def batch_size(self) -> int:
    """m: people asked for one answer (SQ-02); by Hoeffding's inequality."""
    if self.randomizer == 'bernoulli':
      return math.ceil(2 * (_size(self.epsilon) / self.tolerance)**2
                       * math.log(2 * self.num_queries / self.failure_prob))
    return math.ceil(8 / self.tolerance**2 * max(1.0, 16 / self.epsilon**2)
                     * math.log(4 * self.num_queries / self.failure_prob))

  @property
  def num_examples(self) -> int:
    """n = T m: people needed."""
    return self.num_queries * self.batch_size

  def init(self, key: PRNGKey, records: Array) -> OracleState:
    """Before the first query.

    Args:
      key: of all answers.
      records: [n, ...], at least `num_examples`; they are asked in an order
        drawn at random.
    """
    if records.shape[0] < self.num_examples:
      raise ValueError(f'{self.num_queries} queries need {self.num_examples} '
                       f'people, there are {records.shape[0]}')
    order, key = jax.random.split(key)
    chosen = jax.random.permutation(order, records.shape[0])
    return OracleState(key, records[chosen[:self.num_examples]], 0)

  def ask(self, state: OracleState, query: Query) -> tuple[OracleState, Array]:
    """(the state after it, the answer).

    Values of the query are clipped to [-1, 1], what is not a number is 0: what
    a person says is as private whatever is asked.

    Raises:
      ValueError: at the query number T + 1, since everybody has answered; or
        for a query that has not one value for each person, who would answer
        several times.
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
    values = jnp.nan_to_num(values.astype(jnp.float32))
    values = jnp.clip(values, -1.0, 1.0)
    answer = jnp.mean(self.randomize(draw, values))
    return OracleState(key, state.records, state.num_asked + 1), answer

  def randomize(self, key: PRNGKey, values: Array) -> Array:
    """What people say whose values [m] are in [-1, 1]; unbiased, float32."""
    if self.randomizer == 'laplace':
      return laplace.add_laplace_noise(key, values, 2 / self.epsilon)
    size = _size(self.epsilon)
    least = self.least_words
    wanted = (0.5 + values / (2 * size)) * jnp.float32(_WORDS)
    # The largest float32 number below 2^32, which would overflow.
    most = min(_WORDS - least, _WORDS - 256)
    words = jnp.clip(wanted, jnp.float32(least),
                     jnp.float32(most)).astype(jnp.uint32)
    # Rounding to float32 may leave the range again.
    words = jnp.clip(words, jnp.uint32(least), jnp.uint32(_WORDS - least))
    said = additive.random_words(key, values.shape) < words
    return jnp.where(said, jnp.float32(size), jnp.float32(-size))

  @property
  def least_words(self) -> int:
    """Of 2^32 words, those that make the rarer answer, for any value."""
    return math.ceil(_WORDS / (math.exp(self.epsilon) + 1) + _SLACK)


def _size(epsilon: float) -> float:
  """Of the two numbers that are said: (e^epsilon + 1) / (e^epsilon - 1)."""
  return 1 / math.tanh(epsilon / 2)


def bisect_support(ask: Ask, *, num_queries: int, tolerance: float) -> float:
  """The upper end theta of a uniform distribution on [0, theta], theta <= 1.

  By queries 1{x >= u}. For every oracle within the tolerance the error lies in
  [-2 tolerance theta - 2^-(T + 1), 2^-(T + 1)]. Source: lecture 002, Exercise
  7.36 (item SQ-03).

  Args:
    ask: the oracle.
    num_queries: T.
    tolerance: tau, of the oracle.
  """
  errors.check_at_least('num_queries', num_queries, 1)
  errors.check_positive('tolerance', tolerance)
  low, high = 0.0, 1.0
  for _ in range(num_queries):
    middle = (low + high) / 2
    answer = ask(lambda x, u=middle: (x >= u).astype(jnp.float32))
    low, high = (middle, high) if answer > tolerance else (low, middle)
  return (low + high) / 2
