"""The records of a study, who trains on which, and the keys of everything."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.data import images
from dpjax.data import registry
from dpjax.typing import Array, Batch, PRNGKey
from experiments.methods.attacks import shadow
from experiments.mia_sparsity import sweep

_POOL = 2**31 - 1  # the seed of what all pairs share: the pool of records
_PURPOSES = ('split', 'init', 'batches', 'noise', 'masks', 'attack', 'private')


class Study(NamedTuple):
  """R = 2 S networks of S pairs; network 2 s + r has role r of seed s.

  Attributes:
    profile: what is studied.
    records: N images and labels, of both parts of the publisher's.
    fitted: [R, n] int32, rows that gradients see.
    validation: [R, v], rows by which an epoch is chosen.
    test: [R, t], rows of the accuracy.
    attacked: [R, m], half of them `fitted`, in ascending order.
    members: [R, m] bool, which are.
  """
  profile: sweep.Profile
  records: Batch
  fitted: Array
  validation: Array
  test: Array
  attacked: Array
  members: Array

  @property
  def num_classes(self) -> int:
    """c."""
    return int(np.max(self.records.y)) + 1

  @property
  def num_networks(self) -> int:
    """R."""
    return self.fitted.shape[0]

  @property
  def partners(self) -> np.ndarray:
    """[R], the network by which each one is attacked."""
    return np.arange(self.num_networks) ^ 1

  def inclusion(self) -> np.ndarray:
    """[R, N] bool: which records gradients of a network saw."""
    result = np.zeros((self.num_networks, self.records.y.shape[0]), bool)
    np.put_along_axis(result, np.asarray(self.fitted), True, axis=1)
    return result

  def keys(self, purpose: str) -> PRNGKey:
    """[R] keys, the same for all kinds: differences to 'dense' are paired."""
    number = _PURPOSES.index(purpose)
    network = jnp.arange(self.num_networks)
    base = jax.vmap(jax.random.key)(network // 2)
    return jax.vmap(lambda key, role: jax.random.fold_in(
        jax.random.fold_in(key, number), role))(base, network % 2)


def load(profile: sweep.Profile, data_dir: str | None) -> Study:
  """Reads the records and draws the splits of all seeds (MIA-01)."""
  dataset = registry.load(profile.dataset, data_dir=data_dir)
  if profile.factor > 1:
    dataset = images.downsample(dataset, profile.factor)
  records = dataset.records
  total = records.y.shape[0]
  if profile.num_records > total:
    raise ValueError(f'{profile.dataset} has {total} records, the study needs '
                     f'{profile.num_records}')
  pool = jax.random.permutation(jax.random.key(_POOL), total)
  pool = np.sort(np.asarray(pool[:profile.num_records]))
  records = Batch(jnp.asarray(records.x[pool], jnp.float32),
                  jnp.asarray(records.y[pool], jnp.int32))
  halves = []
  for seed in range(profile.num_seeds):
    key = jax.random.fold_in(jax.random.key(seed), _PURPOSES.index('split'))
    halves += shadow.split(key, profile.num_records, profile.num_validation)
  attacked, members = zip(*(half.attacked() for half in halves), strict=True)
  stack = lambda name: jnp.stack([getattr(half, name) for half in halves])
  return Study(profile, records, stack('fitted'), stack('validation'),
               stack('test'), jnp.stack(attacked), jnp.stack(members))
