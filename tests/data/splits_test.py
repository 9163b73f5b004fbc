"""Tests dpjax.data.splits."""

import collections
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.data import splits


@pytest.mark.slow
@pytest.mark.parametrize('num_examples, test_fraction, num_test', [
  (10, 0.2, 2), (569, 0.2, 114), (1000, 0.25, 250), (2, 0.5, 1), (7, 0.1, 1)])
def test_parts_are_a_partition(num_examples, test_fraction, num_test):
  split = splits.train_test_split(
    jax.random.key(0), num_examples, test_fraction=test_fraction)
  assert split.test.shape == (num_test,)
  assert split.train.dtype == split.test.dtype == jnp.int32
  together = np.concatenate([split.train, split.test])
  np.testing.assert_array_equal(np.sort(together), np.arange(num_examples))


def test_key_decides():
  first, again, other = (
    splits.train_test_split(jax.random.key(seed), 100) for seed in (1, 1, 2))
  assert (first.train.size, first.test.size) == (80, 20)
  np.testing.assert_array_equal(first.test, again.test)
  assert not np.array_equal(first.test, other.test)


@pytest.mark.every(2)
def test_each_record_is_tested_equally_often():
  keys = jax.random.split(jax.random.key(3), 4000)
  tested = jax.vmap(
    lambda key: splits.train_test_split(key, 10, test_fraction=0.3).test)(keys)
  counts = np.bincount(np.ravel(tested), minlength=10)
  # Binomial(4000, 0.3) per record: standard deviation 29; 6 of them leave a
  # false alarm below 1e-7 over the ten records.
  assert np.abs(counts - 1200).max() < 174


@pytest.mark.slow
def test_jit_has_static_sizes():
  split = jax.jit(lambda key: splits.train_test_split(key, 50))(
    jax.random.key(0))
  expected = splits.train_test_split(jax.random.key(0), 50)
  np.testing.assert_array_equal(split.train, expected.train)


@pytest.mark.slow
def test_official_split_keeps_the_parts():
  split = splits.official_split(jax.random.key(0), num_train=40, num_test=9)
  assert split.train.dtype == split.test.dtype == jnp.int32
  np.testing.assert_array_equal(np.sort(split.train), np.arange(40))
  np.testing.assert_array_equal(np.sort(split.test), np.arange(40, 49))
  # Each part has a random order of its own.
  assert not np.array_equal(split.train, np.arange(40))
  same = splits.official_split(jax.random.key(1), num_train=9, num_test=9)
  assert not np.array_equal(same.train, same.test - 9)
  other = splits.official_split(jax.random.key(1), num_train=40, num_test=9)
  assert not np.array_equal(split.train, other.train)
  np.testing.assert_array_equal(
    splits.take(split, 5).train, split.train[:5])


def test_take_keeps_a_prefix_and_the_test_part():
  split = splits.train_test_split(jax.random.key(0), 20)
  small = splits.take(split, 5)
  np.testing.assert_array_equal(small.train, split.train[:5])
  np.testing.assert_array_equal(small.test, split.test)
  assert splits.take(split, 16).train.shape == (16,)


def test_errors():
  key = jax.random.key(0)
  with pytest.raises(ValueError, match='strictly between 0 and 1, got 1.0'):
    splits.train_test_split(key, 10, test_fraction=1.0)
  with pytest.raises(ValueError, match='0.01 of 10 examples leaves one part'):
    splits.train_test_split(key, 10, test_fraction=0.01)
  with pytest.raises(ValueError, match='num_examples must be an integer >= 2'):
    splits.train_test_split(key, 1)
  split = splits.train_test_split(key, 10)
  with pytest.raises(ValueError, match='num_train must be at most 8.*got 9'):
    splits.take(split, 9)
  with pytest.raises(ValueError, match='num_train must be an integer >= 1'):
    splits.take(split, 0)
  with pytest.raises(ValueError, match='num_train must be an integer >= 1'):
    splits.official_split(key, num_train=0, num_test=1)
  with pytest.raises(ValueError, match='num_test must be an integer >= 1'):
    splits.official_split(key, num_train=1, num_test=0)


@pytest.mark.every(2)
def test_folds_validate_each_training_record_once():
  """Folds validate each training record once and never use held-out records."""
  split = splits.train_test_split(jax.random.key(0), 103)
  folds = [splits.fold(split, index, num_folds=4) for index in range(4)]
  for each in folds:
    assert each.train.shape == (60,) and each.test.shape == (20,)
    together = np.concatenate([each.train, each.test])
    assert len(set(together.tolist())) == 80
    assert not set(together.tolist()) & set(split.test.tolist())
  validated = np.concatenate([each.test for each in folds])
  np.testing.assert_array_equal(validated, split.train[:80])


@pytest.mark.parametrize('index, num_folds, message', [
  (4, 4, 'fold must be below num_folds'), (-1, 4, 'fold must be an integer'),
  (0, 1, 'num_folds must be an integer >= 2'), (0, 9, 'at most the number')])
def test_folds_that_are_not_there(index, num_folds, message):
  split = splits.train_test_split(jax.random.key(0), 10)
  with pytest.raises(ValueError, match=message):
    splits.fold(split, index, num_folds=num_folds)


