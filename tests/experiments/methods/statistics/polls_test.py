"""These tests check polls: coverage, variances and dishonest answers."""

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.stats import intervals
from experiments.methods.statistics import polls

REPETITIONS = 20_000


def close(interval, truth, wanted):
  """Returns whether coverage is within 4 errors
  plus the normal limit's error."""
  covered = np.mean((np.asarray(interval.low) <= truth)
                    & (truth <= np.asarray(interval.high)))
  return abs(covered - wanted) < 0.003 + 4 * np.sqrt(
    wanted * (1 - wanted) / REPETITIONS)


@pytest.mark.slow
@pytest.mark.parametrize('truth, wanted', [
  (0.02, 0.950), (0.1, 0.949), (0.3, 0.950), (0.5, 0.948)])
@pytest.mark.parametrize('method', intervals.BINOMIAL)
@pytest.mark.parametrize('truth_prob', [0.75, 0.25])
def test_coverage_of_the_coin_flip_poll(truth, wanted, method, truth_prob):
  """Intervals of the coin-flip poll cover at n = 2000 (EST-01)."""
  rng = np.random.default_rng(1)
  seen = truth * truth_prob + (1 - truth) * (1 - truth_prob)
  yes = rng.binomial(2000, seen, REPETITIONS)
  estimate = polls.proportion(yes, 2000, truth_prob=truth_prob, method=method)
  assert close(estimate, truth, wanted)
  values = np.float64(estimate.value)
  spread = polls.variance(truth, 2000, truth_prob=truth_prob)
  assert abs(values.mean() - truth) < 4 * np.sqrt(spread / REPETITIONS)
  assert values.var() / spread == pytest.approx(1, abs=0.05)
  assert np.all((estimate.low >= 0) & (estimate.high <= 1))
  if truth == 0.02 and truth_prob == 0.75:
    # Estimates clipped before averaging would be biased.
    assert np.mean(values < 0) == pytest.approx(0.147, abs=0.01)


@pytest.mark.parametrize('truth_prob', [0.8, 0.3])
def test_answers_are_turned_into_a_proportion(truth_prob):
  """Answers and their ends map to p by seen = p (2 phi - 1) + 1 - phi."""
  for method in intervals.BINOMIAL:
    estimate = polls.proportion(430, 1000, truth_prob=truth_prob, method=method,
                                confidence=0.9)
    seen = intervals.binomial(jnp.float32(0.43), 1000, confidence=0.9,
                              method=method)
    back = [each * (2 * truth_prob - 1) + 1 - truth_prob for each in estimate]
    assert back[0] == pytest.approx(0.43, abs=1e-6)
    np.testing.assert_allclose(np.sort(back[1:]), [seen.low, seen.high],
                               atol=1e-5)
    assert estimate.low < estimate.value < estimate.high
  ends = polls.proportion(0, 20, truth_prob=truth_prob)
  # Without a yes most of those who answer truly mean no.
  assert (ends.low == 0) == (truth_prob > 0.5) != (ends.high == 1)
  with pytest.raises(ValueError, match='truth_prob must not be 1/2'):
    polls.proportion(3, 20, truth_prob=0.5)


def test_golden_variances():
  """n Var is 0.96 at phi = 0.75, p = 0.3, three
  quarters of it privacy (EST-01)."""
  assert polls.variance(0.3, 1, truth_prob=0.75) == pytest.approx(0.96)
  growth = np.exp(1.2)
  assert polls.variance(0.3, 7, truth_prob=growth / (1 + growth)) == (
    pytest.approx((0.21 + growth / (growth - 1)**2) / 7))


@pytest.mark.every(2)
@pytest.mark.parametrize('truth, other, people, others', [
  (0.1, 0.5, 2000, 2000), (0.3, 0.2, 1000, 5000), (0.05, 0.7, 5000, 500)])
def test_coverage_of_the_drowning_poll(truth, other, people, others):
  """Intervals of the drowning poll cover the truth (EST-02)."""
  rng = np.random.default_rng(2)
  yes = rng.binomial(people, truth + other - truth * other, REPETITIONS)
  harmless = rng.binomial(others, other, REPETITIONS)
  estimate = polls.proportion_drowned(
    yes, people, num_other_yes=harmless, num_other_examples=others)
  assert close(estimate, truth, 0.95)
  spread = polls.variance_drowned(truth, other, people, others)
  assert np.var(np.float64(estimate.value)) == pytest.approx(spread, rel=0.12)
  if others == 500:
    assert np.mean(estimate.value) - truth == pytest.approx(-0.0047, abs=2e-3)
  known = polls.proportion_forced(yes, people, yes_prob=other)
  assert close(known, truth, 0.95)
  assert np.mean(known.high - known.low) < np.mean(estimate.high - estimate.low)


@pytest.mark.every(1)
@pytest.mark.parametrize('call, message', [
  (lambda: polls.proportion(1, 2, truth_prob=0.5), 'must not be 1/2'),
  (lambda: polls.proportion(1, 2, truth_prob=1.0), 'truth_prob must lie'),
  (lambda: polls.proportion(1, 0, truth_prob=0.7), 'num_examples must be'),
  (lambda: polls.proportion_forced(1, 2, yes_prob=1.0), 'yes_prob must lie')])
def test_bad_input(call, message):
  with pytest.raises(ValueError, match=message):
    call()


def test_all_yes_or_no():
  for count in (0, 40):
    for estimate in (polls.proportion(count, 40, truth_prob=0.8),
                     polls.proportion_forced(count, 40, yes_prob=0.3),
                     polls.proportion_drowned(count, 40, num_other_yes=3,
                                              num_other_examples=9)):
      assert 0 <= estimate.low <= estimate.high <= 1
  nothing = polls.proportion_drowned(40, 40, num_other_yes=jnp.array([9, 3]),
                                     num_other_examples=9)
  assert np.isnan(nothing.value[0]) and not np.isnan(nothing.value[1])
  assert nothing.low[0] == 0 and nothing.high[0] == 1


def test_both_questions_must_be_answered_independently():
  """Both questions must be answered independently (L-E02).

  With equal answers nobody seems to have a secret.
  """
  estimate = polls.proportion_drowned(600, 2000, num_other_yes=600,
                                      num_other_examples=2000)
  assert estimate.value == 0 and estimate.high < 0.1  # It is 0.3.
  apart = polls.proportion_drowned(1020, 2000, num_other_yes=600,
                                   num_other_examples=2000)
  assert float(apart.value) == pytest.approx(0.3, abs=1e-6)
