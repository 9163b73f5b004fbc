"""Users instead of records: one person may have several records.

With `make_private(..., unit='user')` the neighbour of a data set has one user
more or fewer, with all their records. `by_user` groups the records. The sampler
draws users, and the loss of a user is the mean (or the sum) over at most
`most` of their records, whose gradient is clipped as one. So a user's
contribution depends on their own records alone, and is bounded by `clip_norm`,
however many records they have. A user who has more than `most` is represented
by these: a larger `most` uses more of the data, and takes time and memory for
`most` records of every user in a batch.
"""

from collections.abc import Callable
import secrets
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.train import loading
from dpjax.train import losses
from dpjax.train.modules import Split
from dpjax.train.sources import Source
from dpjax.typing import Array, Params, PyTree

UNITS = ('record', 'user')
"""What neighbouring data sets differ by, for `make_private`."""

CHOICES = ('first', 'random')
COMBINATIONS = ('mean', 'sum')


class Users(NamedTuple):
  """Records grouped by user.

  Attributes:
    rows: a tree of arrays [u, k, ...]: k records of each user. A user with
      fewer has the last of them repeated.
    weights: [u, k] float32: factors of their losses; 0 for repeated ones.
  """
  rows: PyTree
  weights: Any


class UserRecords:
  """Loads records of users by their numbers, as `Private.step` takes them.

  Attributes:
    num_users: number of users u, the `num_examples` of `make_private`.
    rows: [u, k] numbers of the records of each user; PRIVATE.
    weights: [u, k] float32, see `Users`; PRIVATE.
  """

  def __init__(self, records: PyTree | loading.Load, rows: np.ndarray,
               weights: np.ndarray):
    """Keeps the index, and records or the function that loads them."""
    self.num_users, self.rows, self.weights = len(rows), rows, weights
    self._load: Callable[[np.ndarray], PyTree] = (
        records if callable(records) else
        lambda numbers: jax.tree.map(lambda leaf: leaf[numbers], records))

  def __call__(self, numbers: np.ndarray) -> Users:
    """Returns the records of the users with these numbers [m]."""
    numbers = np.asarray(numbers)
    rows = self.rows[numbers]
    loaded = loading.checked(self._load(rows.reshape(-1)), rows.size,
                             'one for each number that was asked for')
    return Users(jax.tree.map(lambda leaf: leaf.reshape(
        *rows.shape, *leaf.shape[1:]), loaded), self.weights[numbers])

  def check_size(self, num_users: int) -> None:
    """Raises ValueError if these are not this many users."""
    if num_users != self.num_users:
      raise ValueError(f'records must have {num_users} users, the num_examples '
                       f'of make_private; got {self.num_users}')

  def whole(self) -> Users:
    """Returns all users on the device, for a step that the user compiles."""
    return jax.tree.map(jnp.asarray, self(np.arange(self.num_users)))


def by_user(records: PyTree | loading.Load | Source, user_ids: Any, *,
            most: int, choose: str = 'first', combine: str = 'mean'
            ) -> UserRecords:
  """Returns the records grouped by user; made once, before training.

  Which records represent a user depends on no other user.

  Args:
    records: a tree of arrays [n, ...], a function that loads records by number,
      or a `sources.source`. To read ahead, make a source of the result:
      `sources.source(grouped, num_records=grouped.num_users)`.
    user_ids: [n] whose record each is: integers or strings.
    most: largest number k of records that represent a user, public.
    choose: which k of more records: the 'first' in the order of the records, or
      'random' ones, drawn once.
    combine: whether the loss of a user is the 'mean' over their k records, so
      that each user has the same weight, or the 'sum'.

  Raises:
    ValueError: if an argument is out of range, or the numbers of records and
      ids differ.

  Examples:
    >>> from dpjax.train import users
    >>> x = np.arange(5.0, dtype=np.float32)
    >>> grouped = users.by_user(x, ['ann', 'bob', 'ann', 'ann', 'cy'], most=2)
    >>> grouped.num_users
    3
    >>> grouped(np.array([0, 2])).rows.tolist()
    [[0.0, 2.0], [4.0, 4.0]]
    >>> grouped(np.array([0, 2])).weights.tolist()
    [[0.5, 0.5], [1.0, 0.0]]
  """
  errors.check_at_least('most', most, 1)
  errors.check_choice('choose', choose, CHOICES)
  errors.check_choice('combine', combine, COMBINATIONS)
  ids = np.asarray(user_ids)
  if ids.ndim != 1 or not ids.size or ids.dtype.kind not in 'iuSU':
    raise ValueError('user_ids must be integers or strings [n], one for each '
                     f'record, got {ids.dtype} of shape {list(ids.shape)}')
  if isinstance(records, Source):
    loading.check_size(len(records), len(ids), 'number of user_ids')
    records = records.load
  elif not callable(records):
    records = loading.checked(records, len(ids), 'one for each of user_ids')
  _, owners, counts = np.unique(ids, return_inverse=True, return_counts=True)
  # Within a user: the order of the records, or one by independent numbers.
  ranks = (np.arange(len(ids)) if choose == 'first' else np.random.default_rng(
      secrets.randbits(128)).random(len(ids)))
  order = np.lexsort((ranks, owners))
  kept = np.minimum(counts, most)[:, None]
  columns = np.arange(min(most, int(counts.max())))
  starts = (np.cumsum(counts) - counts)[:, None]
  rows = order[starts + np.minimum(columns, kept - 1)].astype(np.int64)
  weights = (columns < kept) / (kept if combine == 'mean' else 1)
  return UserRecords(records, rows, weights.astype(np.float32))


def loss_of(loss: losses.Loss, unit: str, parts: Split, params: Params,
            frozen: PyTree, records: PyTree
            ) -> Callable[[Params, PyTree], Array]:
  """Returns the loss of one unit: that of a record, or of a user.

  Args:
    loss: of records, see `losses.of_record`.
    unit: one of `UNITS`.
    parts: the model.
    params: trainable arrays; only their shapes are read.
    frozen: the other arrays.
    records: a tree of [b, ...], or `Users` of b users; only shapes are read.

  Returns:
    (params, (record or user, words [2] of its key)) -> scalar.

  Raises:
    ValueError: if the records are grouped and the unit is 'record', or the
      other way round; or see `losses.of_record`.
  """
  if isinstance(records, Users) != (unit == 'user'):
    raise ValueError(
        "records are grouped by user: say unit='user' to make_private"
        if unit == 'record' else
        "unit='user' needs records grouped by user: give "
        'train.users.by_user(records, user_ids, most=...) to step')
  if unit == 'record':
    return losses.of_record(loss, parts, params, frozen, records)
  record_loss = losses.of_record(loss, parts, params, frozen, jax.tree.map(
      lambda leaf: jax.ShapeDtypeStruct(
          (leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]), leaf.dtype),
      records.rows))

  def user_loss(params: Params, keyed: tuple[Users, Array]) -> Array:
    user, words = keyed
    row_words = losses.derived_words(words, user.weights.shape[0])
    values = jax.vmap(record_loss, (None, 0))(params, (user.rows, row_words))
    weights = user.weights.astype(jnp.float32)
    # A repeated record has a finite loss if the record itself has.
    return jnp.sum(jnp.where(weights > 0, weights * values.astype(jnp.float32),
                             0.0))

  return user_loss
