"""Runs whose privacy unit is a user: one person may have several records.

The neighbour of a data set has one user more, fewer or other, with all their
records. At most `user_records` records represent a user: the first ones in the
file. The loss of a user is the mean over them, so a user counts in every bound
as a record with as many views (REG-04): gradients are clipped after the mean,
and the mean of bounded gradients is bounded.

The number of a user is the rank of their id, so which users are held out
follows from the seed, and not from what the records say.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.data import arrays
from dpjax.data import schema_files
from dpjax.data import user_tables
from dpjax.grads import ball
from dpjax.models.model import Model
from dpjax.runs import training_methods
from dpjax.runs.options import TrainingConfig
from dpjax.runs.settings import known
from dpjax.train import users
from dpjax.typing import Array, Batch, LossFn

NO_LABEL = -1
"""Label of a row that fills up the records of a user."""

DEFAULT_RECORDS = 10


class UserTable(NamedTuple):
  """A user's table whose records belong to users; all fields are PRIVATE.

  Attributes:
    table: the N records.
    owners: [N] number of the user of each record.
    rows: [u, k] numbers of the records that represent each user.
    used: [u, k] bool; False for rows that fill up.
  """
  table: arrays.Dataset
  owners: np.ndarray
  rows: np.ndarray
  used: np.ndarray

  @property
  def num_users(self) -> int:
    """The number of users u, which is public."""
    return len(self.rows)

  @property
  def x(self) -> Array:
    """Features of all records, [N, p]."""
    return self.table.x

  @property
  def num_classes(self) -> int:
    """The number of classes, public."""
    return self.table.num_classes

  @property
  def records(self) -> Batch:
    """The users as records: x [u, k, p], y [u, k] with `NO_LABEL`."""
    return Batch(self.table.x[self.rows],
                 jnp.where(self.used, self.table.y[self.rows],
                           jnp.int32(NO_LABEL)))

  def rows_of(self, numbers: Array) -> Array:
    """Returns the numbers [m] of all records of some users."""
    return jnp.asarray(np.flatnonzero(
        np.isin(self.owners, np.asarray(numbers))).astype(np.int32))


def check(config: TrainingConfig) -> None:
  """Raises ValueError if other options do not go with users."""
  if config.user_column is None:
    if config.user_records is not None:
      raise ValueError('user_records needs a user_column')
    return
  if config.stream:
    raise ValueError('records are grouped by user in memory: with a '
                     'user_column, stream must be false')
  if config.schema is None:
    raise ValueError('user_column needs your own table: no column of '
                     f'{config.dataset} names users')
  columns = schema_files.parse(config.schema).schema.columns
  if config.user_column in [column.name for column in columns]:
    raise ValueError(f'user_column {config.user_column!r} must be neither a '
                     'feature nor the label: take it out of the schema')
  if not training_methods.METHODS[config.method].views:
    errors.check_choice('method with a user_column', config.method,
                        training_methods.having('views'))
  if config.num_canaries:
    raise ValueError('canaries are records: with a user_column, num_canaries '
                     f'must be 0, got {config.num_canaries}')


def load(config: TrainingConfig, *, data_dir: str | None = None) -> UserTable:
  """Loads the table of a configuration, and groups its records by user.

  Raises:
    ValueError, FileNotFoundError: with a message of one line.
  """
  table, ids = user_tables.load_with_ids(
      config.dataset, known(config.schema), known(config.user_column),
      data_dir=data_dir)
  return group(table, ids, most=config.user_records or DEFAULT_RECORDS)


def group(table: arrays.Dataset, ids: np.ndarray, *, most: int) -> UserTable:
  """Returns the records of a table grouped by user.

  Args:
    table: N records.
    ids: [N] whose record each is.
    most: largest number k of records that represent a user, public. All users
      have k rows, so no shape tells how many records they have.
  """
  grouped = users.by_user(np.arange(len(ids)), ids, most=most)
  filled = [(0, 0), (0, most - grouped.rows.shape[1])]
  return UserTable(
      table, owners=np.unique(ids, return_inverse=True)[1],
      rows=np.pad(grouped.rows, filled, mode='edge').astype(np.int32),
      used=np.pad(grouped.weights > 0, filled))


def prepared_by_record(model: Model) -> Model:
  """Returns a model that prepares each record of a user by itself."""

  def prepare(x: Array) -> Array | ball.BallRecords:
    rows = model.prepare(x.reshape((-1, *x.shape[2:])))
    if not isinstance(rows, ball.BallRecords):
      return rows.reshape(x.shape)
    finite = jnp.all(rows.finite.reshape(x.shape[:2]), 1)
    return ball.BallRecords(rows.values.reshape(x.shape), finite, rows.radius)

  return model._replace(prepare=prepare)


def mean_loss(loss: LossFn) -> LossFn:
  """Returns the loss of users: the mean of that of their records.

  Guarantee: a bound on the gradient of a record, and on its cotangents at the
  logits, holds for that of a user, whose weights are not negative and sum to 1.

  Args:
    loss: (logits [b, c], labels [b]) -> [b].

  Returns:
    (logits [u, k, c], labels [u, k]) -> [u], where rows of `NO_LABEL` have
    weight 0.
  """

  def values(logits: Array, labels: Array) -> Array:
    used = labels != NO_LABEL
    rows = loss(logits.reshape((-1, logits.shape[-1])),
                jnp.where(used, labels, 0).reshape(-1)).reshape(labels.shape)
    return (jnp.sum(jnp.where(used, rows, 0.0), 1) /
            jnp.maximum(jnp.sum(used, 1, dtype=rows.dtype), 1.0))

  return values
