"""Splits of record numbers into training and test part, in random order."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array
from dpjax.typing import PRNGKey


class Split(NamedTuple):
  """Disjoint record numbers.

  Attributes:
    train: [num_train] int32.
    test: [num_test] int32.
  """
  train: Array
  test: Array


def train_test_split(key: PRNGKey, num_examples: int, *,
                     test_fraction: float = 0.2) -> Split:
  """Splits the records by one random permutation.

  The sizes depend on the arguments alone, hence are static under jit:
  round(test_fraction * num_examples) records are for test.

  Args:
    key: for the permutation.
    num_examples: n, the number of records.
    test_fraction: share of the test part, strictly between 0 and 1.

  Returns:
    Record numbers that together are 0, ..., n - 1, each once.

  Raises:
    ValueError: if a part would be empty.

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
  """Keeps the publisher's parts, each in a random order of its own.

  A prefix of a part is then a uniform subsample of it, see `take`.

  Args:
    key: for the two permutations.
    num_train: rows 0, ..., num_train - 1 are for training.
    num_test: the rows after them, as many, are for test.

  Raises:
    ValueError: if a part would be empty.
  """
  errors.check_at_least('num_train', num_train, 1)
  errors.check_at_least('num_test', num_test, 1)
  train_key, test_key = jax.random.split(key)
  rows = jnp.arange(num_train + num_test, dtype=jnp.int32)
  return Split(train=jax.random.permutation(train_key, rows[:num_train]),
               test=jax.random.permutation(test_key, rows[num_train:]))


def take(split: Split, num_train: int) -> Split:
  """Keeps the first `num_train` training records and the whole test part.

  Since the order is random, this is a uniform subsample; smaller ones are
  contained in larger ones.

  Args:
    split: from `train_test_split` or `official_split`.
    num_train: number of training records to keep, at least 1.

  Raises:
    ValueError: if there are fewer than `num_train` training records.
  """
  errors.check_at_least('num_train', num_train, 1)
  available = split.train.shape[0]
  if num_train > available:
    raise ValueError(f'num_train must be at most {available}, the size of '
                     f'the training part, got {num_train}')
  return split._replace(train=split.train[:num_train])


def fold(split: Split, index: int, *, num_folds: int) -> Split:
  """One fold of the training part, for choosing what to train.

  The folds are `num_folds` equal, disjoint parts of `split.train`; fewer than
  `num_folds` records may be left out. Each record in use is validated by
  exactly one fold, so that the number of right answers over all folds changes
  by at most 1 with a record, apart from what the models learned from it. No
  record of `split.test` is in any.

  Args:
    split: from `train_test_split`.
    index: which fold to validate on, from 0.
    num_folds: at least 2.

  Returns:
    A split whose `test` is that fold and whose `train` all others.

  Raises:
    ValueError: no such fold, or fewer training records than folds.
  """
  errors.check_at_least('num_folds', num_folds, 2)
  errors.check_at_least('fold', index, 0)
  size = split.train.shape[0] // num_folds
  if index >= num_folds or not size:
    raise ValueError(f'fold must be below num_folds, at most the number of '
                     f'training records, got {index} of {num_folds}')
  folds = split.train[:size * num_folds].reshape(num_folds, size)
  others = jnp.concatenate([folds[:index], folds[index + 1:]])
  return Split(train=others.reshape(-1), test=folds[index])
