"""Canaries of a training run: records that a coin includes or leaves out.

A run on n records with m canaries has n + m slots, a public number. Each
canary is in its slot by a fair coin of its own; if not, the slot holds a record
whose features are no numbers, which every method counts as zero in every sum.
What a run does is otherwise the same for all coins: which slots are sampled,
the public divisor, the noise. So the claim under test is that of adding or
removing one canary. A claim about replacing a record covers it, as a record
without features is one that a canary may be replaced by; that moves a sum half
as far as the claim allows, which costs the audit power and nothing else.
Source: AUD-06, AUD-11.
"""

from collections.abc import Sequence
from typing import NamedTuple
import zlib

import jax
import jax.numpy as jnp

from dpjax.data import images
from dpjax.data import splits
from dpjax.typing import Array, Batch, PRNGKey
from experiments import building
from experiments.configuration import TrainingConfig

# Other keys of a seed are folded in with 0 and with the digest of a run.
_STREAM = zlib.crc32(b'canaries')
_FROM_HELD_OUT = ('held_out', 'mislabelled')


class Canaries(NamedTuple):
  """The canaries of a run.

  Attributes:
    records: m of them, x [m, ...] and y [m] as training takes them.
    included: [m] bool, the coins: which of them are in the training set.
  """
  records: Batch
  included: Array


def draw(config: TrainingConfig, dataset: building.Dataset,
         split: splits.Split,
         run_key: PRNGKey | None = None) -> tuple[Canaries, splits.Split]:
  """Draws the canaries of a configuration, from keys used nowhere else.

  With a seed of their own, or of the noise, they depend on that seed, on the
  data set and, if they are held-out records, on the split; on nothing else, so
  that methods and budgets are compared on the same ones. Without one they and
  their coins come from the secret key of the run. By their kind:

    held_out: records of the held-out part, as they are.
    mislabelled: the same, each with one of the other labels.
    noise: features uniform on their public range, labels at random.
    blank: all features one constant, another one for each canary, from one end
      of the range to the other, labels at random.

  Args:
    config: with `num_canaries` of at least 1.
    dataset: prepared.
    split: of its records.
    run_key: needed without a seed.

  Returns:
    The canaries, and the split without those that are taken from its test part.

  Raises:
    ValueError: if the held-out part has too few records.
  """
  if config.canary_seed is not None:
    run_key = jax.random.key(config.canary_seed)
  elif config.noise_seed is not None:
    run_key = jax.random.key(config.noise_seed)
  elif run_key is None:
    raise ValueError('canaries without a seed need the key of their run: what '
                     'they were is in canaries.npz')
  coin_key, key = jax.random.split(jax.random.fold_in(run_key, _STREAM))
  size = config.num_canaries
  included = jax.random.bernoulli(coin_key, 0.5, (size,))
  if config.canary_kind not in _FROM_HELD_OUT:
    return Canaries(_made(key, config, dataset), included), split
  if size >= split.test.shape[0]:
    raise ValueError(
        f'num_canaries must be below {split.test.shape[0]}, the held-out '
        f'records, for canary_kind = {config.canary_kind}, got {size}')
  order_key, label_key = jax.random.split(key)
  order = jax.random.permutation(order_key, split.test)
  records = jax.tree.map(lambda leaf: leaf[order[:size]], dataset.records)
  if config.canary_kind == 'mislabelled':
    classes = building.shapes(dataset).num_classes
    shift = jax.random.randint(label_key, (size,), 1, classes, jnp.int32)
    records = records._replace(y=(records.y + shift) % classes)
  return Canaries(records, included), split._replace(test=order[size:])


def _made(key: PRNGKey, config: TrainingConfig,
          dataset: building.Dataset) -> Batch:
  """Records that are made of nothing but the public range of features."""
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
  """All records with the canaries of several runs behind them.

  Args:
    records: of the data set.
    canaries: of each run, of one size m.

  Returns:
    The records, then all canaries, then m records without features, so that no
    record is in two slots of a run; and for each run the numbers [m] of what
    is in its slots.
  """
  size, slots = records.y.shape[0], []
  absent = size + sum(each.included.shape[0] for each in canaries)
  for each in canaries:
    count = each.included.shape[0]
    numbers = jnp.arange(count, dtype=jnp.int32)
    slots.append(jnp.where(each.included, size + numbers, absent + numbers))
    size += count
  most = max(each.included.shape[0] for each in canaries)
  nothing = Batch(
      jnp.full((most, *records.x.shape[1:]), jnp.nan, records.x.dtype),
      jnp.zeros((most, *records.y.shape[1:]), records.y.dtype))
  return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), records,
                      *(each.records for each in canaries), nothing), slots
