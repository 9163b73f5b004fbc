"""The records of a study, the split among its networks, and random keys."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.data import images
from dpjax.data import registry
from dpjax.typing import Array, Batch, PRNGKey
from experiments.methods.attacks import shadow
from experiments.mia_sparsity import sweep

_POOL = 2**31 - 1  # Seed of the pool of records, which all pairs share.
_PURPOSES = ('split', 'init', 'batches', 'noise', 'masks', 'attack', 'private')


class Study(NamedTuple):
  """R = 2 S networks of S pairs; network 2 s + r has role r of seed s.

  Attributes:
    profile: options of the study.
    records: N images and labels, from the published training and test parts.
    fitted: [R, n] int32, rows that a network is trained on.
    validation: [R, v], rows on which its best epoch is chosen.
    test: [R, t], rows on which its accuracy is measured.
    attacked: [R, m], rows that are attacked, ascending; half are `fitted`.
    members: [R, m] bool, True where an attacked row is `fitted`.
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
    """Returns the number of classes."""
    return int(np.max(self.records.y)) + 1

  @property
  def num_networks(self) -> int:
    """Returns R, the number of networks."""
    return self.fitted.shape[0]

  @property
  def partners(self) -> np.ndarray:
    """Returns [R], the number of the network that is the shadow of each one."""
    return np.arange(self.num_networks) ^ 1

  def inclusion(self) -> np.ndarray:
    """Returns [R, N] bool: True where a network was trained on a record."""
    result = np.zeros((self.num_networks, self.records.y.shape[0]), bool)
    np.put_along_axis(result, np.asarray(self.fitted), True, axis=1)
    return result

  def keys(self, purpose: str) -> PRNGKey:
    """Returns [R] keys, equal for all kinds: differences are paired.

    Args:
      purpose: one of `_PURPOSES`.
    """
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
