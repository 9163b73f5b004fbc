"""Random splits of record numbers into a training and a test part."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array, PRNGKey


class Split(NamedTuple):
  """Disjoint record numbers for training and for test.

  Attributes:
    train: record numbers [num_train] int32.
    test: record numbers [num_test] int32.
  """
  train: Array
  test: Array


def train_test_split(key: PRNGKey, num_examples: int, *,
                     test_fraction: float = 0.2) -> Split:
  """Splits the records by one random permutation.

  The test part has round(test_fraction * num_examples) records, a size that is
  static under jit.

  Args:
    key: random key of the permutation.
    num_examples: n, the number of records, at least 2.
    test_fraction: fraction of records for test, strictly between 0 and 1.

  Returns:
    A split that contains each of 0, ..., n - 1 once.

  Raises:
    ValueError: a part would be empty.

  Examples:
    >>> from dpjax.data import splits
    >>> # Public: the split.
    >>> split = splits.train_test_split(jax.random.key(0), 569)
    >>> split.train.size, split.test.size
    (455, 114)
  """
  errors.check_at_least('num_examples', num_examples, 2)
  errors.check_open_unit('test_fraction', test_fraction)
  num_test = round(test_fraction * num_examples)
  if not 0 < num_test < num_examples:
    raise ValueError(f'test_fraction {test_fraction} of {num_examples} '
                     f'examples leaves one part empty')
  order = jax.random.permutation(
    key, jnp.arange(num_examples, dtype=jnp.int32))
  num_train = num_examples - num_test
  return Split(train=order[:num_train], test=order[num_train:])


def official_split(key: PRNGKey, *, num_train: int, num_test: int) -> Split:
  """Returns the publisher's split, with each part in random order.

  Args:
    key: random key of the two permutations.
    num_train: rows 0, ..., num_train - 1 are for training.
    num_test: the next num_test rows are for test.

  Raises:
    ValueError: a part would be empty.
  """
  errors.check_at_least('num_train', num_train, 1)
  errors.check_at_least('num_test', num_test, 1)
  train_key, test_key = jax.random.split(key)
  rows = jnp.arange(num_train + num_test, dtype=jnp.int32)
  return Split(train=jax.random.permutation(train_key, rows[:num_train]),
               test=jax.random.permutation(test_key, rows[num_train:]))


def take(split: Split, num_train: int) -> Split:
  """Keeps the first `num_train` training records and the whole test part.

  Since the order is random, this is a uniform subsample. Smaller subsamples
  are contained in larger ones.

  Args:
    split: from `train_test_split` or `official_split`.
    num_train: number of training records to keep, at least 1.

  Raises:
    ValueError: there are fewer than `num_train` training records.
  """
  errors.check_at_least('num_train', num_train, 1)
  available = split.train.shape[0]
  if num_train > available:
    raise ValueError(f'num_train must be at most {available}, the size of '
                     f'the training part, got {num_train}')
  return split._replace(train=split.train[:num_train])


def fold(split: Split, index: int, *, num_folds: int) -> Split:
  """Returns one cross-validation split of the training part.

  The folds are `num_folds` equal, disjoint parts of `split.train`; fewer than
  `num_folds` records are left out. As a record is in at most one fold, it
  changes the number of correct predictions of fixed models, over all folds, by
  at most 1.

  Args:
    split: from `train_test_split`.
    index: number of the validation fold, from 0.
    num_folds: number of folds, at least 2.

  Returns:
    A split whose `test` is that fold and whose `train` is all other folds.

  Raises:
    ValueError: there is no such fold, or fewer training records than folds.
  """
  errors.check_at_least('num_folds', num_folds, 2)
  errors.check_at_least('fold', index, 0)
  size = split.train.shape[0] // num_folds
  if index >= num_folds or not size:
    raise ValueError('fold must be below num_folds, and num_folds at most the '
                     f'number of training records, got {index} of {num_folds}')
  # Folds of equal size let one compiled program train all of them.
  folds = split.train[:size * num_folds].reshape(num_folds, size)
  others = jnp.concatenate([folds[:index], folds[index + 1:]])
  return Split(train=others.reshape(-1), test=folds[index])
