"""These tests check local queries: privacy, failure rates and bisection."""

import fractions
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import mechanism
from dpjax.privacy.adjacency import Adjacency
from experiments.methods.statistics import local_queries as queries
from experiments.methods.statistics.local_queries import LocalOracle

KEY = jax.random.key(0)
WORDS = 2**32


def _oracle(**changes):
  return LocalOracle(**{'num_queries': 20, 'tolerance': 0.1,
                        'failure_prob': 0.05, 'epsilon': 1.0, **changes})


@pytest.mark.parametrize('epsilon, noise, coins', [
  (0.5, 377742, 22288), (1.0, 94436, 6261), (2.0, 23609, 2305)])
def test_golden_batch_sizes(epsilon, noise, coins):
  """Batch sizes have their golden values (SQ-02).

  The tolerance is 0.1, the failure probability 0.05, with 20 queries.
  """
  assert _oracle(epsilon=epsilon, randomizer='laplace').batch_size == noise
  assert _oracle(epsilon=epsilon).batch_size == coins
  assert _oracle(epsilon=epsilon).num_examples == 20 * coins


@pytest.mark.parametrize('epsilon', [0.01, 0.5, 1.0, 5.0, 20.0])
def test_ratios_of_what_is_said_are_within_epsilon(epsilon):
  """Probabilities of an answer differ by at most e^epsilon, in exact words."""
  least = _oracle(epsilon=epsilon).least_words
  ratio = fractions.Fraction(WORDS - least, least)
  assert 1 < ratio <= math.exp(epsilon)
  if epsilon < 12:
    assert float(ratio) == pytest.approx(math.exp(epsilon), rel=1e-4)


@pytest.mark.every(3)
@pytest.mark.parametrize('epsilon', [0.5, 2.0])
def test_coins_are_unbiased_and_of_the_stated_distribution(epsilon):
  oracle = _oracle(epsilon=epsilon)
  size = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
  for number, value in enumerate((-1.0, -0.3, 0.0, 0.8, 1.0)):
    said = np.asarray(oracle.randomize(jax.random.fold_in(KEY, number),
                                       jnp.full([200_000], value)))
    assert set(np.unique(said)) == {np.float32(-size), np.float32(size)}
    test = stats.binomtest(int((said > 0).sum()), said.size,
                           0.5 + value / (2 * size))
    assert test.pvalue > 1e-5


def test_noise_is_of_the_stated_scale():
  oracle = _oracle(randomizer='laplace', epsilon=0.5)
  said = np.asarray(oracle.randomize(KEY, jnp.full([50_000], 0.25)))
  assert stats.kstest(said - 0.25, stats.laplace(scale=4).cdf).pvalue > 1e-5


def _failures(oracle, runs, size=None):
  """Returns how often one answer is off by more than the tolerance."""
  size = size or oracle.batch_size

  def off(key):
    draw, coins = jax.random.split(key)
    people = jax.random.bernoulli(draw, 0.3, (size,)).astype(jnp.float32)
    said = jnp.mean(oracle.randomize(coins, people))
    return jnp.abs(said - 0.3) > oracle.tolerance

  return float(jnp.mean(jax.lax.map(off, jax.random.split(KEY, runs),
                                    batch_size=50)))


@pytest.mark.slow
@pytest.mark.parametrize('randomizer', queries.RANDOMIZERS)
def test_answers_fail_as_rarely_as_stated(randomizer):
  """Answers fail at most once in 400; the
  printed size fails over half (L-E14)."""
  oracle = _oracle(randomizer=randomizer, epsilon=2.0)
  assert _failures(oracle, 2000) <= 0.05 / 20
  printed = round(1 / (oracle.epsilon * oracle.tolerance)**2)
  assert _failures(oracle, 2000, size=printed) > 0.5


@pytest.mark.slow
def test_adaptive_queries_are_answered_and_no_more():
  oracle = _oracle(num_queries=8, tolerance=0.2, epsilon=2.0)
  people = 0.7 * jax.random.uniform(KEY, (oracle.num_examples + 5,))
  state = [oracle.init(jax.random.key(1), people)]

  def ask(query):
    state[0], answer = oracle.ask(state[0], query)
    return float(answer)

  support = queries.bisect_support(ask, num_queries=8, tolerance=0.2)
  assert -2 * 0.2 * 0.7 - 2**-9 - 0.01 <= support - 0.7 <= 2**-9 + 0.01
  with pytest.raises(ValueError, match='all 8 queries are answered'):
    ask(lambda x: x)
  assert isinstance(mechanism.epsilon(oracle, delta=1e-9), float)
  with pytest.raises(ValueError, match='need .* people, there are 10'):
    oracle.init(KEY, people[:10])


