"""Keys of training runs: secret for a release, from seeds for research.

The initial parameters of every run come from the public `seed`. Batches, noise
and views come from the random source of the system or, in a run that can be
made again, from `noise_seed`.
"""

from collections.abc import Sequence
import dataclasses
import hashlib
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy import keys as key_lib
from dpjax.train import processes
from dpjax.train import state as states
from dpjax.typing import Batch, PRNGKey
from experiments.configuration import TrainingConfig


def reproducible(config: TrainingConfig) -> TrainingConfig:
  """Returns the configuration with its seed as noise_seed: for research."""
  return dataclasses.replace(config, noise_seed=config.seed)


def run_key(config: TrainingConfig) -> PRNGKey:
  """Returns the key of batches, noise and views of a reproducible run.

  Every configuration has noise of its own: two releases that shared theirs
  would cancel it.

  Raises:
    ValueError: for a run whose key comes from the system.
  """
  if config.noise_seed is None:
    raise ValueError('the run has no noise_seed: its key came from the system, '
                     'and it cannot be made again')
  return _own_key(config.noise_seed, config)


def init_key(config: TrainingConfig) -> PRNGKey:
  """Returns the public key of a run's initial parameters."""
  return states.streams(_own_key(config.seed, config)).init


def _own_key(seed: int, config: TrainingConfig) -> PRNGKey:
  """The key of a seed and all else that a configuration says.

  Fields that came later count once they are not at their default, so that a
  run from before they were there still has the noise that it had. noise_seed
  does not count: it stands in the place of `seed`.
  """
  fields = [
      f'{field.name}={getattr(config, field.name)!r}'
      for field in dataclasses.fields(config)
      if field.name != 'noise_seed' and (
          not field.metadata.get('later') or
          getattr(config, field.name) != field.default)
  ]
  digest = zlib.crc32(f'TrainingConfig({", ".join(fields)})'.encode())
  return jax.random.fold_in(jax.random.key(seed), digest)


def new_keys(num: int) -> PRNGKey:
  """Returns secret keys [num], the same in all processes of a run.

  The first process draws them, and the others get them over the network that
  connects the processes, which has to be trusted with the records as well.
  """
  return key_lib.from_words(
      processes.from_first(lambda: key_lib.system_words(num)))


def draw(configs: Sequence[TrainingConfig], keys: PRNGKey | None,
         records: Batch) -> PRNGKey:
  """Returns the key of each run: of its noise_seed, or secret and its alone.

  Args:
    configs: resolved; all with a noise_seed, or none.
    keys: [L] from `new_keys`, of runs without one; None draws them.
    records: that all runs train on.

  Raises:
    ValueError: if there are keys for runs that have their own, or not as many
      secret ones as runs.
  """
  if configs[0].noise_seed is None:
    keys = new_keys(len(configs)) if keys is None else keys
    if keys.shape != (len(configs),) or not key_lib.is_secret(keys):
      raise ValueError(f'{len(configs)} runs without a noise_seed need as many '
                       'keys of keys.system_keys')
    # A key that is kept for a run that was killed must not serve another
    # configuration, or another version of the records.
    digest = processes.from_first(lambda: _digest(records))
    return jnp.concatenate([
        key_lib.bound_to(keys[run:run + 1], repr(config).encode(), digest)
        for run, config in enumerate(configs)])
  if keys is not None:
    raise ValueError('runs with a noise_seed have the keys that it makes')
  return jnp.stack([run_key(config) for config in configs])


def _digest(records: Batch) -> bytes:
  """Returns the SHA-256 of all features and labels of the records."""
  digest = hashlib.sha256()
  for leaf in jax.tree.leaves(records):
    value = np.ascontiguousarray(leaf)
    digest.update(f'{value.dtype}{value.shape}'.encode())
    digest.update(value.data)
  return digest.digest()
