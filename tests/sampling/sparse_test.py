"""Tests that batches drawn on the host are Poisson samples.

Every statistical threshold states its false-alarm probability.
"""

import hashlib
import tracemalloc

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.privacy import keys
from dpjax.sampling import binomial
from dpjax.sampling import poisson
from dpjax.sampling import PoissonSampler
from dpjax.sampling import sparse

_KEY = b'secret'
_MANY = 10**9


def _batches(size, threshold, count):
  return [sparse.draw(size, threshold, sparse.Words(_KEY, step))
          for step in range(count)]


# -- Few records: the joint distribution of all inclusions.


def _check_joint(size, threshold, count=6000):
  """Chi-square over all 2^size batches; false alarms have chance 1e-7."""
  prob = threshold / 2**32
  batches = _batches(size, threshold, count)
  for batch in batches:
    assert batch.dtype == np.int32 and (np.diff(batch) > 0).all()
  found = np.bincount([int(np.sum(1 << batch)) for batch in batches],
                      minlength=2**size)
  ones = np.array([bin(number).count('1') for number in range(2**size)])
  expected = count * prob**ones * (1 - prob)**(size - ones)
  # Batches that are seldom are counted together.
  rare = expected < 10
  cells = [*zip(found[~rare], expected[~rare], strict=True)]
  if expected[rare].sum() > 10:
    cells.append((found[rare].sum(), expected[rare].sum()))
  else:
    # At most 10 are expected; 40 or more have chance 1e-12.
    assert found[rare].sum() < 40
  found, expected = np.array(cells).T
  statistic = np.sum((found - expected)**2 / expected)
  assert stats.chi2.sf(statistic, len(cells) - 1) > 1e-7


_SMALL = [(1, 2**31), (2, 2**30), (5, 2**31), (5, 2**29), (5, 3 * 2**30),
          (6, 1717986918)]


@pytest.mark.sound
@pytest.mark.parametrize('size, threshold', _SMALL)
def test_all_batches_of_few_records_have_their_chance(size, threshold):
  _check_joint(size, threshold)


def test_probabilities_0_and_1():
  words = sparse.Words(_KEY, 0)
  assert sparse.draw(9, 2**32, words).tolist() == list(range(9))
  assert sparse.draw(9, 0, words).tolist() == []


# -- Many records.


