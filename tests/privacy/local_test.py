"""Tests local privacy: exact matrices, exact words, samplers and estimates."""

import fractions
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import divergences
from dpjax.privacy import local
from dpjax.privacy import mechanism
from dpjax.privacy.adjacency import Adjacency
from experiments.methods.mechanisms import forced_response

KEY = jax.random.key(0)
WORDS = 2**32
CASES = [(2, 0.1), (2, math.log(3)), (3, 1.0), (5, 1.0), (10, 0.5), (16, 4.0),
         (1000, 2.0), (65536, 8.0)]


@pytest.mark.parametrize('categories, epsilon', CASES)
def test_the_matrix_is_that_of_the_definition(categories, epsilon):
  """Answers are forced truths with probability 1 - K p,
  else uniform (LDP-05)."""
  mechanism = local.RandomizedResponse(num_categories=categories,
                                       epsilon=epsilon)
  uniform = categories / (categories + math.exp(epsilon) - 1)
  assert mechanism.other_prob == pytest.approx(uniform / categories, rel=1e-12)
  assert mechanism.truth_prob == pytest.approx(
    1 - uniform + uniform / categories, rel=1e-9)
  if categories <= 1000:
    assert forced_response.epsilon_of_matrix(mechanism.matrix) == pytest.approx(
      epsilon, rel=1e-12)


