"""Keys of training runs: secret ones for a release, seeded ones for research.

The initial parameters of every run come from the public `seed`. Batches, noise
and views come from the system's random source or, in a reproducible run, from
`noise_seed`.
"""

from collections.abc import Sequence
import dataclasses
import hashlib
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy import keys as key_lib
from dpjax.runs import settings
from dpjax.runs.configuration import TrainingConfig
from dpjax.train import processes
from dpjax.train import state as states
from dpjax.typing import Batch, PRNGKey


def reproducible(config: TrainingConfig) -> TrainingConfig:
  """Returns the configuration with noise_seed = seed: for research only."""
  return dataclasses.replace(config, noise_seed=config.seed)


def run_key(config: TrainingConfig) -> PRNGKey:
  """Returns the key of batches, noise and views of a reproducible run.

  Different configurations get different keys: the difference of two releases
  that shared their noise would contain none.

  Raises:
    ValueError: for a run without a noise_seed.
  """
  if config.noise_seed is None:
    raise ValueError('the run has no noise_seed: its key came from the '
                     "system's random source and cannot be reproduced")
  return _own_key(config.noise_seed, config)


def init_key(config: TrainingConfig) -> PRNGKey:
  """Returns the public key of a run's initial parameters."""
  return states.streams(_own_key(config.seed, config)).init


def _own_key(seed: int, config: TrainingConfig) -> PRNGKey:
  """Returns the key of a seed, with a digest of the configuration folded in.

  Fields added later enter the digest only if they are not at their default, so
  that older runs keep the noise they had. noise_seed is not in the digest: it
  is `seed` here.
  """
  fields = [
      f'{setting.name}={getattr(config, setting.name)!r}'
      for setting in settings.declared(type(config))
      if setting.name != 'noise_seed' and (
          not setting.later or
          getattr(config, setting.name) != setting.default)
  ]
  # The checksum separates configurations; it need not hide them. A change of
  # this text would change the noise of all published rows.
  digest = zlib.crc32(f'TrainingConfig({", ".join(fields)})'.encode())
  return jax.random.fold_in(jax.random.key(seed), digest)


def new_keys(num: int) -> PRNGKey:
  """Draws secret keys [num], the same in all processes of a run.

  The first process draws them and sends them to the others over the network
  between the processes. That network must be trusted, as with the records.
  """
  return key_lib.from_words(
      processes.from_first(lambda: key_lib.system_words(num)))


def draw(configs: Sequence[TrainingConfig], keys: PRNGKey | None,
         records: Batch | bytes) -> PRNGKey:
  """Returns the keys [L] of L runs, derived from noise_seed or secret.

  Args:
    configs: resolved configurations; all with a noise_seed, or none.
    keys: [L] keys from `new_keys` for runs without a noise_seed; None draws
      new ones.
    records: the records that all runs train on, or a digest of all of them.

  Raises:
    ValueError: if keys are given for runs with a noise_seed, or if there are
      not exactly L secret keys.
  """
  if configs[0].noise_seed is None:
    keys = new_keys(len(configs)) if keys is None else keys
    if keys.shape != (len(configs),) or not key_lib.is_secret(keys):
      raise ValueError(f'{len(configs)} runs without a noise_seed need as many '
                       'secret keys, from run_keys.new_keys')
    # A key kept for a killed run must not noise another configuration, or
    # another version of the records: the same noise would be used twice.
    # All processes need the same keys, so one digest serves all.
    digest = records if isinstance(records, bytes) else (
        processes.from_first(lambda: _digest(records)))
    return jnp.concatenate([
        key_lib.bound_to(keys[run:run + 1], repr(config).encode(), digest)
        for run, config in enumerate(configs)])
  if keys is not None:
    raise ValueError('keys must be None for runs with a noise_seed, which '
                     'derive their keys from it')
  return jnp.stack([run_key(config) for config in configs])


def _digest(records: Batch) -> bytes:
  """Returns the SHA-256 of all features and labels of the records."""
  digest = hashlib.sha256()
  for leaf in jax.tree.leaves(records):
    value = np.ascontiguousarray(leaf)
    # Arrays of other types or shapes may consist of the same bytes.
    digest.update(f'{value.dtype}{value.shape}'.encode())
    digest.update(value.data)
  return digest.digest()
