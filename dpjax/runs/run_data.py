"""What runs train on and are evaluated on, in memory or on disk."""

from collections.abc import Callable, Iterator, Sequence
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
import numpy as np

from dpjax.data import splits
from dpjax.data.streamed import StreamedDataset
from dpjax.runs import building
from dpjax.runs import canaries as canaries_lib
from dpjax.runs import run_users
from dpjax.runs import settings
from dpjax.runs.canaries import Canaries
from dpjax.runs.configuration import TrainingConfig
from dpjax.train import evaluate
from dpjax.train import sharding
from dpjax.train import sources
from dpjax.typing import ApplyFn, Array, Batch, Params


class RunData(NamedTuple):
  """The records of L runs.

  Attributes:
    records: all records, or a source of the training records.
    rows: [L, n] numbers of the training records; None for a source.
    num_test: number of records that each run is evaluated on.
    accuracies: (apply, params [L, ...], mesh over which these are divided, or
      None) -> accuracies [L] on the test records.
    canaries: canaries of each run, None without.
  """
  records: Batch | sources.Source
  rows: Array | None
  num_test: int
  accuracies: Callable[[ApplyFn, Params, Mesh | None], Sequence[float]]
  canaries: Sequence[Canaries | None]


def in_memory(dataset: building.Dataset,
              parts: Sequence[tuple[Canaries | None, splits.Split]]) -> RunData:
  """Returns the data of runs on records in memory.

  Args:
    dataset: after `building.prepare`.
    parts: canaries, None without, and split of each run.
  """
  records, rows = dataset.records, [part.train for _, part in parts]
  canaries = [each for each, _ in parts]
  if canaries[0] is not None:
    records, slots = canaries_lib.join(
        records, [each for each in canaries if each is not None])
    rows = list(map(jnp.concatenate, zip(rows, slots, strict=True)))
  tests = [part.test for _, part in parts]
  return RunData(records, jnp.stack(rows), len(tests[0]),
                 functools.partial(_accuracies, dataset, records, tests),
                 canaries)


def _accuracies(dataset: building.Dataset, records: Batch,
                tests: Sequence[Array], apply: ApplyFn, params: Params,
                where: Mesh | None) -> list[float]:
  """Returns the accuracies of runs in memory, see `RunData`."""
  if not isinstance(dataset, run_users.UserTable):
    return _evaluated(apply, params, records, jnp.stack(tests), where)
  # Held-out users of two runs may have other numbers of records.
  return [_evaluated(
      apply, jax.tree.map(lambda leaf, r=run: leaf[r:r + 1], params),
      dataset.table.records, dataset.rows_of(test)[None], where)[0]
          for run, test in enumerate(tests)]


def _evaluated(apply: ApplyFn, params: Params, records: Batch, rows: Array,
               where: Mesh | None) -> list[float]:
  """Returns the accuracies [L] of parameters [L, ...] on rows [L, m]."""
  values = evaluate.accuracies(apply, params,
                               *sharding.replicate(where, (records, rows)))
  return sharding.on_host(values).tolist()


def on_disk(config: TrainingConfig, dataset: StreamedDataset) -> RunData:
  """Returns the data of one run on records that stay on disk."""
  parts = split(config, dataset)
  return RunData(
      source(dataset, parts), None, len(parts.test),
      lambda apply, params, where: [accuracy(apply, params, dataset, parts)],
      [None])


def split(config: TrainingConfig,
          dataset: StreamedDataset) -> splits.NumberedSplit:
  """Splits the records into training and test; the same for every method.

  As in memory the split depends on the split seed only, but it is another one.
  """
  seed = config.seed if config.split_seed is None else config.split_seed
  whole = splits.numbered_split(
      seed, dataset.num_records, num_test=dataset.num_test,
      test_fraction=config.test_fraction)
  if config.fold is not None:
    whole = whole.fold(config.fold, num_folds=config.num_folds)
  return whole.take(settings.known(config.num_examples))


def source(dataset: StreamedDataset,
           parts: splits.NumberedSplit) -> sources.Source:
  """Returns the training records of a split, numbered from 0."""

  def load(indices: np.ndarray) -> dict[str, np.ndarray]:
    return dataset.load(parts.train(indices))

  return sources.source(load, num_records=parts.num_train)


def accuracy(apply: ApplyFn, params: Params, dataset: StreamedDataset,
             parts: splits.NumberedSplit) -> float:
  """Returns the accuracy on the test part, read in the order of the files.

  Args:
    apply: of the model.
    params: parameters of one run, with a leading axis [1].
    dataset: records on disk.
    parts: their split.
  """
  one = jax.tree.map(lambda leaf: leaf[0], params)
  read: Any = (dataset.load(numbers) for numbers in _held_out(dataset, parts))
  return evaluate.accuracy_of_parts(
      apply, one, (Batch(**records) for records in read))


def _held_out(dataset: StreamedDataset,
              parts: splits.NumberedSplit) -> Iterator[np.ndarray]:
  """Yields the numbers of the test records, in parts of one size."""
  # In the order of the split, each part would be in most row groups.
  numbers = np.zeros([0], np.int64)
  for block in dataset.blocks():
    numbers = np.concatenate([numbers, block[parts.is_test(block)]])
    while len(numbers) >= evaluate.PART:
      yield numbers[:evaluate.PART]
      numbers = numbers[evaluate.PART:]
  if len(numbers):
    yield numbers
