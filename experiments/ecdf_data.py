"""Data sets of Barczewski (2025, section 6.6), and distribution curves of them.

X_pois(lambda): each value 1..N occurs a Poisson(lambda) number of times (item
EC-28). The number of records n, the sum of these counts, is public.
"""

from collections.abc import Sequence
import functools
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.stats import mechanisms
from dpjax.stats.ecdf_methods.mechanism import EcdfMechanism
from dpjax.typing import PRNGKey


def keys(seed: int, name: str, repetitions: int) -> PRNGKey:
  """Returns keys [R] of the stream with this name, of data or of noise."""
  key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))
  return jax.random.split(key, repetitions)


@functools.partial(jax.jit, static_argnames='size')
def _poisson(keys, rate, size):
  """Returns Poisson counts [R, size], one row for each key."""
  return jax.vmap(lambda key: jax.random.poisson(key, rate, (size,)))(keys)


@functools.lru_cache(maxsize=4)
def poisson_counts(*, rate: float, num_thresholds: int, repetitions: int,
                   seed: int) -> np.ndarray:
  """Returns counts [R, N] float64 of R data sets, the same for all mechanisms.

  Args:
    rate: lambda, the mean of each count.
    num_thresholds: N, the number of values.
    repetitions: R, the number of data sets.
    seed: seed of all draws.
  """
  data_keys = keys(seed, f'poisson/{rate!r}/{num_thresholds}', repetitions)
  return np.asarray(_poisson(data_keys, jnp.float32(rate), num_thresholds),
                    np.float64)


def released(mechanism: EcdfMechanism, counts: np.ndarray, *,
             seed: int, coins: str) -> np.ndarray:
  """Returns noisy ranks [R, N] float64, one release for each of R data sets.

  Args:
    mechanism: mechanism that releases the ranks.
    counts: [R, N], the data sets.
    seed: seed of all draws.
    coins: name of the noise stream; different names give different noise.
  """
  noise_keys = keys(seed, f'coins/{coins}', len(counts))
  with jax.enable_x64(True):
    return np.asarray(mechanisms.repeated(mechanism.draw, 0)(
        noise_keys, jnp.asarray(counts, jnp.float64), mechanism.parameters))


def standard_error(values: Sequence[float]) -> float:
  """Returns the standard error of the mean of independent values."""
  return float(np.std(values, ddof=1) / len(values)**0.5)
