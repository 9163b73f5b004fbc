"""Canaries: records that a coin flip includes in a training run or leaves out.

A run on n records with m canaries has n + m slots; n + m is public. A fair
coin, flipped independently for each canary, decides whether the canary is in
its slot. If not, the slot holds a record with NaN features, which every method
counts as zero in every sum. Everything else is the same for all coin flips:
which slots are sampled, the public divisor, the noise. So an audit by canaries
tests the claim under adding or removing one record. It is also a valid test
under replacing one record, since a NaN record may replace a canary; but this
moves a sum by half of what the claim allows, which costs power. Source:
Steinke, Nasr and Jagielski 2023 (AUD-06, AUD-11).
"""

from collections.abc import Sequence
from typing import NamedTuple
import zlib

import jax
import jax.numpy as jnp

from dpjax.data import images
from dpjax.data import splits
from dpjax.runs import building
from dpjax.runs.configuration import TrainingConfig
from dpjax.typing import Array, Batch, PRNGKey

# Domain separation: a seed's other keys fold in 0 or the digest of a run.
_STREAM = zlib.crc32(b'canaries')
_FROM_HELD_OUT = ('held_out', 'mislabelled')


class Canaries(NamedTuple):
  """The canaries of a run and their coin flips; as private as the records.

  Attributes:
    records: the m canaries, x [m, ...] and y [m], prepared for training.
    included: [m] bool coin flips: True where the canary is in the training
      set.
  """
  records: Batch
  included: Array


def draw(config: TrainingConfig, dataset: building.Dataset,
         split: splits.Split,
         run_key: PRNGKey | None = None) -> tuple[Canaries, splits.Split]:
  """Draws the canaries of a configuration, with keys used for nothing else.

  With a canary_seed or a noise_seed, canaries depend only on that seed, on the
  data set and, for held-out records, on the split: all methods and budgets get
  the same canaries. Else they come from the secret key of the run. The kinds:

    held_out: records of the held-out part, unchanged.
    mislabelled: held-out records, each with a wrong label drawn at random.
    noise: features uniform on their public range, labels at random.
    blank: constant features, evenly spaced over the public range from canary to
      canary, labels at random.

  Args:
    config: a configuration with `num_canaries` of at least 1.
    dataset: the data set after `building.prepare`.
    split: training and test rows of the data set.
    run_key: secret key of the run; needed without canary_seed and noise_seed.

  Returns:
    The canaries, and the split without the test records used as canaries.

  Raises:
    ValueError: if the held-out part has too few records, or the configuration
      has no seed and `run_key` is None.
  """
  if config.canary_seed is not None:
    run_key = jax.random.key(config.canary_seed)
  elif config.noise_seed is not None:
    run_key = jax.random.key(config.noise_seed)
  elif run_key is None:
    raise ValueError('canaries without a seed need the key of their run, '
                     'run_key; read the canaries of a finished run from its '
                     'canaries.npz')
  # Coins have a key of their own, so they are the same for every kind.
  coin_key, key = jax.random.split(jax.random.fold_in(run_key, _STREAM))
  size = config.num_canaries
  included = jax.random.bernoulli(coin_key, 0.5, (size,))
  if config.canary_kind not in _FROM_HELD_OUT:
    return Canaries(_synthetic(key, config, dataset), included), split
  if size >= split.test.shape[0]:
    raise ValueError(
        f'num_canaries must be below {split.test.shape[0]}, the held-out '
        f'record count, for canary_kind = {config.canary_kind}, got {size}')
  order_key, label_key = jax.random.split(key)
  order = jax.random.permutation(order_key, split.test)
  records = jax.tree.map(lambda leaf: leaf[order[:size]], dataset.records)
  if config.canary_kind == 'mislabelled':
    classes = building.shapes(dataset).num_classes
    # A shift of 1 to classes - 1 never leads back to the true label.
    shift = jax.random.randint(label_key, (size,), 1, classes, jnp.int32)
    records = records._replace(y=(records.y + shift) % classes)
  # Accuracy is not measured on records that may be in the training set.
  return Canaries(records, included), split._replace(test=order[size:])


def _synthetic(key: PRNGKey, config: TrainingConfig,
          dataset: building.Dataset) -> Batch:
  """Draws 'noise' or 'blank' canaries from the public feature range alone."""
  # Tables are encoded in [-1, 1]; `scale` maps pixels to [low, 1].
  shapes, size = building.shapes(dataset), config.num_canaries
  low = dataset.low if isinstance(dataset, images.ImageDataset) else -1.0
  feature_key, label_key = jax.random.split(key)
  labels = jax.random.randint(label_key, (size,), 0, shapes.num_classes,
                              jnp.int32)
  shape = (size, *shapes.record)
  if config.canary_kind == 'noise':
    return Batch(jax.random.uniform(feature_key, shape, minval=low,
                                    maxval=1.0), labels)
  levels = jnp.linspace(low, 1.0, size, dtype=jnp.float32)
  return Batch(jnp.broadcast_to(
      levels.reshape((size,) + (1,) * len(shapes.record)), shape), labels)


def join(records: Batch, canaries: Sequence[Canaries]
         ) -> tuple[Batch, list[Array]]:
  """Appends the canaries of several runs to the records of the data set.

  Args:
    records: all records of the data set.
    canaries: the canaries of each run; every run has the same number m.

  Returns:
    A batch of the records, all canaries, and m records with NaN features, so
    that no row is in two slots of one run; and for each run the row numbers [m]
    in its canary slots.
  """
  next_row, slots = records.y.shape[0], []
  # The rows of all runs' canaries come before the NaN records.
  first_nan_row = next_row + sum(each.included.shape[0] for each in canaries)
  for each in canaries:
    count = each.included.shape[0]
    offsets = jnp.arange(count, dtype=jnp.int32)
    slots.append(jnp.where(each.included, next_row + offsets,
                           first_nan_row + offsets))
    next_row += count
  num_canaries = max(each.included.shape[0] for each in canaries)
  nan_records = Batch(
      # Labels are integers, which cannot be NaN; the features are enough.
      jnp.full((num_canaries, *records.x.shape[1:]), jnp.nan, records.x.dtype),
      jnp.zeros((num_canaries, *records.y.shape[1:]), records.y.dtype))
  return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), records,
                      *(each.records for each in canaries), nan_records), slots