@pytest.mark.parametrize('categories, epsilon', CASES)
def test_realised_ratios_are_within_epsilon(categories, epsilon):
  """Exact ratios over all words are within epsilon, and nearly attain it."""
  mechanism = local.RandomizedResponse(num_categories=categories,
                                       epsilon=epsilon)
  forced = mechanism.forced_words
  # Each category has the words with floor(w K / 2^32) = z.
  starts = [-(-z * WORDS // categories) for z in range(categories + 1)]
  least = min(b - a for a, b in itertools.pairwise(starts))
  ratio = 1 + fractions.Fraction(forced * WORDS, (WORDS - forced) * least)
  assert 0 < forced and ratio <= math.exp(epsilon)
  assert float(ratio) == pytest.approx(math.exp(epsilon), rel=1e-5)


@pytest.mark.parametrize('categories', [2, 3, 10, 1000, 65536])
def test_categories_are_products_of_words(categories):
  words = np.concatenate([
    np.random.default_rng(0).integers(0, WORDS, 10**4, np.uint64),
    np.array([0, 1, WORDS - 1, WORDS // categories, WORDS // categories + 1],
             np.uint64)])
  chosen = local._category(jnp.asarray(words.astype(np.uint32)), categories)
  np.testing.assert_array_equal(chosen, words * categories // WORDS)


@pytest.mark.every(3)
@pytest.mark.parametrize('categories, epsilon', CASES[:6])
def test_answers_have_the_law_of_the_matrix(categories, epsilon):
  """Answers pass chi-square in each row; one run in 10^5 fails by chance."""
  mechanism = local.RandomizedResponse(num_categories=categories,
                                       epsilon=epsilon)
  for number, truth in enumerate((0, categories - 1)):
    answers = jax.jit(mechanism.release)(jax.random.fold_in(KEY, number),
                                         jnp.full([200_000], truth))
    counts = np.bincount(answers, minlength=categories)
    test = stats.chisquare(counts, 200_000 * mechanism.matrix[truth])
    assert test.pvalue > 1e-5


def test_answers_of_different_people_are_independent():
  mechanism = local.RandomizedResponse(num_categories=2, epsilon=1.0)
  truths = jnp.asarray(np.arange(100_000) % 2)
  lies = np.asarray(mechanism.release(KEY, truths) != truths, float)
  for lag in (1, 2, 50_000):
    assert abs(np.corrcoef(lies[lag:], lies[:-lag])[0, 1]) < 5 / 200
  again = mechanism.release(jax.random.key(1), truths) != truths
  assert abs(np.corrcoef(lies, again)[0, 1]) < 5 / 300


@pytest.mark.parametrize('categories, epsilon', [(2, 1.0), (3, 0.5)])
@pytest.mark.parametrize('people', [1, 2, 3])
def test_local_privacy_is_privacy_under_replacement(categories, epsilon,
                                                    people):
  """Neighbouring data sets' answers differ by epsilon, enumerated (LDP-06)."""
  mechanism = local.RandomizedResponse(num_categories=categories,
                                       epsilon=epsilon)
  assert mechanism.adjacency is Adjacency.REPLACE_ONE
  distributions = {}
  for truths in itertools.product(range(categories), repeat=people):
    probs = np.ones(1)
    for truth in truths:
      probs = np.outer(probs, mechanism.matrix[truth]).ravel()
    distributions[truths] = probs
  for one, other in itertools.permutations(distributions, 2):
    if sum(a != b for a, b in zip(one, other, strict=True)) == 1:
      assert divergences.max_divergence(
          distributions[one], distributions[other]) == (pytest.approx(epsilon))


@pytest.mark.parametrize('categories, epsilon', [(2, 1.0), (5, 1.0), (10, 2.)])
def test_the_event_is_that_of_the_mechanism(categories, epsilon):
  """The event has the curve (e^eps - e^t) / (e^eps + K - 1) (DEF-03), and
  four uses cost four times as much (ACC-02.1)."""
  randomizer = local.RandomizedResponse(num_categories=categories,
                                        epsilon=epsilon)
  for t in (0.0, 0.5 * epsilon):
    wanted = (math.exp(epsilon) - math.exp(t)) / (
      math.exp(epsilon) + categories - 1)
    assert accounting.delta_for(
      randomizer.event, target_epsilon=t, adjacency=randomizer.adjacency) == (
        pytest.approx(wanted, rel=1e-3))
  one = mechanism.epsilon(randomizer, delta=1e-9)
  assert one == pytest.approx(epsilon, abs=2e-4)
  four = accounting.epsilon(accounting.repeated_event(randomizer.event, 4),
                            delta=1e-9, adjacency=randomizer.adjacency)
  assert four == pytest.approx(4 * epsilon, abs=1e-3)


@pytest.mark.parametrize('categories, epsilon, wanted, printed', [
  (2, math.log(3), 0.75, None), (5, 1.0, 2.460543, 5.264671),
  (10, 0.5, 26.626916, 37.800777)])
def test_golden_variances(categories, epsilon, wanted, printed):
  """Variances match the golden values at frequency 0.3 (LDP-07)."""
  mechanism = local.RandomizedResponse(num_categories=categories,
                                       epsilon=epsilon)
  assert mechanism.variance(0.3, 1) == pytest.approx(wanted, rel=1e-6)
  if printed is not None:
    assert mechanism.variance_printed(1) == pytest.approx(printed, rel=1e-6)
  assert mechanism.variance_printed(7) >= mechanism.variance(1.0, 7)


def _mechanisms():
  return [local.RandomizedResponse(num_categories=5, epsilon=1.0),
          local.UnaryEncoding(num_categories=5, epsilon=1.0),
          local.UnaryEncoding(num_categories=5, epsilon=1.0, symmetric=True)]


@pytest.mark.every(3)
@pytest.mark.parametrize('randomizer', _mechanisms(), ids=str)
def test_estimates_are_unbiased_of_the_stated_variance(randomizer):
  """Estimates are unbiased with the stated variance, to 5 standard errors."""
  counts, repetitions = np.array([300, 0, 100, 50, 50]), 4000
  truths = jnp.asarray(np.repeat(np.arange(5), counts))
  estimate = lambda key: randomizer.frequencies(randomizer.release(key, truths))
  estimates = np.asarray(jax.jit(jax.vmap(estimate))(
    jax.random.split(KEY, repetitions)), float)
  wanted = counts / 500
  variances = np.array([randomizer.variance(h, 500) for h in wanted])
  errors = np.abs(estimates.mean(0) - wanted) / np.sqrt(variances / repetitions)
  assert errors.max() < 5
  ratios = estimates.var(0, ddof=1) / variances
  assert np.abs(ratios - 1).max() < 5 * math.sqrt(2 / repetitions)
  assert isinstance(randomizer, mechanism.Mechanism)


@pytest.mark.parametrize('epsilon', [0.05, 1.0, 5.0, 20.0])
@pytest.mark.parametrize('symmetric', [True, False])
def test_unary_bits_are_within_epsilon(epsilon, symmetric):
  """A changed category changes two bits, within epsilon in exact arithmetic."""
  mechanism = local.UnaryEncoding(num_categories=4, epsilon=epsilon,
                                  symmetric=symmetric)
  own, other = mechanism.threshold_words
  assert 0 < other < own < WORDS
  worst = fractions.Fraction(own, other) * fractions.Fraction(
    WORDS - other, WORDS - own)
  assert worst <= math.exp(epsilon)
  if epsilon < 15:
    assert float(worst) == pytest.approx(math.exp(epsilon), rel=1e-3)


def test_unary_is_better_for_many_categories_only():
  for categories, better in ((5, False), (100, True)):
    unary, direct = (kind(num_categories=categories, epsilon=1.0).variance(
      0.0, 1) for kind in (local.UnaryEncoding, local.RandomizedResponse))
    assert (unary < direct) == better


def test_polls():
  """Two coins have epsilon ln 3, and conversions invert (LDP-02, EST-03)."""
  assert forced_response.epsilon_of_truth_prob(0.75) == pytest.approx(math.log(3))
  assert forced_response.epsilon_of_truth_prob(0.25) == pytest.approx(math.log(3))
  assert forced_response.epsilon_of_truth_prob(0.5) == 0
  assert forced_response.epsilon_of_truth_prob(0) == math.inf
  assert forced_response.epsilon_of_truth_prob(1) == math.inf
  assert local.truth_prob_of_epsilon(math.log(3)) == pytest.approx(0.75)
  assert local.truth_prob_of_epsilon(0.0) == 0.5


@pytest.mark.parametrize('yes_prob', [0.25, *(
  pytest.param(each, marks=pytest.mark.slow) for each in (0.5, 0.9))])
def test_a_forced_yes_has_no_epsilon(yes_prob):
  """A forced yes has delta 1 - q at every epsilon (LDP-03, LDP-04)."""
  mechanism = forced_response.ForcedYes(yes_prob=yes_prob)
  no, yes = mechanism.matrix
  assert forced_response.epsilon_of_matrix(mechanism.matrix) == math.inf
  assert mechanism.guarantee.epsilon == 0
  assert mechanism.adjacency is Adjacency.REPLACE_ONE
  for epsilon in (0.0, 1.0, 30.0):
    assert divergences.hockey_stick(no, yes, epsilon=epsilon) == (
      pytest.approx(mechanism.guarantee.delta))
    assert divergences.hockey_stick(yes, no, epsilon=epsilon) <= (
      mechanism.guarantee.delta + 1e-12)
  assert mechanism.epsilon_of_yes == pytest.approx(math.log(1 / yes_prob))
  answers = mechanism.release(KEY, jnp.asarray([0] * 100_000 + [1] * 100))
  assert np.all(np.asarray(answers[100_000:]) == 1)
  share = np.mean(answers[:100_000])
  assert abs(share - yes_prob) < 5 * 0.5 / 300


@pytest.mark.every(2)
@pytest.mark.parametrize('yes_prob', [1e-12, 1 / 3, 0.7, 1 - 1e-9])
def test_a_forced_yes_is_rounded_towards_privacy(yes_prob):
  """Forced words are rounded towards privacy, by exact arithmetic."""
  mechanism = forced_response.ForcedYes(yes_prob=yes_prob)
  no = 1 - fractions.Fraction(mechanism.forced_words, WORDS)
  assert 0 < no <= 1 - fractions.Fraction(yes_prob)
  assert no <= fractions.Fraction(mechanism.guarantee.delta) * (1 + 2**-50)
  assert 1 - fractions.Fraction(yes_prob) - no < fractions.Fraction(1, WORDS)


def test_truths_that_are_none_give_no_answers_of_their_own():
  """A record outside the categories is answered like one inside."""
  truths = jnp.asarray([-7, 5, 2**30] * 1000)
  mechanism = local.RandomizedResponse(num_categories=3, epsilon=2.0)
  answers = np.asarray(mechanism.release(KEY, truths)).reshape(-1, 3)
  assert answers.min() == 0 and answers.max() == 2
  np.testing.assert_array_equal(
      answers,
      np.reshape(mechanism.release(KEY, jnp.clip(truths, 0, 2)), (-1, 3)))
  forced = forced_response.ForcedYes(yes_prob=0.3).release(KEY, truths)
  assert np.all(np.asarray(forced) == 1)


@pytest.mark.parametrize('make, message', [
  (lambda: local.RandomizedResponse(num_categories=1, epsilon=1.0),
   'num_categories must be an integer >= 2'),
  (lambda: local.RandomizedResponse(num_categories=2**17, epsilon=1.0),
   'at most 65536'),
  (lambda: local.RandomizedResponse(num_categories=2, epsilon=0.0),
   'epsilon must be a positive'),
  (lambda: local.RandomizedResponse(num_categories=2, epsilon=30.0),
   'epsilon must be at most 20'),
  (lambda: local.UnaryEncoding(num_categories=2, epsilon=-1.0),
   'epsilon must be a positive'),
  (lambda: local.UnaryEncoding(num_categories=2, epsilon=20.1),
   'epsilon must be at most 20'),
  (lambda: local.UnaryEncoding(num_categories=1, epsilon=1.0),
   'num_categories must be an integer >= 2'),
  (lambda: forced_response.epsilon_of_matrix(np.array([[1.5, -0.5], [0.5, 0.5]])),
   'sum to 1'),
  (lambda: forced_response.epsilon_of_matrix(np.ones(1)), 'sum to 1'),
  (lambda: forced_response.ForcedYes(yes_prob=1.0), 'yes_prob must lie strictly'),
  (lambda: forced_response.ForcedYes(yes_prob=1 - 1e-10), r'must be at most 1 - 2\^-32'),
  (lambda: forced_response.epsilon_of_truth_prob(1.5), 'truth_prob must lie in'),
  (lambda: forced_response.epsilon_of_matrix(np.ones((2, 2))), 'sum to 1'),
])
def test_bad_input_is_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()


@pytest.mark.every(2)
@pytest.mark.parametrize('fault', [
  lambda key, shape: additive.random_words(key, shape) // 2,
  lambda key, shape: jnp.broadcast_to(
    additive.random_words(key, shape[1:])[None], shape)])
def test_planted_faults_are_found(monkeypatch, fault):
  """Halved words, or one word for both decisions, fail the chi-square test."""
  mechanism = local.RandomizedResponse(num_categories=5, epsilon=1.0)
  monkeypatch.setattr(local, 'additive', type('patched', (), {
    'random_words': staticmethod(fault)}))
  counts = np.bincount(mechanism.release(KEY, jnp.zeros([200_000], jnp.int32)),
                       minlength=5)
  assert stats.chisquare(counts, 200_000 * mechanism.matrix[0]).pvalue < 1e-5