_SIZES = (*range(1, 40), 63, 64, 65, 127, 128, 129, 1023, 1024, 1025, 10_007)


def test_permutations_have_each_number_once():
  for size in _SIZES:
    order = splits.Permutation(seed=3, size=size)
    numbers = order(np.arange(size))
    assert numbers.dtype == np.int64
    np.testing.assert_array_equal(np.sort(numbers), np.arange(size))
    np.testing.assert_array_equal(order.inverse(numbers), np.arange(size))


def test_a_permutation_of_billions_has_no_array_of_them():
  order = splits.Permutation(seed=0, size=2**31 - 1)
  places = np.array([0, 1, 2**31 - 2, 10**9])
  numbers = order(places)
  np.testing.assert_array_equal(order.inverse(numbers), places)
  # The numbers of one place at a time are those of all at once.
  np.testing.assert_array_equal(
    [order(places[i:i + 1])[0] for i in range(4)], numbers)
  other = splits.Permutation(seed=1, size=2**31 - 1)
  assert not (other(places) == numbers).any()
  with pytest.raises(ValueError, match='numbers must be from 0 to 4'):
    splits.Permutation(seed=0, size=5)(np.array([5]))


def _assert_uniform(counts, num_cells):
  """Checks counts by a chi-square test; false alarms are below 1e-6.

  The bound is that of Laurent and Massart (2000), Lemma 1, at exp(-16) ~ 1e-7.
  The counts are of many draws, so that their statistic is chi-square.
  """
  expected = sum(counts.values()) / num_cells
  assert expected >= 40 and len(counts) <= num_cells
  statistic = sum((count - expected)**2 for count in counts.values()
                  ) / expected + (num_cells - len(counts)) * expected
  free = num_cells - 1
  assert statistic < free + 2 * math.sqrt(16 * free) + 32, statistic


@pytest.mark.slow
def test_permutations_are_uniform():
  """All permutations of few numbers, and two places of many numbers."""
  for size in (2, 3, 4, 5):
    _assert_uniform(collections.Counter(
      tuple(splits.Permutation(seed=seed, size=size)(np.arange(size)).tolist())
      for seed in range(6000)), math.factorial(size))
  for size in (10, 1000):
    pairs = [splits.Permutation(seed=seed, size=size)(
      np.array([0, size // 2])) for seed in range(6000)]
    _assert_uniform(collections.Counter(
      tuple((pair * 10 // size).tolist()) for pair in pairs),
                    90 if size == 10 else 100)
  # Neighbours within one permutation are not near each other either.
  numbers = splits.Permutation(seed=7, size=10**6)(np.arange(20_000))
  cells = (numbers // 10**5).tolist()
  _assert_uniform(collections.Counter(zip(cells[::2], cells[1::2])), 100)


@pytest.mark.parametrize('num_examples, num_test', [
  (10, 0), (103, 0), (103, 23), (2, 1)])
def test_numbered_splits_are_partitions(num_examples, num_test):
  split = splits.numbered_split(4, num_examples, num_test=num_test,
                                test_fraction=0.3)
  size = num_test or round(0.3 * num_examples)
  assert (split.num_train, len(split.test)) == (num_examples - size, size)
  numbers = np.arange(num_examples)
  test = numbers[split.is_test(numbers)]
  train = split.train(np.arange(split.num_train))
  assert len(test) == size
  np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), numbers)
  if num_test:  # Of the publisher.
    np.testing.assert_array_equal(test, numbers[-num_test:])
  np.testing.assert_array_equal(
    split.take(1).train(np.array([0])), train[:1])
  if num_examples > 10:
    other = splits.numbered_split(5, num_examples, num_test=num_test)
    assert (other.train(np.arange(9)) != train[:9]).any()
    assert (train != np.sort(train)).any()


@pytest.mark.parametrize('num_test', [0, 20])
def test_numbered_folds_validate_each_training_record_once(num_test):
  split = splits.numbered_split(0, 103, num_test=num_test)
  numbers, folds = np.arange(103), []
  train = split.train(np.arange(split.num_train))
  for index in range(4):
    each = split.fold(index, num_folds=4)
    validated = numbers[each.is_test(numbers)]
    trained = each.train(np.arange(each.num_train))
    together = np.concatenate([trained, validated])
    assert len(trained) == 60 and len(validated) == 20
    assert sorted(together.tolist()) == sorted(train[:80].tolist())
    folds.append(validated)
  assert sorted(np.concatenate(folds).tolist()) == sorted(train[:80].tolist())


def test_numbered_splits_that_are_not_there():
  split = splits.numbered_split(0, 10)
  with pytest.raises(ValueError, match='num_train must be at most 8.*got 9'):
    split.take(9)
  with pytest.raises(ValueError, match='fold must be below num_folds'):
    split.fold(4, num_folds=4)
  with pytest.raises(ValueError, match='0.01 of 10 examples leaves one part'):
    splits.numbered_split(0, 10, test_fraction=0.01)
  with pytest.raises(ValueError, match='num_train must be an integer >= 1'):
    splits.numbered_split(0, 10, num_test=10)
