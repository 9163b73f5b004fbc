"""Tests that binomial numbers are drawn exactly: by enumeration of words."""

import collections
from fractions import Fraction
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpjax.sampling import binomial


def _probabilities(size, prob):
  return [math.comb(size, k) * prob**k * (1 - prob)**(size - k)
          for k in range(size + 1)]


def _masses(size, successes, outcomes, word_bits, num_words):
  """Returns (exact probability of each result, that of needing more words)."""
  masses, undecided = collections.Counter(), [()]
  for length in range(1, num_words + 1):
    longer = []
    for prefix in undecided:
      for word in range(2**word_bits):
        words = *prefix, word
        left = iter(words)
        try:
          result = binomial.draw(size, successes, outcomes, left.__next__,
                                 word_bits=word_bits)
        except StopIteration:
          longer.append(words)
          continue
        # It took all words, or a shorter prefix would have been decided.
        assert next(left, None) is None
        masses[result] += Fraction(1, 2**(word_bits * length))
    undecided = longer
  return masses, Fraction(len(undecided), 2**(word_bits * num_words))


def _check(size, successes, outcomes, word_bits=2, num_words=7):
  masses, rest = _masses(size, successes, outcomes, word_bits, num_words)
  assert set(masses) <= set(range(size + 1))
  # Words are undecided next to a value of the distribution function, and at 1.
  assert rest <= Fraction(2 * (size + 1), 2**(word_bits * num_words))
  exact = _probabilities(size, Fraction(successes, outcomes))
  for count, probability in enumerate(exact):
    assert masses[count] <= probability <= masses[count] + rest


_CASES = [(size, successes, outcomes) for size in (1, 2, 3, 5, 9)
          for successes, outcomes in ((1, 2), (1, 4), (5, 16), (11, 16),
                                      (1, 2**32), (2**31 + 12345, 2**32))]


@pytest.mark.sound
def test_all_words_together_have_the_binomial_distribution():
  """All sequences of words are enumerated, with fractions, so no chance."""
  for case in _CASES:
    _check(*case)
  for word_bits in (1, 3, 5):
    _check(4, 3, 8, word_bits, 15 // word_bits)


@pytest.mark.parametrize('fault', ['mode', 'error', 'order', 'ratio'])
def test_faults_of_the_table_are_noticed(monkeypatch, fault):
  table = binomial._table

  def faulty(size, successes, outcomes, bits):
    if fault == 'ratio':
      return table(size, successes, outcomes + 1, bits)
    right = table(size, successes, outcomes, bits)
    if fault == 'mode':
      return right._replace(first=right.first + 1)
    if fault == 'order':
      weights = [high - low for low, high in itertools.pairwise(
          [0, *right.sums])]
      return right._replace(sums=[*itertools.accumulate(weights[::-1])])
    # Without its error the table decides where rounding decides.
    return right._replace(error=0, sums=[value >> bits - 6
                                         for value in right.sums])

  monkeypatch.setattr(binomial, '_table', faulty)
  with pytest.raises(AssertionError):
    _check(5, 5, 16)


def test_bounds_of_the_table_hold_exactly():
  for size, successes in ((1, 1), (7, 2**31), (40, 17), (40, 2**30),
                          (300, 2**32 - 5), (300, 3 * 2**28)):
    for bits in (10, 60, 112):
      first, sums, error = binomial._table(size, successes, 2**32, bits)
      exact = _probabilities(size, Fraction(successes, 2**32))
      below = sum(exact[:first], Fraction(0))
      for place, lower in enumerate(sums):
        below += exact[first + place]
        assert Fraction(lower, sums[-1] + error) <= below
        assert below <= Fraction(lower + error, sums[-1])


@pytest.mark.parametrize('size, successes', [
    (10**9, 4296), (10**9, 2**31), (2**31 - 1, 2**20), (5 * 10**6, 4)])
def test_large_tables_agree_with_scipy(size, successes):
  """To 1e-9, which is the accuracy of the reference; both tails are there."""
  first, sums, error = binomial._table(size, successes, 2**32, 112)
  assert error < 2**42 and len(sums) < 2**20
  places = np.linspace(0, len(sums) - 1, 50).astype(int)
  found = np.array([sums[place] / sums[-1] for place in places])
  law = stats.binom(size, successes / 2**32)
  np.testing.assert_allclose(found, law.cdf(first + places), atol=1e-9)
  assert law.cdf(first - 1) < 1e-30 and law.sf(first + len(sums) - 1) < 1e-30


def test_one_word_is_nearly_always_enough():
  rng, used = np.random.default_rng(0), []

  def word():
    used.append(1)
    return int(rng.integers(2**64, dtype=np.uint64))

  counts = [binomial.draw(10**9, 17592, 2**32, word) for _ in range(2000)]
  assert len(used) == 2000
  # The mean of 2000 counts is within 6 standard deviations: 2e-9.
  mean = 10**9 * 17592 / 2**32
  assert abs(np.mean(counts) - mean) < 6 * (mean / 2000)**0.5
