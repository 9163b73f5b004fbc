"""Random splits of record numbers into a training and a test part.

`Split` holds the record numbers as arrays. `NumberedSplit` computes them when
they are asked for, so its memory does not grow with the number of records.
"""

import dataclasses
import functools
import hashlib
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.typing import Array, PRNGKey

# With 8 rounds, the permutations of 5 numbers are visibly not uniform.
_ROUNDS = 24


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
  num_test = _num_test(num_examples, test_fraction)
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
  _check_num_train(num_train, split.train.shape[0])
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
  size = _fold_size(split.train.shape[0], index, num_folds)
  # Folds of equal size let one compiled program train all of them.
  folds = split.train[:size * num_folds].reshape(num_folds, size)
  others = jnp.concatenate([folds[:index], folds[index + 1:]])
  return Split(train=others.reshape(-1), test=folds[index])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Permutation:
  """A pseudo-random permutation of 0, ..., n - 1, computed number by number.

  A number is a pair of digits, of base a and b with a b >= n. In each round,
  a keyed function of one digit is added to the other digit, which can be taken
  back; so all rounds together are a permutation of the pairs. A result of n or
  more is permuted again until it is below n. Source: Black and Rogaway (2002),
  the cycle-walking and the generalized Feistel cipher.

  The permutation is public: it makes a split look random, and hides nothing.

  Attributes:
    seed: public seed.
    size: n, at least 1.

  Examples:
    >>> import numpy as np
    >>> from dpjax.data import splits
    >>> order = splits.Permutation(seed=0, size=10**9)
    >>> numbers = order(np.arange(3))
    >>> order.inverse(numbers)
    array([0, 1, 2])
  """
  seed: int
  size: int

  def __post_init__(self) -> None:
    errors.check_seed('seed', self.seed)
    errors.check_at_least('size', self.size, 1)

  @functools.cached_property
  def _bases(self) -> tuple[np.uint64, np.uint64]:
    first = math.isqrt(self.size - 1) + 1
    return np.uint64(first), np.uint64(-(-self.size // first))

  @functools.cached_property
  def _keys(self) -> list[np.uint64]:
    """Returns a key for each round, from the seed and the size."""
    return [np.uint64(int.from_bytes(hashlib.sha256(
        f'{self.seed} {self.size} {number}'.encode()).digest()[:8], 'little'))
            for number in range(_ROUNDS)]

  def __call__(self, places: np.ndarray) -> np.ndarray:
    """Returns the numbers [k] int64 at places [k], integers below the size."""
    return self._walk(places, forward=True)

  def inverse(self, numbers: np.ndarray) -> np.ndarray:
    """Returns the places [k] int64 of numbers [k], integers below the size."""
    return self._walk(numbers, forward=False)

  def _walk(self, numbers: np.ndarray, *, forward: bool) -> np.ndarray:
    """Permutes pairs of digits until all numbers are below the size."""
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < self.size:
      raise ValueError(f'numbers must be from 0 to {self.size - 1}')
    walked = self._permuted(numbers.astype(np.uint64), forward)
    while (outside := walked >= self.size).any():
      walked[outside] = self._permuted(walked[outside], forward)
    return walked.astype(np.int64)

  def _permuted(self, numbers: np.ndarray, forward: bool) -> np.ndarray:
    """Permutes the a b pairs of digits; see the class."""
    digits = list(np.divmod(numbers, self._bases[1]))
    rounds = range(_ROUNDS)
    for number in rounds if forward else reversed(rounds):
      place = number % 2
      base = self._bases[place]
      shift = _mixed(digits[1 - place] + self._keys[number]) % base
      digits[place] = (digits[place] + (
          shift if forward else base - shift)) % base
    return digits[0] * self._bases[1] + digits[1]


class NumberedSplit(NamedTuple):
  """A split of n records whose numbers are computed when they are asked for.

  The records are put in an order. The test part is a range of places in it, and
  the training part are the first `num_train` places that are not for test.

  Attributes:
    order: order of the first records; any others keep their places at the end.
    num_train: number of training records.
    test: places of the test part.
  """
  order: Permutation
  num_train: int
  test: range

  def train(self, indices: np.ndarray) -> np.ndarray:
    """Returns the numbers [k] of training records.

    Args:
      indices: [k] integers from 0 to num_train - 1.
    """
    indices = indices.astype(np.int64)
    return self.order(np.where(indices < self.test.start, indices,
                               indices + len(self.test)))

  def is_test(self, numbers: np.ndarray) -> np.ndarray:
    """Returns which records, given by their numbers [k], are for test."""
    places = numbers.astype(np.int64)
    ordered = places < self.order.size
    places[ordered] = self.order.inverse(places[ordered])
    return (self.test.start <= places) & (places < self.test.stop)

  def take(self, num_train: int) -> 'NumberedSplit':
    """Returns the split with the first training records alone, see `take`."""
    _check_num_train(num_train, self.num_train)
    return self._replace(num_train=num_train)

  def fold(self, index: int, *, num_folds: int) -> 'NumberedSplit':
    """Returns one cross-validation split of the training part, see `fold`."""
    size = _fold_size(self.num_train, index, num_folds)
    return self._replace(num_train=(num_folds - 1) * size,
                         test=range(index * size, (index + 1) * size))


def numbered_split(seed: int, num_examples: int, *, num_test: int = 0,
                   test_fraction: float = 0.2) -> NumberedSplit:
  """Splits records without an array of their numbers.

  Args:
    seed: public seed.
    num_examples: number of records.
    num_test: how many of the last records the publisher holds out. With 0, a
      random `test_fraction` is held out, as in `train_test_split`.
    test_fraction: fraction of records for test, strictly between 0 and 1.

  Raises:
    ValueError: a part would be empty.

  Examples:
    >>> import numpy as np
    >>> from dpjax.data import splits
    >>> split = splits.numbered_split(0, 569)
    >>> split.num_train, len(split.test)
    (455, 114)
    >>> int(split.is_test(np.arange(569)).sum())
    114
  """
  num_last = num_test or _num_test(num_examples, test_fraction)
  num_train = num_examples - num_last
  errors.check_at_least('num_train', num_train, 1)
  return NumberedSplit(
      Permutation(seed=seed, size=num_train if num_test else num_examples),
      num_train, range(num_train, num_examples))


def _mixed(words: np.ndarray) -> np.ndarray:
  """Returns 64-bit words with their bits mixed: the finaliser of SplitMix64."""
  words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
  words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  return words ^ (words >> np.uint64(31))


def _num_test(num_examples: int, test_fraction: float) -> int:
  """Returns the size of the test part; raises if a part would be empty."""
  errors.check_at_least('num_examples', num_examples, 2)
  errors.check_open_unit('test_fraction', test_fraction)
  num_test = round(test_fraction * num_examples)
  if not 0 < num_test < num_examples:
    raise ValueError(f'test_fraction {test_fraction} of {num_examples} '
                     f'examples leaves one part empty')
  return num_test


def _check_num_train(num_train: int, available: int) -> None:
  errors.check_at_least('num_train', num_train, 1)
  if num_train > available:
    raise ValueError(f'num_train must be at most {available}, the size of '
                     f'the training part, got {num_train}')


def _fold_size(num_train: int, index: int, num_folds: int) -> int:
  """Returns the size of a fold; raises ValueError if there is none."""
  errors.check_at_least('num_folds', num_folds, 2)
  errors.check_at_least('fold', index, 0)
  size = num_train // num_folds
  if index >= num_folds or not size:
    raise ValueError('fold must be below num_folds, and num_folds at most the '
                     f'number of training records, got {index} of {num_folds}')
  return size