@pytest.mark.parametrize('epsilon', [.5, 1.0, 2.0, 3.3, 5.0, 8.1])
@pytest.mark.every(1)
def test_rounding_makes_no_answer_rarer_than_stated(monkeypatch, epsilon):
  """Rounding makes no answer rarer than stated, at either end."""
  oracle = _oracle(epsilon=epsilon)
  for value, word, sign in ((-1., oracle.least_words - 1, 1),
                            (1., WORDS - oracle.least_words, -1)):
    monkeypatch.setattr(
        queries.additive, 'random_words',
        lambda key, shape, word=word: jnp.full(shape, word, jnp.uint32))
    assert sign * float(oracle.randomize(KEY, jnp.full(1, value))[0]) > 0


def test_everybody_answers_once():
  """Nobody answers twice: surplus queries and short lists are refused."""
  oracle = _oracle(num_queries=3, tolerance=1.0, epsilon=4.0)
  # Each person gives one answer and no other information.
  assert oracle.adjacency is Adjacency.REPLACE_ONE
  assert mechanism.epsilon(oracle, delta=1e-9) == pytest.approx(4, abs=1e-3)
  people = jnp.arange(oracle.num_examples, dtype=jnp.float32)
  with pytest.raises(ValueError, match=f'need {people.size} people, there are '
                     f'{people.size - 1}'):
    oracle.init(KEY, people[1:])
  state, seen = oracle.init(KEY, people), []
  for _ in range(3):
    state, _ = oracle.ask(state, lambda x: (seen.append(np.asarray(x)), x)[1])
  np.testing.assert_array_equal(np.sort(np.concatenate(seen)), people)
  with pytest.raises(ValueError, match='all 3 queries are answered'):
    oracle.ask(state, lambda x: x)


@pytest.mark.every(2)
@pytest.mark.parametrize('randomizer', queries.RANDOMIZERS)
def test_values_outside_and_no_values_are_as_private(randomizer):
  oracle = _oracle(num_queries=1, tolerance=0.5, randomizer=randomizer)
  state = oracle.init(KEY, jnp.zeros([oracle.num_examples]))
  for value, wanted in ((7.0, 1.0), (-jnp.inf, -1.0), (jnp.nan, 0.0)):
    _, answer = oracle.ask(state, lambda x, v=value: jnp.full(x.shape, v))
    assert abs(float(answer) - wanted) < 0.5


@pytest.mark.parametrize('tolerance', [0.01, 0.1, 0.3])
@pytest.mark.parametrize('adversary', ['up', 'down', 'random', 'truth'])
def test_bisection_holds_for_every_adversary(tolerance, adversary):
  """Bisection finds the support within tolerance for every adversary (SQ-03).

  A linear query is within 2 tau.
  """
  rng = np.random.default_rng(3)
  share = {'up': lambda number: 1.0, 'down': lambda number: -1.0,
           'random': lambda number: rng.uniform(-1, 1),
           'truth': lambda number: 0.0}[adversary]
  grid = (np.arange(20_001) + 0.5) / 20_001
  for theta in (0.05, 0.4, 0.73, 1.0):
    mean = lambda query, theta=theta: np.mean(query(jnp.asarray(
      theta * grid, jnp.float32)))
    ask = queries.exact_oracle(mean, tolerance=tolerance, perturbation=share)
    support = queries.bisect_support(ask, num_queries=12, tolerance=tolerance)
    assert (-2 * tolerance * theta - 2**-13 - 1e-4 <= support - theta
            <= 2**-13 + 1e-4)
    assert abs(2 * ask(lambda x: x) - theta) <= 2 * tolerance + 1e-6


@pytest.mark.parametrize('changes, message', [
  (dict(epsilon=0.0), 'epsilon must be a positive'),
  (dict(epsilon=21.0), 'epsilon must be at most 20'),
  (dict(tolerance=0.0), 'tolerance must lie in'),
  (dict(failure_prob=1.0), 'failure_prob must lie strictly'),
  (dict(num_queries=0), 'num_queries must be an integer >= 1'),
  (dict(randomizer='gauss'), 'randomizer must be one of'),
])
def test_bad_input_is_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    _oracle(**changes)


def test_an_oracle_keeps_to_its_tolerance():
  ask = queries.exact_oracle(lambda query: 0.0, tolerance=0.1,
                             perturbation=lambda number: 1.5)
  with pytest.raises(ValueError, match='perturbation must lie in'):
    ask(lambda x: x)