def _check_many(batches, size, threshold):
  """Checks batches from many records; false alarms have chance 1e-6."""
  prob = threshold / 2**32
  for batch in batches:
    assert (np.diff(batch) > 0).all()
    assert not len(batch) or (batch[0] >= 0 and batch[-1] < size)
  sizes = np.array([len(batch) for batch in batches])
  law = stats.binom(size, prob)
  ends = law.ppf(np.linspace(0, 1, 21)[1:-1])
  _check_cells(np.searchsorted(ends, sizes), np.diff(
      [0, *law.cdf(ends), 1]))
  # Positions are uniform, and so are those of pairs, modulo a prime.
  numbers = np.concatenate(batches).astype(np.int64)
  _check_cells(numbers * 64 // size, np.full(64, 1 / 64))
  _check_cells(numbers % 61, np.full(61, 1 / 61))
  gaps = np.concatenate([np.diff(batch) for batch in batches if len(batch) > 1])
  pairs = numbers[1:] % 7 * 7 + numbers[:-1] % 7
  _check_cells(pairs[::2], np.full(49, 1 / 49))
  # The first number is the first success of independent trials.
  first = np.array([batch[0] for batch in batches if len(batch)])
  _check_cells(np.minimum(-np.expm1((first + 1) * np.log1p(-prob)) * 20,
                          19).astype(int), np.full(20, 1 / 20))
  # Gaps have the distribution of spacings: the mean is about 1 / prob.
  spread = 1 / (prob * len(gaps)**0.5)
  assert abs(gaps.mean() - 1 / prob * (1 - 1 / (prob * size))) < 6 * spread


def _check_cells(places, chances):
  """Chi-square; false alarms have chance 1e-7."""
  found = np.bincount(places, minlength=len(chances))
  expected = len(places) * np.asarray(chances)
  assert expected.min() > 10
  statistic = np.sum((found - expected)**2 / expected)
  assert stats.chi2.sf(statistic, len(chances) - 1) > 1e-7


_THRESHOLD = 550  # 128 of 10^9 records in the mean.


def test_batches_of_a_billion_records_are_poisson_samples():
  _check_many(_batches(_MANY, _THRESHOLD, 2000), _MANY, _THRESHOLD)


def test_all_pairs_of_records_are_as_often_together():
  """30 records, 5000 batches: z-scores of 435 pairs and of 30 records.

  |z| < 6 fails with chance 1e-6.
  """
  size, threshold, count = 30, 3 * 2**29, 5000
  prob = threshold / 2**32
  flags = np.zeros([count, size])
  for row, batch in zip(flags, _batches(size, threshold, count), strict=True):
    row[batch] = 1
  centred = (flags - prob) / (prob * (1 - prob))**0.5
  scores = centred.T @ centred / count**0.5
  np.fill_diagonal(scores, centred.sum(0) / count**0.5)
  assert np.abs(scores).max() < 6


_COUNT, _DISTINCT = binomial.draw, sparse.distinct


def _with_repeats(size, count, words):
  return np.sort(words.take(count) % np.uint32(size)).astype(np.int32)


def _in_order_of_size(size, count, words):
  """Keeps the least of the numbers that were drawn, not the first ones."""
  return np.unique(_DISTINCT(size, min(size, count + 1), words))[:count]


_FAULTS = {
    'two too many': (binomial, 'draw', lambda *args: _COUNT(*args) + 2),
    'never a large batch': (
        binomial, 'draw', lambda *args: min(_COUNT(*args), 130)),
    'always the mean': (binomial, 'draw', lambda *args: 128),
    'with repeats': (sparse, 'distinct', lambda size, count, words:
                     _with_repeats(2**10, count, words)),
    'the least numbers': (sparse, 'distinct', _in_order_of_size),
    'never the last records': (
        sparse, 'distinct', lambda size, count, words: _DISTINCT(
            size - size // 50, count, words)),
    'the same in each step': (
        sparse, 'distinct', lambda size, count, words: _DISTINCT(
            size, count, sparse.Words(_KEY, 0))),
}


@pytest.mark.parametrize('fault', _FAULTS)
def test_other_distributions_are_noticed(monkeypatch, fault):
  monkeypatch.setattr(*_FAULTS[fault])
  with pytest.raises(AssertionError):
    _check_many(_batches(_MANY, _THRESHOLD, 2000), _MANY, _THRESHOLD)


@pytest.mark.parametrize('fault', ['with repeats', 'the least numbers'])
def test_faults_of_small_sets_are_noticed(monkeypatch, fault):
  change = {'with repeats': _with_repeats,
            'the least numbers': _in_order_of_size}[fault]
  monkeypatch.setattr(sparse, 'distinct', change)
  with pytest.raises(AssertionError):
    _check_joint(5, 2**31)


# -- Words.


def test_words_are_those_of_shake_and_each_is_taken_once():
  words = sparse.Words(_KEY, 5)
  taken = [words.take(count) for count in (3, 0, 5000, 1)]
  content = b''.join(hashlib.shake_256(
      b'dpjax.sampling.sparse: words of one step' + (6).to_bytes(8, 'little') +
      _KEY + (5).to_bytes(8, 'little') + block.to_bytes(8, 'little')
  ).digest(2**14) for block in range(2))
  np.testing.assert_array_equal(np.concatenate(taken), np.frombuffer(
      content, '<u4')[:5004])


def test_other_keys_and_steps_have_other_words():
  streams = [sparse.Words(key, step).take(4).tolist() for key, step in (
      (b'a', 0), (b'a', 1), (b'b', 0), (b'a\0', 0), (b'', 0))]
  assert len(set(map(tuple, streams))) == 5


# -- The sampler.


def test_the_number_of_records_alone_says_where_batches_are_drawn():
  most = poisson.MOST_ON_DEVICE
  for size, on_host in ((3, False), (most, False), (most + 1, True),
                        (2**31 - 1, True)):
    for batch_size in (1, size / 2, size):
      sampler = PoissonSampler(num_examples=size, batch_size=batch_size)
      assert sampler.on_host == on_host


def test_the_sampler_draws_with_its_own_probability_from_its_key():
  sampler = PoissonSampler(num_examples=_MANY, batch_size=4096)
  key, = keys.system_keys(1)
  drawn = sampler.host_batch(key, 3)
  secret = np.asarray(jax.random.key_data(key)).tobytes()
  np.testing.assert_array_equal(drawn, sparse.draw(
      _MANY, round(sampler.sampling_prob * 2**32), sparse.Words(secret, 3)))
  # Within 7 standard deviations but for a chance of 3e-12.
  assert abs(len(drawn) - 4096) < 7 * 64
  assert len(np.intersect1d(drawn, sampler.host_batch(key, 4))) < 10


def test_the_batch_of_a_seed_stays_the_same():
  """A run that is resumed after an upgrade must see the same batches."""
  sampler = PoissonSampler(num_examples=_MANY, batch_size=4096)
  drawn = sampler.host_batch(jax.random.key(7), 11)
  digest = hashlib.sha256(drawn.astype('<i4').tobytes()).hexdigest()
  assert digest[:16] == '265d870ff7156799'


def test_a_draw_takes_memory_for_the_batch_only():
  """A table of n bits would take 125 MB."""
  sampler = PoissonSampler(num_examples=_MANY, batch_size=4096)
  key = jax.random.key(0)
  sampler.host_batch(key, 0)
  tracemalloc.start()
  for step in range(3):
    sampler.host_batch(key, step)
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert peak < 2**21


def test_too_many_records_are_refused():
  with pytest.raises(ValueError, match=r'below 2\^31 = 2147483648, because'):
    PoissonSampler(num_examples=2**31, batch_size=10)
